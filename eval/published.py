"""Exact match that papers report on the test sets of the suites, with their corpora."""

from dataclasses import dataclass

BLOCKS = "English Wikipedia, Dec 20 2018, 13,353,718 blocks of up to 288 wordpieces"
PASSAGES = "English Wikipedia, Dec 20 2018, 21,015,324 passages of 100 words"
ARTICLES = "English Wikipedia, Dec 21 2016, 5,075,182 articles"
DUMP_UNCHECKED = "English Wikipedia, dump not checked"
NO_CORPUS = "none (closed book)"

GUU = "Guu et al. 2020, Table 1"
KARPUKHIN = "Karpukhin et al. 2020, Table 4"
LEWIS = "Lewis et al. 2020, Table 1"
IZACARD = "Izacard and Grave 2021"
LEE = f"Lee et al. 2019, as in {KARPUKHIN}"
ROBERTS = f"Roberts et al. 2020, as in {GUU}"
ROBERTS_SSM = f"Roberts et al. 2020, as in {LEWIS}"
CHEN = f"Chen et al. 2017, Table 6, as in {GUU}"
CHEN_SQUAD = f"Chen et al. 2017, Table 6, as in {IZACARD}"
HARD_EM = f"Min et al. 2019a, as in {KARPUKHIN}"
MIN = f"Min et al. 2019b, as in {GUU}"
MIN_LATER = f"Min et al. 2019b, as in {KARPUKHIN}"
ASAI = f"Asai et al. 2020, as in {KARPUKHIN}"

TEST_SETS = {
    "nq": "test, 3,610 questions",
    "webq": "test, 2,032 questions",
    "curatedtrec": "test, 694 questions",
    "squad": "SQuAD 1.1 dev as test, 10,570 questions",
}
"""Test set of each suite, in the order of the figures in ``_TABLE``."""
_OTHER_TEST_SETS = {
    ("curatedtrec", LEWIS): "test, 635 questions by the paper's Table 7 (which also says 635 for train)",
}

# System, source, corpus, and exact match in percent on each test set; None if the paper has no figure.
_TABLE: tuple[tuple[str, str, str, tuple[float | None, ...]], ...] = (
    ("BM25 + BERT", LEE, BLOCKS, (26.5, 17.7, 21.3, 33.2)),
    ("T5-11B, closed book", ROBERTS, NO_CORPUS, (34.5, 37.4, None, None)),
    ("T5-11B + SSM, closed book", ROBERTS_SSM, NO_CORPUS, (36.6, 44.7, None, None)),
    ("DrQA", CHEN, ARTICLES, (None, 20.7, 25.7, None)),
    ("DrQA", CHEN_SQUAD, ARTICLES, (None, None, None, 29.8)),
    ("HardEM", HARD_EM, DUMP_UNCHECKED, (28.1, None, None, None)),
    ("GraphRetriever, first figures", MIN, DUMP_UNCHECKED, (31.8, 31.6, None, None)),
    ("GraphRetriever, later figures", MIN_LATER, DUMP_UNCHECKED, (34.5, 36.4, None, None)),
    ("PathRetriever", ASAI, DUMP_UNCHECKED, (32.6, None, None, 56.5)),
    ("ORQA", LEE, BLOCKS, (33.3, 36.4, 30.1, 20.2)),
    ("REALM, X = Wikipedia", GUU, BLOCKS, (39.2, 40.2, 46.8, None)),
    ("REALM, X = CC-News", GUU, BLOCKS, (40.4, 40.7, 42.9, None)),
    ("BM25 + DPR's reader", KARPUKHIN, PASSAGES, (32.6, 29.9, 24.9, 38.1)),
    ("DPR, trained on NQ", KARPUKHIN, PASSAGES, (41.5, None, None, None)),
    ("DPR, trained on WebQuestions", KARPUKHIN, PASSAGES, (None, 34.6, None, None)),
    ("DPR, trained on CuratedTREC", KARPUKHIN, PASSAGES, (None, None, 25.9, None)),
    ("DPR, trained on SQuAD", KARPUKHIN, PASSAGES, (None, None, None, 29.8)),
    ("DPR, several data sets", KARPUKHIN, PASSAGES, (41.5, 42.4, 49.4, 24.1)),
    ("BM25 + DPR, trained on SQuAD", KARPUKHIN, PASSAGES, (None, None, None, 36.7)),
    ("BM25 + DPR, several data sets", KARPUKHIN, PASSAGES, (38.8, 41.1, 50.6, 35.8)),
    ("RAG-Token", LEWIS, PASSAGES, (44.1, 45.5, 50.0, None)),
    ("RAG-Sequence", LEWIS, PASSAGES, (44.5, 45.2, 52.2, None)),
    ("FiD base", IZACARD, PASSAGES, (48.2, None, None, None)),
    ("FiD large", IZACARD, PASSAGES, (51.4, None, None, None)),
    ("FiD base", IZACARD, f"{DUMP_UNCHECKED}, passages of 100 words", (None, None, None, 53.4)),
    ("FiD large", IZACARD, f"{DUMP_UNCHECKED}, passages of 100 words", (None, None, None, 56.7)),
)


@dataclass(frozen=True)
class Published:
    """Exact match of a system in a paper, on the corpus and split of the paper."""

    system: str
    em: float
    """Exact match in percent."""
    source: str
    """Paper and table."""
    corpus: str
    split: str
    """Split and its number of questions."""


def list_published(suite: str) -> tuple[Published, ...]:
    """Return the published scores of a suite, one of the keys of ``TEST_SETS``."""
    column = list(TEST_SETS).index(suite)
    return tuple(
        Published(system, em, source, corpus, _OTHER_TEST_SETS.get((suite, source), TEST_SETS[suite]))
        for system, source, corpus, figures in _TABLE
        if (em := figures[column]) is not None
    )
