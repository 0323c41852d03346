"""SQuAD 1.1, open: questions written for a paragraph of Wikipedia, asked without the paragraph.

Rajpurkar et al. 2016, asked open since Chen et al. 2017. SQuAD's dev set is everybody's test set, as its own test set
is hidden.

Splits: ``train`` (87,599 questions of 442 articles); ``dev`` (10,570 questions of 48 articles) and ``dev-a`` (3,482 of
them, 16 whole articles). Metrics: exact match and F1 with the best of the gold answers, after SQuAD's own
normalisation, without a Unicode step.

    python -m eval.squad --pipeline DIR --data DIR
"""

from eval.suite import Hub, Published, Split, Suite, main

TEST = "SQuAD 1.1 dev as test, 10,570 questions"
BLOCKS = "English Wikipedia, Dec 20 2018, 13,353,718 blocks of up to 288 wordpieces"
PASSAGES = "English Wikipedia, Dec 20 2018, 21,015,324 passages of 100 words"
ARTICLES = "English Wikipedia, Dec 21 2016, 5,075,182 articles"
DUMP_UNCHECKED = "English Wikipedia, dump not checked"

KARPUKHIN = "Karpukhin et al. 2020, Table 4"
IZACARD = "Izacard and Grave 2021"
LEE = f"Lee et al. 2019, as in {KARPUKHIN}"
ASAI = f"Asai et al. 2020, as in {KARPUKHIN}"
CHEN = f"Chen et al. 2017, Table 6, as in {IZACARD}"


SQUAD = Suite(
    key="squad",
    title="SQuAD 1.1 (open)",
    about=(
        "Questions that paid workers wrote while they saw a paragraph of Wikipedia, each answered with a span of it "
        "(Rajpurkar et al. 2016), asked here without the paragraph (Chen et al. 2017). Source: "
        "github.com/rajpurkar/SQuAD-explorer. Licence: CC BY-SA 4.0."
    ),
    splits={
        "train": Split(file="train-v1.1.json.xz", questions=87_599),
        "dev-a": Split(file="dev-a-v1.1.json.xz", questions=3_482),
        "dev": Split(file="dev-v1.1.json", questions=10_570),
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
    published=(
        Published(system="BM25 + BERT", em=33.2, source=LEE, corpus=BLOCKS, split=TEST),
        Published(system="DrQA", em=29.8, source=CHEN, corpus=ARTICLES, split=TEST),
        Published(system="PathRetriever", em=56.5, source=ASAI, corpus=DUMP_UNCHECKED, split=TEST),
        Published(system="ORQA", em=20.2, source=LEE, corpus=BLOCKS, split=TEST),
        Published(system="BM25 + DPR's reader", em=38.1, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="DPR, trained on SQuAD", em=29.8, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="DPR, several data sets", em=24.1, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="BM25 + DPR, trained on SQuAD", em=36.7, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="BM25 + DPR, several data sets", em=35.8, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(
            system="FiD base", em=53.4, source=IZACARD, corpus=f"{DUMP_UNCHECKED}, passages of 100 words", split=TEST
        ),
        Published(
            system="FiD large", em=56.7, source=IZACARD, corpus=f"{DUMP_UNCHECKED}, passages of 100 words", split=TEST
        ),
    ),
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
