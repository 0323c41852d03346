"""WebQuestions: what people began to ask Google, answered with entities of Freebase.

Berant et al. 2013. The questions were suggested by Google's completion, the answers were looked up in Freebase by
paid workers, so they are names of entities and often several.

Splits: ``train`` (3,777 of the original 3,778 questions); ``test`` (2,032) and ``test-a`` (1,057 of
them). Metric: exact match with the best of the gold answers, after Unicode NFD and SQuAD's normalisation.

    python -m eval.webq --pipeline DIR --data DIR
"""

from eval.suite import Hub, Published, Split, Suite, main

TEST = "test, 2,032 questions"
BLOCKS = "English Wikipedia, Dec 20 2018, 13,353,718 blocks of up to 288 wordpieces"
PASSAGES = "English Wikipedia, Dec 20 2018, 21,015,324 passages of 100 words"
ARTICLES = "English Wikipedia, Dec 21 2016, 5,075,182 articles"
DUMP_UNCHECKED = "English Wikipedia, dump not checked"
NO_CORPUS = "none (closed book)"

GUU = "Guu et al. 2020, Table 1"
KARPUKHIN = "Karpukhin et al. 2020, Table 4"
LEWIS = "Lewis et al. 2020, Table 1"
LEE = f"Lee et al. 2019, as in {KARPUKHIN}"
ROBERTS = f"Roberts et al. 2020, as in {GUU}"
ROBERTS_SSM = f"Roberts et al. 2020, as in {LEWIS}"
MIN = f"Min et al. 2019b, as in {GUU}"
MIN_LATER = f"Min et al. 2019b, as in {KARPUKHIN}"
CHEN = f"Chen et al. 2017, Table 6, as in {GUU}"


WEBQ = Suite(
    key="webq",
    title="WebQuestions",
    about=(
        "Questions that Google's completion suggested, answered from Freebase by paid workers (Berant et al. 2013). "
        "Source: nlp.stanford.edu/software/sempre, and github.com/brmson/dataset-factoid-webquestions. Licence: "
        "CC BY 4.0."
    ),
    splits={
        "train": Split(file="train.jsonl", questions=3_777),
        "test-a": Split(file="test-a.jsonl", questions=1_057),
        "test": Split(file="test.jsonl", questions=2_032),
    },
    default_split="test-a",
    hub=Hub(
        name="stanfordnlp/web_questions",
        revision="0e473cbe21d1e91ec18da343644498be6a3f5454",
        question="question",
        answers="answers",
        splits={"train": ("train", 3_778), "test": ("test", 2_032)},
    ),
    answer_type="names of Freebase entities, often several for a question, and dates",
    published=(
        Published(system="BM25 + BERT", em=17.7, source=LEE, corpus=BLOCKS, split=TEST),
        Published(system="T5-11B, closed book", em=37.4, source=ROBERTS, corpus=NO_CORPUS, split=TEST),
        Published(system="T5-11B + SSM, closed book", em=44.7, source=ROBERTS_SSM, corpus=NO_CORPUS, split=TEST),
        Published(system="DrQA", em=20.7, source=CHEN, corpus=ARTICLES, split=TEST),
        Published(system="GraphRetriever, first figures", em=31.6, source=MIN, corpus=DUMP_UNCHECKED, split=TEST),
        Published(system="GraphRetriever, later figures", em=36.4, source=MIN_LATER, corpus=DUMP_UNCHECKED, split=TEST),
        Published(system="ORQA", em=36.4, source=LEE, corpus=BLOCKS, split=TEST),
        Published(system="REALM, X = Wikipedia", em=40.2, source=GUU, corpus=BLOCKS, split=TEST),
        Published(system="REALM, X = CC-News", em=40.7, source=GUU, corpus=BLOCKS, split=TEST),
        Published(system="BM25 + DPR's reader", em=29.9, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="DPR, trained on WebQuestions", em=34.6, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="DPR, several data sets", em=42.4, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="BM25 + DPR, several data sets", em=41.1, source=KARPUKHIN, corpus=PASSAGES, split=TEST),
        Published(system="RAG-Token", em=45.5, source=LEWIS, corpus=PASSAGES, split=TEST),
        Published(system="RAG-Sequence", em=45.2, source=LEWIS, corpus=PASSAGES, split=TEST),
    ),
    caution=(
        "test-a is a part of the papers' 2,032 test questions; the papers split train into 3,417 and a dev set of 361. "
        "Any one of a question's answers counts, where the data set's own metric wants the whole set. Answers are "
        "Freebase's names (Jamaican Creole English Language): a right answer in Wikipedia's words is often wrong here, "
        "and DPR's released code leaves out the normalisation of entities that its authors say is needed. "
        "all-MiniLM-L6-v2 does not name WebQuestions among its training data, but it does name NQ, TriviaQA, GooAQ and "
        "PAQ, questions of the same kind."
    ),
)

if __name__ == "__main__":
    main(WEBQ)
