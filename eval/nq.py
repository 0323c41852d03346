"""Natural Questions, open: what people asked Google, answered with a few words of Wikipedia.

Kwiatkowski et al. 2019, in the open form of Lee et al. 2019: the questions whose short answer has at most five
tokens, without the page that they were answered from. The open form's own dev set is everybody's test set; the dev
set is cut from train.

Splits: ``train`` (4,997 questions) and ``dev`` (8,757, the papers' dev set), both from the original train split;
``test`` (3,610, NQ-open's dev file) and ``test-a`` (1,800 of them). Metric: exact match with the best of the gold
answers, after Unicode NFD and SQuAD's normalisation.

    python -m eval.nq --pipeline DIR --data DIR
"""

from eval.suite import Hub, Published, Split, Suite, main

TEST = "test, 3,610 questions"
BLOCKS = "English Wikipedia, Dec 20 2018, 13,353,718 blocks of up to 288 wordpieces"
PASSAGES = "English Wikipedia, Dec 20 2018, 21,015,324 passages of 100 words"
DUMP_UNCHECKED = "English Wikipedia, dump not checked"
NO_CORPUS = "none (closed book)"

GUU = "Guu et al. 2020, Table 1"
KARPUKHIN = "Karpukhin et al. 2020, Table 4"
LEWIS = "Lewis et al. 2020, Table 1"
IZACARD = "Izacard and Grave 2021"
LEE = f"Lee et al. 2019, as in {KARPUKHIN}"
ROBERTS = f"Roberts et al. 2020, as in {GUU}"
ROBERTS_SSM = f"Roberts et al. 2020, as in {LEWIS}"
HARD_EM = f"Min et al. 2019a, as in {KARPUKHIN}"
MIN = f"Min et al. 2019b, as in {GUU}"
MIN_LATER = f"Min et al. 2019b, as in {KARPUKHIN}"
ASAI = f"Asai et al. 2020, as in {KARPUKHIN}"


NQ = Suite(
    key="nq",
    title="Natural Questions (open)",
    about=(
        "Questions that people typed into Google, with short answers that annotators marked on a Wikipedia page "
        "(Kwiatkowski et al. 2019), kept where the answer has at most five tokens (NQ-open, Lee et al. 2019). "
        "Source: github.com/google-research-datasets/natural-questions, nq_open. Licence: CC BY-SA 3.0."
    ),
    splits={
        "train": Split(file="train.jsonl", questions=4_997),
        "dev": Split(file="dev.jsonl", questions=8_757),
        "test-a": Split(file="test-a.jsonl", questions=1_800),
        "test": Split(file="test.jsonl", questions=3_610),
    },
    default_split="test-a",
    hub=Hub(
        name="google-research-datasets/nq_open",
        revision="5dd9790a83002ad084ddeb7c420dc716852c6f28",
        question="question",
        answers="answer",
        splits={"train": ("train", 87_925), "test": ("validation", 3_610)},
    ),
    answer_type="short spans of at most five tokens",
    published=(
        Published(system="BM25 + BERT", em=26.5, source=LEE, corpus=BLOCKS, split=TEST),
        Published(system="T5-11B, closed book", em=34.5, source=ROBERTS, corpus=NO_CORPUS, split=TEST),
        Published(system="T5-11B + SSM, closed book", em=36.6, source=ROBERTS_SSM, corpus=NO_CORPUS, split=TEST),
        Published(system="HardEM", em=28.1, source=HARD_EM, corpus=DUMP_UNCHECKED, split=TEST),
        Published(system="GraphRetriever, first figures", em=31.8, source=MIN, corpus=DUMP_UNCHECKED, split=TEST),
        Published(system="GraphRetriever, later figures", em=34.5, source=MIN_LATER, corpus=DUMP_UNCHECKED, split=TEST),
        Published(system="PathRetriever", em=32.6, source=ASAI, corpus=DUMP_UNCHECKED, split=TEST),
        Published(system="ORQA", em=33.3, source=LEE, corpus=BLOCKS, split=TEST),
        Published(system="REALM, X = Wikipedia", em=39.2, source=GUU, corpus=BLOCKS, split=TEST),
        Published(system="REALM, X = CC-News", em=40.4, source=GUU, corpus=BLOCKS, split=TEST),
        Published(system="BM25 + DPR's reader", em=32.6, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="DPR, trained on NQ", em=41.5, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="DPR, several data sets", em=41.5, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="BM25 + DPR, several data sets", em=38.8, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="RAG-Token", em=44.1, source=LEWIS, corpus=PASSAGES, split=TEST),
        Published(system="RAG-Sequence", em=44.5, source=LEWIS, corpus=PASSAGES, split=TEST),
        Published(system="FiD base", em=48.2, source=IZACARD, corpus=PASSAGES, split=TEST),
        Published(system="FiD large", em=51.4, source=IZACARD, corpus=PASSAGES, split=TEST),
    ),
    caution=(
        "test-a is a part of the papers' 3,610 test questions (and not EfficientQA's dev set, also 1,800), train a "
        "part of their 79,168. all-MiniLM-L6-v2 was trained on pairs from NQ's train split, which dev was cut from: "
        "what starts from it is not zero-shot here. Test questions often have several answers (43 % of test-a), dev "
        "questions seldom (10 %), so dev is harder by the score: ORQA has 31.3 on dev, 33.3 on test. ORQA and REALM "
        "score with Unicode NFD, DPR and FiD without: the two differ on accents."
    ),
)

if __name__ == "__main__":
    main(NQ)
