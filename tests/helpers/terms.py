"""Small indexes of terms, and their BM25 scores by the formula."""

import math
from pathlib import Path

from ragqa.retrieval.bm25 import BM25
from tests.helpers.passages import PassageList


def build_and_open(folder: Path, engine: str, texts: list[str], titles: list[str] | None = None) -> BM25:
    """Build an index of the texts and open it."""
    BM25.build(PassageList(texts, titles), folder / "terms", engine=engine)
    return BM25.open(folder / "terms", engine=engine)


def score_by_formula(texts: list[list[str]], question: list[str], *, k1: float, b: float) -> dict[int, float]:
    """Return the BM25 score of each text with a term of the question, as Lucene computes it since version 8.

    Without the factor k1 + 1 of Robertson and Zaragoza (2009), which is the same for all passages.
    """
    average = sum(map(len, texts)) / len(texts)
    scores: dict[int, float] = {}
    for term in question:
        having = sum(term in text for text in texts)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for row, text in enumerate(texts):
            if count := text.count(term):
                norm = count + k1 * (1 - b + b * len(text) / average)
                scores[row] = scores.get(row, 0) + idf * count / norm
    return scores
