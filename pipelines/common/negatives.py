"""Questions, the passages that answer them, and those that only look so: what a dual encoder is trained on.

A question's positive is its gold passage, as the corpus has it, or, where only answers are known, the best passage of
BM25 that holds one of them (DPR, Karpukhin et al. 2020, section 4.2). Its hard negatives are the passages without an
answer that BM25 ranks highest (section 3.2) and, once there is a retriever, those that it ranks highest itself (ANCE,
Xiong et al. 2021; DPR's later release).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragqa.metrics import has_answer
from ragqa.retrieval.base import Rows
from ragqa.text import words
from ragqa.types import Hit, Passage, Question

RUN = 3
"""Words of a run by which two texts are compared."""
LIKELY, SURE = 0.2, 0.5
"""Shares of those that two texts must have in common: where one holds an answer, and where no answer is known."""


@dataclass(frozen=True)
class Pair:
    """A question, what is right for it and what is not."""

    question: Question
    regex: bool
    positives: tuple[int | str, ...]
    """Rows of the corpus; a gold passage that it does not hold stands here itself."""
    negatives: tuple[Rows, ...]
    """By who found them, the highest-ranked first: BM25, then a retriever."""
    known: Rows
    """All rows that are known to be right: no negative of this question, whoever else they come with."""


def pair_of(
    question: Question, regex: bool, hits: list[Hit], near: dict[str, list[Hit]], *, pool: int, texts: bool = True
) -> Pair | None:
    """What the hits of a question make of it; None where none is right and no gold passage is known.

    ``near``: the hits of each gold passage, searched for as if it were a question; for the rest see ``mine``.
    """
    right = [hit.passage.id for hit in hits if is_right(hit.passage, question, regex)]
    golds = [_in_corpus(gold, question, regex, near[gold]) for gold in golds_of(question)]
    positives: Sequence[int | str] = [each for each in golds if texts or isinstance(each, int)]
    if question.answers:
        positives = positives or right[:1]
    if not positives:
        return None
    known = {*right, *(row for row in positives if isinstance(row, int))}
    negatives = as_rows(without(hits, known)[:pool])
    return Pair(question, regex, tuple(dict.fromkeys(positives)), (negatives,), as_rows(sorted(known)))


def _in_corpus(gold: str, question: Question, regex: bool, near: list[Hit]) -> int | str:
    """The row of a gold passage: of one that is equal, that holds it, or that shares most with it and holds an answer.

    The text itself where there is none, as when the corpus is of another year.
    """
    mine, texts = words(gold), [words(hit.passage.text) for hit in near]
    for fits in (lambda text: text == mine, lambda text: _joined(mine) in _joined(text)):
        for hit, text in zip(near, texts, strict=True):
            if fits(text):
                return hit.passage.id
    least = LIKELY if question.answers else SURE
    shares = [(overlap(mine, text), hit) for hit, text in zip(near, texts, strict=True)]
    for share, hit in sorted(shares, key=lambda pair: -pair[0]):
        if share >= least and is_right(hit.passage, question, regex):
            return hit.passage.id
    return gold


def is_right(passage: Passage, question: Question, regex: bool) -> bool:
    """Whether a passage holds an answer or, where none is known, shares much with a gold passage."""
    if question.answers:
        return has_answer(passage.text, question.answers, regex=regex)
    text = words(passage.text)
    return any(overlap(words(gold), text) >= LIKELY for gold in golds_of(question))


def overlap(one: list[str], other: list[str]) -> float:
    """Share of the shorter text's runs of three words that stand in the other."""
    runs = [{tuple(text[at : at + RUN]) for at in range(len(text) - RUN + 1)} for text in (one, other)]
    return len(runs[0] & runs[1]) / max(1, min(map(len, runs)))


def golds_of(question: Question) -> list[str]:
    """The gold passages of a question that are not empty."""
    return [gold for gold in question.passages if gold.strip()]


def titled_golds(question: Question) -> list[tuple[str, str]]:
    """Titles and texts of the same; a title that is not known is empty."""
    titles = question.titles or ("",) * len(question.passages)
    return [each for each in zip(titles, question.passages, strict=True) if each[1].strip()]


def without(hits: list[Hit], known: set[int]) -> list[int]:
    """Rows of the hits, in their order, that are not known to be right."""
    return [hit.passage.id for hit in hits if hit.passage.id not in known]


def _joined(text: list[str]) -> str:
    return f" {' '.join(text)} "


def as_rows(rows: Sequence[int]) -> Rows:
    """Rows as an array, which takes a tenth of the memory of a list."""
    return np.array(rows, np.int64)
