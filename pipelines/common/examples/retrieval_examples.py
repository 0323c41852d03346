"""Training examples of a dual encoder: questions with positive passages and hard negatives.

The positive of a question is its gold passage in the form of the corpus. If only answers are known, it is the best
passage of BM25 that holds one of them (DPR, Karpukhin et al. 2020, section 4.2). Its hard negatives are the passages
without an answer that BM25 ranks highest (section 3.2). A trained retriever adds those that it ranks highest itself
(ANCE, Xiong et al. 2021; DPR's later release).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import has_answer
from ragqa.retrieval.base import Rows
from ragqa.text import split_words
from ragqa.types import Hit, Passage, Question

NGRAM = 3
"""Length in words of the n-grams by which two texts are compared."""
OVERLAP_WITH_ANSWER, OVERLAP_WITHOUT_ANSWER = 0.2, 0.5
"""Least overlap of a passage with a gold text, if it holds an answer, and if none is known."""


@dataclass(frozen=True)
class RetrievalExample:
    """Question with its positive passages and hard negatives."""

    question: Question
    regex: bool
    """True if the answers are regular expressions."""
    positives: tuple[int | str, ...]
    """Rows of the corpus, or the text of a gold passage that the corpus does not hold."""
    negatives: tuple[Rows, ...]
    """Rows of hard negatives, highest-ranked first: BM25's, then a trained retriever's."""
    known: Rows
    """All rows known to be relevant; none of them is used as a negative of this question."""


def make_example(
    question: Question,
    regex: bool,
    hits: list[Hit],
    gold_hits: dict[str, list[Hit]],
    *,
    pool: int,
    keep_texts: bool = True,
) -> RetrievalExample | None:
    """Return the example that the hits of a question give, or None if no positive is known.

    Args:
        question: the question, with answers, gold passages or both.
        regex: whether the answers are regular expressions.
        hits: hits for the question, best first.
        gold_hits: hits for each gold passage, with its text as the query.
        pool: largest number of negatives.
        keep_texts: whether a gold passage that the corpus does not hold is a positive itself.
    """
    relevant = [hit.passage.id for hit in hits if is_relevant(hit.passage, question, regex)]
    golds = [_find_in_corpus(gold, question, regex, gold_hits[gold]) for gold in list_gold_passages(question)]
    positives: Sequence[int | str] = [gold for gold in golds if keep_texts or isinstance(gold, int)]
    if question.answers:
        positives = positives or relevant[:1]
    if not positives:
        return None
    known = {*relevant, *(row for row in positives if isinstance(row, int))}
    negatives = to_rows(exclude_rows(hits, known)[:pool])
    return RetrievalExample(question, regex, tuple(dict.fromkeys(positives)), (negatives,), to_rows(sorted(known)))


def _find_in_corpus(gold: str, question: Question, regex: bool, hits: list[Hit]) -> int | str:
    """Return the row of a gold passage, or its text if the corpus lacks it.

    The corpus has the passage if a hit equals it, contains it, or overlaps with it and is relevant.
    """
    gold_words, texts = split_words(gold), [split_words(hit.passage.text) for hit in hits]
    equal = (hit.passage.id for hit, text in zip(hits, texts, strict=True) if text == gold_words)
    containing = (hit.passage.id for hit, text in zip(hits, texts, strict=True) if _join(gold_words) in _join(text))
    least = OVERLAP_WITH_ANSWER if question.answers else OVERLAP_WITHOUT_ANSWER
    overlaps = [(measure_overlap(gold_words, text), hit) for hit, text in zip(hits, texts, strict=True)]
    similar = (
        hit.passage.id
        for overlap, hit in sorted(overlaps, key=lambda pair: -pair[0])
        if overlap >= least and is_relevant(hit.passage, question, regex)
    )
    return next(chain(equal, containing, similar), gold)


def is_relevant(passage: Passage, question: Question, regex: bool) -> bool:
    """Tell whether a passage holds an answer or, without answers, resembles a gold passage."""
    if question.answers:
        with name_slow_question([question]):
            return has_answer(passage.text, question.answers, regex=regex)
    text = split_words(passage.text)
    return any(measure_overlap(split_words(gold), text) >= OVERLAP_WITH_ANSWER for gold in list_gold_passages(question))


def measure_overlap(one: list[str], other: list[str]) -> float:
    """Return the share of the shorter text's three-word n-grams that the other text contains."""
    ngrams = [{tuple(text[start : start + NGRAM]) for start in range(len(text) - NGRAM + 1)} for text in (one, other)]
    return len(ngrams[0] & ngrams[1]) / max(1, min(map(len, ngrams)))


def list_gold_passages(question: Question) -> list[str]:
    """Return the texts of the gold passages of a question that are not empty."""
    return [gold for gold in question.passages if gold.strip()]


def list_titled_gold_passages(question: Question) -> list[tuple[str, str]]:
    """Return (title, text) of the gold passages that are not empty; an unknown title is empty."""
    titles = question.titles or ("",) * len(question.passages)
    return [(title, text) for title, text in zip(titles, question.passages, strict=True) if text.strip()]


def exclude_rows(hits: list[Hit], known: set[int]) -> list[int]:
    """Return the rows of the hits, in their order, that are not known to be relevant."""
    return [hit.passage.id for hit in hits if hit.passage.id not in known]


def _join(text: list[str]) -> str:
    return f" {' '.join(text)} "


def to_rows(rows: Sequence[int]) -> Rows:
    """Return rows as an array, which takes a tenth of the memory of a list."""
    return np.array(rows, np.int64)
