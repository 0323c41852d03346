"""Training examples of a dual encoder: questions with positive passages and hard negatives.

The positives of a question are its gold passages, if possible as the passages of the corpus that contain them. Without
gold passages, the positive is the best hit of BM25 that contains an answer (DPR, Karpukhin et al. 2020, section 4.2).
Hard negatives are the best hits of BM25 without an answer (section 3.2). A trained retriever adds its own best hits
without an answer (ANCE, Xiong et al. 2021; also in DPR's later release).
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
"""Number of words in an n-gram for ``measure_overlap``."""
OVERLAP_WITH_ANSWER, OVERLAP_WITHOUT_ANSWER = 0.2, 0.5
"""Minimum overlaps at which a relevant hit counts as a gold passage, for questions with and without answers.
With the overlap ``OVERLAP_WITH_ANSWER`` or more, a passage is relevant to a question without answers."""


@dataclass(frozen=True)
class RetrievalExample:
    """Question with its positive passages and hard negatives."""

    question: Question
    """Question with answers, gold passages, or both."""
    regex: bool
    """True if the answers are regular expressions."""
    positives: tuple[int | str, ...]
    """Rows of the corpus, or texts of gold passages that are not in the corpus."""
    negatives: tuple[Rows, ...]
    """Rows of the hard negatives of BM25, and of a trained retriever if it was also searched; each best first."""
    known: Rows
    """Rows of all passages known to be relevant, which are never negatives of this question."""


def make_example(
    question: Question,
    regex: bool,
    hits: list[Hit],
    gold_hits: dict[str, list[Hit]],
    *,
    pool: int,
    keep_texts: bool = True,
) -> RetrievalExample | None:
    """Make the example of a question from its hits; return None if it has no positive.

    Args:
        question: the question, with answers, with gold passages, or with both.
        regex: True if the answers are regular expressions.
        hits: hits for the question, best first.
        gold_hits: for the text of each gold passage, the hits of a search with this text.
        pool: largest number of negatives.
        keep_texts: True to use a gold passage that is not in the corpus as a positive; False to ignore this passage.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
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
    """Return the row of a gold passage, or its text if it is not in the corpus.

    A hit is the gold passage if it has the same words, contains these words, or is relevant and overlaps enough.
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
    """Return True if a passage is relevant to a question.

    A passage with an answer is relevant. For a question without answers, a passage is relevant if its overlap with a
    gold passage is ``OVERLAP_WITH_ANSWER`` or more (``measure_overlap``).

    Args:
        passage: passage to judge.
        question: question with answers or gold passages.
        regex: True if the answers are regular expressions.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
    """
    if question.answers:
        with name_slow_question([question]):
            return has_answer(passage.text, question.answers, regex=regex)
    text = split_words(passage.text)
    return any(measure_overlap(split_words(gold), text) >= OVERLAP_WITH_ANSWER for gold in list_gold_passages(question))


def measure_overlap(one: list[str], other: list[str]) -> float:
    """Return the share of the n-grams of the shorter text that the other text contains.

    Args:
        one: words of a text.
        other: words of another text.
    """
    ngrams = [{tuple(text[start : start + NGRAM]) for start in range(len(text) - NGRAM + 1)} for text in (one, other)]
    return len(ngrams[0] & ngrams[1]) / max(1, min(map(len, ngrams)))


def list_gold_passages(question: Question) -> list[str]:
    """Return the texts of a question's gold passages that are not blank."""
    return [gold for gold in question.passages if gold.strip()]


def list_titled_gold_passages(question: Question) -> list[tuple[str, str]]:
    """Return the title, empty if unknown, and the text of each gold passage that is not blank."""
    titles = question.titles or ("",) * len(question.passages)
    return [(title, text) for title, text in zip(titles, question.passages, strict=True) if text.strip()]


def exclude_rows(hits: list[Hit], known: set[int]) -> list[int]:
    """Return the rows of hits in their order, without ``known`` rows.

    Args:
        hits: hits of a question.
        known: rows to leave out.
    """
    return [hit.passage.id for hit in hits if hit.passage.id not in known]


def _join(text: list[str]) -> str:
    return f" {' '.join(text)} "


def to_rows(rows: Sequence[int]) -> Rows:
    """Return row numbers as an int64 array, which needs less memory than a list."""
    return np.array(rows, np.int64)
