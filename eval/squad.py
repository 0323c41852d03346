"""SQuAD 1.1 (open): questions about a paragraph of Wikipedia, asked without the paragraph.

Rajpurkar et al. 2016. Chen et al. 2017 first asked the questions without their paragraphs. Papers test on the dev set,
because SQuAD's test set is hidden.

Splits: ``train`` (87,599 questions of 442 articles), ``dev`` (10,570 questions of 48 articles), and ``dev-a`` (3,482 of
the dev questions, from 16 whole articles). Metrics: exact match and F1 with the best gold answer, after SQuAD's
normalisation, without Unicode NFD.

    python -m eval.squad --pipeline DIR --data DIR
"""

from eval.published import list_published
from eval.suite import Hub, Split, Suite, main

SQUAD = Suite(
    key="squad",
    title="SQuAD 1.1 (open)",
    about=(
        "Paid workers wrote these questions about a paragraph of Wikipedia. The answers are spans of this paragraph "
        "(Rajpurkar et al. 2016). Here, the questions are asked without it (Chen et al. 2017). Source: "
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
    answer_type="spans of the question's paragraph; in dev, most questions have three answers",
    published=list_published("squad"),
    caution=(
        "dev-a is a part of the papers' 10,570 test questions. Its questions come from only 16 articles, so one "
        "article more or less changes the score. The authors of the questions saw the paragraph. So without the "
        "paragraph some questions have no single answer, and the questions share words with it, which favours BM25. A "
        "corpus of SQuAD's paragraphs is far easier than Wikipedia, so name the corpus. all-MiniLM-L6-v2 was trained "
        "on pairs from SQuAD's train split. So systems that start from this encoder are not zero-shot here. train is a "
        "rebuilt file: its ids are not SQuAD's, and answer_start is the first occurrence of the answer. Seven "
        "questions occur twice in dev-a, 216 more than once in train."
    ),
)

if __name__ == "__main__":
    main(SQUAD)
