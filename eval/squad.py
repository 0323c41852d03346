"""SQuAD 1.1, open: questions about a paragraph of Wikipedia, asked without the paragraph.

Rajpurkar et al. 2016, asked open since Chen et al. 2017. SQuAD's dev set is everybody's test set, as its own test set
is hidden.

Splits: ``train`` (87,599 questions of 442 articles); ``dev`` (10,570 questions of 48 articles) and ``dev-a`` (3,482 of
them, 16 whole articles). Metrics: exact match and F1 with the best of the gold answers, after SQuAD's own
normalisation, without a Unicode step.

    python -m eval.squad --pipeline DIR --data DIR
"""

from eval.published import list_published
from eval.suite import Hub, Split, Suite, main

SQUAD = Suite(
    key="squad",
    title="SQuAD 1.1 (open)",
    about=(
        "Questions that paid workers wrote while they saw a paragraph of Wikipedia, each answered with a span of it "
        "(Rajpurkar et al. 2016), asked here without the paragraph (Chen et al. 2017). Source: "
        "github.com/rajpurkar/SQuAD-explorer. Licence: CC BY-SA 4.0."
    ),
    splits={
        "train": Split("train-v1.1.json.xz", 87_599),
        "dev-a": Split("dev-a-v1.1.json.xz", 3_482),
        "dev": Split("dev-v1.1.json", 10_570),
    },
    default_split="dev-a",
    hub=Hub(
        name="rajpurkar/squad",
        revision="7b6d24c440a36b6815f21b70d25016731768db1f",
        question="question",
        answers="answers.text",  # the column answers holds two lists, text and answer_start
        passage="context",
        splits={"train": ("train", 87_599), "dev": ("validation", 10_570)},
    ),
    unicode=None,
    answer_type="spans of the paragraph that the question was written for, mostly three a question in dev",
    published=list_published("squad"),
    caution=(
        "dev-a is a part of the 10,570 questions that the papers test on: 16 articles, so questions come in clumps and "
        "an article more or less moves the score. The questions were written with the paragraph in sight: without it "
        "some have no single answer, and they share its words, which favours BM25. A corpus of SQuAD's own paragraphs "
        "is far easier than Wikipedia: name it. all-MiniLM-L6-v2 was trained on pairs from SQuAD's train split: what "
        "starts from it is not zero-shot here. train was rebuilt: its ids are not SQuAD's, and answer_start is the "
        "first place where the answer stands. Seven questions stand twice in dev-a, 216 more than once in train."
    ),
)

if __name__ == "__main__":
    main(SQUAD)
