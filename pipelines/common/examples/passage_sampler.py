"""Sampling of the passages that a question is read in: some that hold an answer, and some that hold none.

Gold passages are whole paragraphs. Passages found by an index are its blocks, most of which begin and end within a
sentence. If the former were always right and the latter always wrong, a reader would learn their form. So right and
wrong passages come in both forms equally often: a gold passage also as its block that holds the answer, and wrong
passages also as paragraphs that are gold to other questions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.common.examples.data_sets import TrainingSet
from pipelines.common.examples.negatives import list_titled_gold_passages, to_rows
from ragqa import artefacts
from ragqa.corpus.blocks import Splitter, make_splitter, make_word_splitter
from ragqa.corpus.store import PassageStore
from ragqa.metrics import has_answer
from ragqa.retrieval.base import Rows
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Question

TitledText = tuple[str, str]
"""Title and text of a passage."""


@dataclass(frozen=True)
class MinedPassages:
    """Rows of the passages that an index found for a question, best first."""

    positives: Rows
    """Passages that hold an answer and are no part of a gold passage."""
    negatives: Rows
    """Passages that hold no answer and are no part of a gold passage that words it differently ("1950s" for "1950")."""


NO_PASSAGES = MinedPassages(to_rows([]), to_rows([]))


@dataclass(frozen=True, kw_only=True)
class PassageMix:
    """Numbers and shares of the passages that a question is read in."""

    positives: int
    """Passages with an answer for a question that has gold passages: those first, then mined ones."""
    distant: int
    """Passages with an answer for a question that has no gold passage."""
    negatives: float
    """Mean number of passages without an answer."""
    hard: float
    """Share of the negatives that are mined or of the same article; the others are random."""
    whole: float
    """Share of whole paragraphs among the passages, right and wrong, of a question with gold passages."""
    untitled: float
    """Share of the passages that are read without their title."""


def load_splitter(index: Path | None, tokenizer: TextTokenizer) -> Splitter:
    """Return the splitter that made the blocks of an index, or 100 words without an index.

    Raises:
        ArtefactError, DamagedArtefact: ``index`` is no index, or not whole.
    """
    if index is None:
        return make_word_splitter()
    config = artefacts.read_manifest(index, "index").config
    return make_splitter(config["blocks"], config["block_size"], tokenizer)


class _GoldPassages:
    """The different gold passages of the questions of a file, also by article."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.texts = list(dict.fromkeys(gold for question in questions for gold in list_titled_gold_passages(question)))
        self.by_article: dict[str, list[TitledText]] = {}
        for gold in self.texts:
            self.by_article.setdefault(gold[0], []).append(gold)


class PassageSampler:
    """Draws the passages that questions are read in; the questions of all sets are numbered through."""

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        mined: Sequence[MinedPassages],
        store: PassageStore | None,
        split: Splitter,
        mix: PassageMix,
    ) -> None:
        """Prepare the questions of several sets.

        Args:
            sets: training questions.
            mined: passages that an index found for the questions of all sets, in their order; empty without an index.
            store: the passages of that index.
            split: splitter that cuts paragraphs into blocks like those of the index.
            mix: numbers and shares of the passages.
        """
        self.questions = [(question, each.file.regex) for each in sets for question in each.questions]
        """Each question, and whether its answers are regular expressions."""
        self._mined = mined or [NO_PASSAGES] * len(self.questions)
        self._golds = [list_titled_gold_passages(question) for question, _ in self.questions]
        self._files = [_GoldPassages(each.questions) for each in sets]
        self._file_of = np.repeat(np.arange(len(sets)), [len(each.questions) for each in sets])
        self._store, self._split, self._mix = store, split, mix

    def sample(self, number: int, rng: np.random.Generator) -> tuple[list[TitledText], list[TitledText]]:
        """Draw passages with an answer, a gold one first if there is one, and passages without an answer."""
        positives, negatives = self._sample_positives(number, rng), self._sample_negatives(number, rng)
        return self._drop_titles(positives, rng), self._drop_titles(negatives, rng)

    def estimate_length(self, number: int) -> int:
        """Return the characters of the passage that a question is most likely read in."""
        if self._golds[number]:
            return len(self._golds[number][0][1])
        rows = self._mined[number].positives
        return len(self._load(int(rows[0]))[1]) if len(rows) else 0

    def holds_answer(self, text: str, number: int) -> bool:
        """Tell whether a text holds an answer of a question, by the rule of mining."""
        question, regex = self.questions[number]
        return has_answer(text, question.answers, regex=regex)

    def _sample_positives(self, number: int, rng: np.random.Generator) -> list[TitledText]:
        golds, rows, mix = self._golds[number], self._mined[number].positives, self._mix
        chosen = [golds[at] for at in rng.permutation(len(golds))[: mix.positives]]
        chosen = [gold if rng.random() < mix.whole else self._cut_block(gold, number, rng) for gold in chosen]
        missing = (mix.positives if golds else mix.distant) - len(chosen)
        return chosen + [self._load(int(rows[rank])) for rank in sample_ranks(len(rows), missing, rng)]

    def _cut_block(self, gold: TitledText, number: int, rng: np.random.Generator) -> TitledText:
        """Return a block of a gold passage that holds an answer, or the whole passage if none does."""
        blocks = [block for block in self._cut_blocks(gold) if self.holds_answer(block[1], number)]
        return blocks[rng.integers(len(blocks))] if blocks else gold

    def _cut_blocks(self, passage: TitledText) -> list[TitledText]:
        title, text = passage
        return [(title, text[start:end]) for start, end in self._split(text, 0)]

    def _sample_negatives(self, number: int, rng: np.random.Generator) -> list[TitledText]:
        mix = self._mix
        count = int(mix.negatives) + int(rng.random() < mix.negatives % 1)
        same_article, mined = self._iter_same_article(number, rng), self._iter_mined(number, rng)
        negatives = []
        for _ in range(count):
            is_hard = rng.random() < mix.hard
            is_whole = bool(self._golds[number]) and rng.random() < mix.whole
            passage = next(same_article if is_whole else mined, None) if is_hard else None
            if passage is None:
                passage = self._sample_any(number, rng, is_whole=is_whole)
                if passage in self._golds[number] or self.holds_answer(passage[1], number):
                    continue
            negatives.append(passage)
        return negatives

    def _iter_same_article(self, number: int, rng: np.random.Generator) -> Iterator[TitledText]:
        """Yield the other gold passages of the question's articles that hold no answer, in random order."""
        own, by_article = self._golds[number], self._files[self._file_of[number]].by_article
        titles = dict.fromkeys(title for title, _ in own if title)
        others = [gold for title in titles for gold in by_article[title] if gold not in own]
        for at in rng.permutation(len(others)):
            if not self.holds_answer(others[at][1], number):
                yield others[at]

    def _iter_mined(self, number: int, rng: np.random.Generator) -> Iterator[TitledText]:
        """Yield the mined passages without an answer, in random order."""
        yield from (self._load(int(row)) for row in rng.permutation(self._mined[number].negatives))

    def _sample_any(self, number: int, rng: np.random.Generator, *, is_whole: bool) -> TitledText:
        """Draw any paragraph of the question's file, or any block of the index or, without one, of such a paragraph."""
        if self._store is not None and not is_whole:
            return self._load(int(self._store.get_live_rows(rng.integers(self._store.live_count))))
        texts = self._files[self._file_of[number]].texts
        paragraph = texts[rng.integers(len(texts))]
        if is_whole:
            return paragraph
        blocks = self._cut_blocks(paragraph)
        return blocks[rng.integers(len(blocks))]

    def _load(self, row: int) -> TitledText:
        assert self._store is not None
        passage = self._store[row]
        return passage.title, passage.text

    def _drop_titles(self, passages: list[TitledText], rng: np.random.Generator) -> list[TitledText]:
        return [("" if rng.random() < self._mix.untitled else title, text) for title, text in passages]


def sample_ranks(count: int, wanted: int, rng: np.random.Generator) -> list[int]:
    """Draw up to ``wanted`` of ``count`` ranks without replacement, with weights 1, 1/2, 1/3, etc."""
    if min(count, wanted) <= 0:
        return []
    weights = 1 / np.arange(1, count + 1)
    ranks: list[int] = rng.choice(count, min(count, wanted), replace=False, p=weights / weights.sum()).tolist()
    return ranks
