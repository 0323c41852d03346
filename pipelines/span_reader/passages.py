"""What a question is read beside in training: passages that hold an answer, and passages that hold none.

Gold passages are whole paragraphs, what an index finds are its blocks, most of which begin and end within a sentence.
Were the former always right and the latter always wrong, a reader would learn to tell their form. So both come in both
forms, as often: a gold passage also as that of its own blocks which holds the answer, wrong passages also as paragraphs
that are gold to other questions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.common.data_sets import TrainingSet
from pipelines.common.negatives import list_titled_gold_passages
from pipelines.span_reader.mining import NOTHING, Mined
from ragqa import artefacts
from ragqa.corpus.blocks import Splitter, make_splitter, make_word_splitter
from ragqa.corpus.store import PassageStore
from ragqa.metrics import has_answer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Question

Text = tuple[str, str]
"""Title and text of a passage."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a question is read beside."""

    positives: int
    """Passages that hold an answer, of a question that has gold ones: these first, then those that were found."""
    distant: int
    """The same of a question that has none."""
    negatives: float
    """Passages that hold none, on average."""
    hard: float
    """Share of these that are near the question: found for it, or of its article; the others are any."""
    whole: float
    """Of a question that has gold passages: share of those it is read beside, right or wrong, that are paragraphs."""
    untitled: float
    """Share of the passages that are read without their title."""


def splitter_of(index: Path | None, tokenizer: TextTokenizer) -> Splitter:
    """What cut the documents of an index into blocks; 100 words where there is none. Raises as ``artefact.read``."""
    if index is None:
        return make_word_splitter()
    config = artefacts.read_manifest(index, "index").config
    return make_splitter(config["blocks"], config["block_size"], tokenizer)


class _Golds:
    """The different gold passages of the questions of a file."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.texts = list(dict.fromkeys(gold for question in questions for gold in list_titled_gold_passages(question)))
        self.of_article: dict[str, list[Text]] = {}
        for gold in self.texts:
            self.of_article.setdefault(gold[0], []).append(gold)


class Passages:
    """Draws what the questions of several sets are read beside; they are numbered through."""

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        mined: Sequence[Mined],
        store: PassageStore | None,
        split: Splitter,
        beside: Beside,
    ) -> None:
        """For the rest see ``ReaderBatches``; ``split`` cuts paragraphs as those of the index were cut."""
        self.asked = [(question, each.file.regex) for each in sets for question in each.questions]
        """Each question, and whether its answers are patterns."""
        self._mined = mined or [NOTHING] * len(self.asked)
        self._golds = [list_titled_gold_passages(question) for question, _ in self.asked]
        self._files = [_Golds(each.questions) for each in sets]
        self._file_of = np.repeat(np.arange(len(sets)), [len(each.questions) for each in sets])
        self._store, self._split, self._beside = store, split, beside

    def drawn(self, number: int, rng: np.random.Generator) -> tuple[list[Text], list[Text]]:
        """Passages that hold an answer, a gold one first if there is one, and passages that hold none."""
        right, wrong = self._right(number, rng), self._wrong(number, rng)
        return self._untitled(right, rng), self._untitled(wrong, rng)

    def length(self, number: int) -> int:
        """Characters of the passage that a question is probably read in."""
        if self._golds[number]:
            return len(self._golds[number][0][1])
        found = self._mined[number].positives
        return len(self._of_row(int(found[0]))[1]) if len(found) else 0

    def holds(self, text: str, number: int) -> bool:
        """Whether a text holds an answer of a question, by the rule by which passages are mined."""
        question, regex = self.asked[number]
        return has_answer(text, question.answers, regex=regex)

    def _right(self, number: int, rng: np.random.Generator) -> list[Text]:
        golds, found, wanted = self._golds[number], self._mined[number].positives, self._beside
        right = [golds[at] for at in rng.permutation(len(golds))[: wanted.positives]]
        right = [each if rng.random() < wanted.whole else self._block(each, number, rng) for each in right]
        more = (wanted.positives if golds else wanted.distant) - len(right)
        return right + [self._of_row(int(found[rank])) for rank in by_rank(len(found), more, rng)]

    def _block(self, gold: Text, number: int, rng: np.random.Generator) -> Text:
        """A block of a gold passage that holds an answer; the whole where none does."""
        blocks = [each for each in self._blocks(gold) if self.holds(each[1], number)]
        return blocks[rng.integers(len(blocks))] if blocks else gold

    def _blocks(self, passage: Text) -> list[Text]:
        title, text = passage
        return [(title, text[start:end]) for start, end in self._split(text, 0)]

    def _wrong(self, number: int, rng: np.random.Generator) -> list[Text]:
        wanted = self._beside
        count = int(wanted.negatives) + int(rng.random() < wanted.negatives % 1)
        article, found = self._of_article(number, rng), self._found(number, rng)
        wrong = []
        for _ in range(count):
            near = rng.random() < wanted.hard
            whole = bool(self._golds[number]) and rng.random() < wanted.whole
            chosen = next(article if whole else found, None) if near else None
            if chosen is None:
                chosen = self._any(number, rng, whole=whole)
                if chosen in self._golds[number] or self.holds(chosen[1], number):
                    continue
            wrong.append(chosen)
        return wrong

    def _of_article(self, number: int, rng: np.random.Generator) -> Iterator[Text]:
        """The other gold passages of the question's articles that hold no answer, in any order."""
        own, articles = self._golds[number], self._files[self._file_of[number]].of_article
        titles = dict.fromkeys(title for title, _ in own if title)
        others = [each for title in titles for each in articles[title] if each not in own]
        for at in rng.permutation(len(others)):
            if not self.holds(others[at][1], number):
                yield others[at]

    def _found(self, number: int, rng: np.random.Generator) -> Iterator[Text]:
        """What the index found that holds no answer, in any order."""
        yield from (self._of_row(int(row)) for row in rng.permutation(self._mined[number].negatives))

    def _any(self, number: int, rng: np.random.Generator, *, whole: bool) -> Text:
        """A paragraph of the question's file at random, or a block: of the index, or else of such a paragraph."""
        if self._store is not None and not whole:
            return self._of_row(int(self._store.live_rows(rng.integers(self._store.live_count))))
        texts = self._files[self._file_of[number]].texts
        chosen = texts[rng.integers(len(texts))]
        if whole:
            return chosen
        blocks = self._blocks(chosen)
        return blocks[rng.integers(len(blocks))]

    def _of_row(self, row: int) -> Text:
        assert self._store is not None
        passage = self._store[row]
        return passage.title, passage.text

    def _untitled(self, passages: list[Text], rng: np.random.Generator) -> list[Text]:
        return [("" if rng.random() < self._beside.untitled else title, text) for title, text in passages]


def by_rank(count: int, wanted: int, rng: np.random.Generator) -> list[int]:
    """``wanted`` ranks of ``count``, or all, drawn without replacement by weights 1, 1/2, 1/3 …"""
    if min(count, wanted) <= 0:
        return []
    weights = 1 / np.arange(1, count + 1)
    ranks: list[int] = rng.choice(count, min(count, wanted), replace=False, p=weights / weights.sum()).tolist()
    return ranks
