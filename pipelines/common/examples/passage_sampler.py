"""Sampling of passages with and without an answer, for the training of a span reader.

A gold passage is a whole paragraph. A passage of an index is a block, which often begins or ends within a sentence. A
reader must not learn that paragraphs are right and blocks are wrong. So some gold passages are cut to a block that
contains the answer, and some passages without an answer are gold passages of other questions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from pipelines.common.examples.data_sets import TrainingSet
from pipelines.common.examples.near_misses import NearMissMaker
from pipelines.common.examples.retrieval_examples import list_titled_gold_passages, to_rows
from ragqa import artefacts
from ragqa.corpus.splitter_limits import Splitter
from ragqa.corpus.splitters import make_splitter, make_word_splitter
from ragqa.corpus.store import PassageStore
from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import has_answer
from ragqa.retrieval.base import Rows
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.checks import report_together, require, require_non_negative, require_positive, require_share

TitledText = tuple[str, str]
"""Title and text of a passage."""


@dataclass(frozen=True)
class MinedPassages:
    """Rows of the passages that a retriever returns for a question, best first."""

    positives: Rows
    """Passages that contain an answer and are not part of a gold passage."""
    negatives: Rows
    """Passages without an answer that are not part of a gold passage without an answer.
    That gold passage probably has the answer in another form ("1950s" for "1950"), so its parts can have it, too."""


@dataclass(frozen=True)
class SampledPassages:
    """Question of a training step, with the passages to read."""

    text: str
    """Text of the question."""
    answers: Sequence[str]
    """Gold answers or patterns; empty for a question that became unanswerable."""
    positives: list[TitledText]
    """Passages with an answer, gold passages first."""
    negatives: list[TitledText]
    """Passages without an answer."""


@dataclass(frozen=True, kw_only=True)
class PassageMix:
    """Numbers and shares of the passages of a training question."""

    positives: int = 1
    """Largest number of passages with an answer for a question with gold passages, which are taken first."""
    distant: int = 3
    """Largest number of retrieved passages with an answer for a question without gold passages.
    A passage with a better rank is sampled more often."""
    negatives: float = 1.0
    """Mean number of negatives (passages without an answer) for a question."""
    hard: float = 0.8
    """Share of the negatives that are retrieved or come from the same article; the others are random."""
    whole: float = 0.5
    """Share of whole paragraphs among the passages of a question with gold passages; the others are blocks.
    It is the same for passages with and without an answer, so a passage's form does not show if it has an answer."""
    untitled: float = 0.1
    """Share of the passages that lose their title."""
    words: float = 0.0
    """Share of the blocks of gold passages that have 100 words; the others are cut as the index cuts them."""
    unanswerable: float = 0.0
    """Share of the questions that lose all passages with an answer.
    For questions without gold passages, ``near_misses`` is added to this share."""
    near_misses: float = 0.0
    """Share of near misses among the questions with gold passages; the passages do not answer a near miss."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        require_positive(self, "positives", "distant")
        require_non_negative(self, "negatives")
        require_share(self, "hard", "whole", "untitled", "words", "unanswerable", "near_misses")
        is_share = self.unanswerable + self.near_misses <= 1
        require(self, "near_misses", is_share, "at most 1 together with unanswerable")


def load_splitter(index: Path | None, tokenizer: TextTokenizer) -> Splitter:
    """Return the splitter that cut the documents of an index into blocks.

    Args:
        index: index directory; None gives blocks of 100 words.
        tokenizer: tokenizer for blocks that are measured in wordpieces.

    Raises:
        ArtefactError, DamagedArtefact: ``index`` is not an index, or is damaged.
    """
    if index is None:
        return make_word_splitter()
    config = artefacts.read_manifest(index, "index").config
    return make_splitter(config["blocks"], config["block_size"], tokenizer)


class PassageSampler:
    """Sampler of the passages of each training question.

    The questions of all training sets are numbered from 0, one set after the other.
    """

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        mined: Sequence[MinedPassages],
        store: PassageStore | None,
        split: Splitter,
        mix: PassageMix,
    ) -> None:
        """Prepare the questions of all training sets.

        Args:
            sets: training questions.
            mined: retrieved passages of each question, in the order of the questions; empty without an index.
            store: passages of the index; None without an index. Without an index, every question needs a gold passage.
            split: splitter that cuts paragraphs as the documents of the index were cut.
            mix: numbers and shares of the passages.
        """
        self.questions = [(question, data_set.file.regex) for data_set in sets for question in data_set.questions]
        """Each question, with True if its answers are regular expressions."""
        self._mined = mined or [MinedPassages(to_rows([]), to_rows([]))] * len(self.questions)
        self._golds = [list_titled_gold_passages(question) for question, _ in self.questions]
        self._paragraphs = [
            list(dict.fromkeys(gold for question in data_set.questions for gold in list_titled_gold_passages(question)))
            for data_set in sets
        ]
        self._by_article: dict[tuple[int, str], list[TitledText]] = {}
        for file, paragraphs in enumerate(self._paragraphs):
            for gold in paragraphs:
                self._by_article.setdefault((file, gold[0]), []).append(gold)
        self._file_of = np.repeat(np.arange(len(sets)), [len(data_set.questions) for data_set in sets])
        self._store, self._split, self._mix = store, split, mix
        self._split_words = make_word_splitter()
        self._near_misses = NearMissMaker() if mix.near_misses else None
        self._names: dict[tuple[int, str], list[str]] = {}
        self._questions_of: dict[tuple[int, str], list[str]] = {}
        for number, golds in enumerate(self._golds if mix.near_misses else []):
            for title in {title for title, _ in golds}:
                article = int(self._file_of[number]), title
                self._questions_of.setdefault(article, []).append(self.questions[number][0].text)

    def sample(self, number: int, rng: np.random.Generator) -> SampledPassages:
        """Sample the passages of a question, or make the question unanswerable.

        With the probability ``near_misses`` of the mix, a question with gold passages becomes a near miss. With the
        probability ``unanswerable``, the passages with an answer are left out. In both cases, its answers are empty.

        Args:
            number: number of the question.
            rng: random generator.

        Raises:
            SlowPattern: an answer is a pattern that takes too long.
        """
        question, _ = self.questions[number]
        text, answers = question.text, question.answers
        positives, negatives = self._sample_positives(number, rng), self._sample_negatives(number, rng)
        draw = rng.random() if self._mix.unanswerable or self._mix.near_misses else 1.0
        if self._near_misses and draw < self._mix.near_misses and self._golds[number]:
            changed = self._near_misses.make(text, positives[0][1], self._list_names(number), rng)
            if changed:
                text, answers, positives, negatives = changed, (), [], [*positives, *negatives]
        elif draw < self._mix.near_misses + self._mix.unanswerable:
            if not negatives:
                negatives = list(islice(self._iter_mined(number, rng), 1))
            if negatives:
                answers, positives = (), []
        return SampledPassages(text, answers, self._drop_titles(positives, rng), self._drop_titles(negatives, rng))

    def estimate_length(self, number: int) -> int:
        """Return the length in characters of a question's first gold passage or mined positive.

        A mined positive counts only without a gold passage. Without either, the result is 0.
        """
        if self._golds[number]:
            return len(self._golds[number][0][1])
        rows = self._mined[number].positives
        return len(self._load(int(rows[0]))[1]) if len(rows) else 0

    def holds_answer(self, text: str, number: int) -> bool:
        """Return True if a text contains an answer to a question (``metrics.has_answer``).

        Args:
            text: text to search.
            number: number of the question.

        Raises:
            SlowPattern: an answer is a pattern that takes too long.
        """
        question, regex = self.questions[number]
        with name_slow_question([question]):
            return has_answer(text, question.answers, regex=regex)

    def _sample_positives(self, number: int, rng: np.random.Generator) -> list[TitledText]:
        golds, rows, mix = self._golds[number], self._mined[number].positives, self._mix
        chosen = [golds[place] for place in rng.permutation(len(golds))[: mix.positives]]
        chosen = [gold if rng.random() < mix.whole else self._cut_block(gold, number, rng) for gold in chosen]
        missing = (mix.positives if golds else mix.distant) - len(chosen)
        return chosen + [self._load(int(rows[rank])) for rank in sample_ranks(len(rows), missing, rng)]

    def _cut_block(self, gold: TitledText, number: int, rng: np.random.Generator) -> TitledText:
        blocks = [block for block in self._cut_blocks(gold, rng) if self.holds_answer(block[1], number)]
        return blocks[rng.integers(len(blocks))] if blocks else gold

    def _cut_blocks(self, passage: TitledText, rng: np.random.Generator) -> list[TitledText]:
        title, text = passage
        split = self._split_words if self._mix.words and rng.random() < self._mix.words else self._split
        return [(title, text[start:end]) for start, end in split(text, 0)]

    def _list_names(self, number: int) -> list[str]:
        article = int(self._file_of[number]), self._golds[number][0][0]
        if article not in self._names:
            assert self._near_misses is not None
            self._names[article] = self._near_misses.find_names(self._questions_of[article])
        return self._names[article]

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
        golds, file = self._golds[number], int(self._file_of[number])
        titles = dict.fromkeys(title for title, _ in golds if title)
        others = [gold for title in titles for gold in self._by_article[file, title] if gold not in golds]
        for place in rng.permutation(len(others)):
            if not self.holds_answer(others[place][1], number):
                yield others[place]

    def _iter_mined(self, number: int, rng: np.random.Generator) -> Iterator[TitledText]:
        yield from (self._load(int(row)) for row in rng.permutation(self._mined[number].negatives))

    def _sample_any(self, number: int, rng: np.random.Generator, *, is_whole: bool) -> TitledText:
        if self._store is not None and not is_whole:
            return self._load(int(self._store.get_live_rows(rng.integers(self._store.live_count))))
        paragraphs = self._paragraphs[self._file_of[number]]
        passage = paragraphs[rng.integers(len(paragraphs))]
        if is_whole:
            return passage
        blocks = self._cut_blocks(passage, rng)
        return blocks[rng.integers(len(blocks))]

    def _load(self, row: int) -> TitledText:
        assert self._store is not None
        passage = self._store[row]
        return passage.context, passage.text

    def _drop_titles(self, passages: list[TitledText], rng: np.random.Generator) -> list[TitledText]:
        return [("" if rng.random() < self._mix.untitled else title, text) for title, text in passages]


def sample_ranks(count: int, size: int, rng: np.random.Generator) -> list[int]:
    """Sample different ranks, with a higher probability for low ranks.

    Args:
        count: number of ranks; they are from 0 to ``count`` - 1, and rank n has the weight 1 / (n + 1).
        size: number of ranks to sample; at most ``count`` are sampled.
        rng: random generator.
    """
    if min(count, size) <= 0:
        return []
    weights = 1 / np.arange(1, count + 1)
    ranks: list[int] = rng.choice(count, min(count, size), replace=False, p=weights / weights.sum()).tolist()
    return ranks
