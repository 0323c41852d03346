"""Make questions by rule about sampled passages of an index."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np

from ragqa.corpus.store import PassageStore
from ragqa.matching.sentences import find_sentences
from ragqa.pretraining.salient import RuleTagger
from ragqa.progress import SILENT, Progress
from ragqa.risk_control.cloze import drop_words, make_record_questions, make_sentence_questions
from ragqa.text import normalize_answer
from ragqa.types import Passage, Question

T = TypeVar("T")

DROP_RATE = 0.4
"""Probability that ``drop_words`` leaves a word out of a question.

With all words, the passage is easier to find than for people's questions. This rate makes confidences similar: over the
demo, 5 % of right answers have a confidence below 0.37 with this rate, below 0.61 with half of it, and below 0.26 to
0.45 for people's questions.
"""
SAMPLE_FACTOR = 20
"""Number of passages that are sampled for each question to make."""
_MAX_DOCUMENTS, _MAX_SHARE = 2, 0.01
"""Maximum number and share of sampled documents that contain an answer; the larger limit counts."""


def make_corpus_questions(
    passages: PassageStore, count: int, *, seed: int = 0, progress: Progress = SILENT
) -> list[Question]:
    """Make questions about random passages of an index.

    Documents take turns. No passage gets a second question before each sampled passage had a turn.

    Args:
        passages: passages of the index.
        count: maximum number of questions.
        seed: seed of the sample; equal seeds give equal questions.
        progress: receiver of the number of questions.

    Returns:
        At most ``count`` different questions, each with its answers and the id of its document.
    """
    rng = np.random.default_rng(seed)
    sample = _sample_passages(passages, SAMPLE_FACTOR * count, rng)
    tagger = RuleTagger((passage.title for passage in sample), (passage.text for passage in sample))
    rarity = _Rarity(sample)
    by_passage = [_iter_questions(passage, tagger, rng) for passage in sample]
    questions: dict[str, Question] = {}
    with progress.step("making questions", count, "questions") as step:
        for question in _take_turns(by_passage):
            if rarity.is_rare(question.answers[0]):
                questions.setdefault(question.text, question)
            step.advance_to(len(questions))
            if len(questions) == count:
                break
    return list(questions.values())


def _take_turns(groups: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first value of each group, then the second value of each group, and so on."""
    waiting = [iter(group) for group in groups]
    while waiting:
        unfinished = []
        for group in waiting:
            for value in islice(group, 1):
                unfinished.append(group)
                yield value
        waiting = unfinished


def _sample_passages(passages: PassageStore, count: int, rng: np.random.Generator) -> list[Passage]:
    """Return at most ``count`` random passages, ordered so that documents take turns."""
    ranks = rng.choice(passages.live_count, min(count, passages.live_count), replace=False)
    by_document: dict[tuple[str, str], list[Passage]] = {}
    for passage in passages.get(passages.get_live_rows(ranks).tolist()):
        by_document.setdefault((passage.path, passage.document), []).append(passage)
    return list(_take_turns(by_document.values()))


def _iter_questions(passage: Passage, tagger: RuleTagger, rng: np.random.Generator) -> Iterator[Question]:
    """Yield the questions about a passage in random order; its sentences take turns."""
    for record in _shuffle(make_record_questions(passage.text), rng):
        yield Question(record.text, record.answers, documents=(passage.document,))
    sentences = [passage.text[start:end] for start, end, _ in find_sentences(passage.text, 0)]
    by_sentence = [_shuffle(make_sentence_questions(sentence, tagger), rng) for sentence in sentences]
    for cloze in _take_turns(_shuffle(by_sentence, rng)):
        yield Question(drop_words(cloze.text, rng, DROP_RATE), cloze.answers, documents=(passage.document,))


def _shuffle(values: Iterable[T], rng: np.random.Generator) -> list[T]:
    ordered = list(values)
    return [ordered[number] for number in rng.permutation(len(ordered))]


class _Rarity:
    """Test for answers that only few documents of a sample contain."""

    def __init__(self, sample: list[Passage]) -> None:
        texts: dict[tuple[str, str], list[str]] = {}
        for passage in sample:
            texts.setdefault((passage.path, passage.document), []).append(normalize_answer(passage.text))
        self._texts = [f" {' '.join(parts)} " for parts in texts.values()]
        self._limit = max(_MAX_DOCUMENTS, _MAX_SHARE * len(self._texts))

    def is_rare(self, answer: str) -> bool:
        """Return True if only few documents of the sample contain the answer.

        Few are at most ``_MAX_DOCUMENTS`` documents, or at most the share ``_MAX_SHARE`` of them. An answer without
        words is not rare.
        """
        normalized = normalize_answer(answer)
        return bool(normalized) and sum(f" {normalized} " in text for text in self._texts) <= self._limit
