"""Corrupted texts, of which a sequence-to-sequence model writes the missing parts or everything.

Which ids stand for what is found out from the tokenizer and the model: what stands around a text (``Frame``), and what
stands where something is missing (``Marks``).

Legend: B texts of a batch, L tokens that are read, T tokens that are written.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor

from pipelines.common.masked_text import draw_sentences
from ragqa.corpus.blocks import find_sentences
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.inputs import Inputs, pad_rows
from ragqa.objectives import IGNORED
from ragqa.pretraining.denoising import (
    corrupt_spans,
    count_t5_spans,
    infill_spans,
    permute_sentences,
    sample_bart_spans,
    sample_t5_spans,
)
from ragqa.training import parallel

_TRIES = 100
"""Passages with too little in them in a row, after which the corpus is taken to have no others."""
_SENTINELS = re.compile(r"▁?<extra_id_(\d+)>"), re.compile(r"\[unused(\d+)\]")

Pair = tuple[list[int], list[int]]
"""What is read and what is written, without what stands around them."""
Corrupts = Callable[[Sequence[Sequence[int]], np.random.Generator], Pair | None]
"""From the sentences of a text; None where it is too short."""


@dataclass(frozen=True)
class Frame:
    """What stands before and behind a text that is read, and one that is written."""

    read: Pair
    written: Pair

    @classmethod
    def of(cls, tokenizer: Any, start: int, end: int, pad: int) -> "Frame":
        """As the tokenizer has it; the decoder writes none of what it starts from, and ends with ``end``.

        A tokenizer that puts nothing around a text gets what the decoder starts and ends with, but for padding (T5).
        """
        alone, whole = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
        at = next(at for at in range(len(whole) + 1) if whole[at : at + len(alone)] == alone)
        before, after = whole[:at], whole[at + len(alone) :]
        if not before and not after:
            before, after = [start] if start not in (end, pad) else [], [end]
        return cls((before, after), ([each for each in before if each != start], [end]))

    @property
    def room(self) -> int:
        """Tokens that it takes up, with that which span corruption may add to a text."""
        return max(len(before) + len(after) for before, after in (self.read, self.written)) + 1


@dataclass(frozen=True)
class Marks:
    """Ids that stand for nothing in a text."""

    sentinels: list[int]
    """Of spans, in the order in which they are used."""
    mask: int | None
    """Of infilling."""

    @classmethod
    def of(cls, tokenizer: Any, rows: int) -> "Marks":
        """Those of a tokenizer, and of a model that has ``rows`` embeddings.

        Sentinels are ``<extra_id_0>``, … or else ``[unused0]``, … or else, rising, the ids that no piece has.
        The mask is the tokenizer's, or else the first of them.
        """
        vocabulary = tokenizer.get_vocab()
        named = [
            {int(m[1]): at for piece, at in vocabulary.items() if (m := rule.fullmatch(piece))} for rule in _SENTINELS
        ]
        free = dict(enumerate(sorted(set(range(rows)) - set(vocabulary.values()))))
        numbered = next((some for some in named if some), free)
        sentinels = [numbered[number] for number in sorted(numbered)]
        masks = (vocabulary[name] for name in ("[MASK]", "<mask>") if name in vocabulary)
        return cls(sentinels, next(masks, sentinels[0] if sentinels else None))


def corruption(
    objective: str, marks: Marks, *, room: int, rate: float | None, mean: float, permute: bool, of: object
) -> Corrupts:
    """Return the function that corrupts a text.

    Args:
        objective: spans (T5) or infilling (BART).
        marks: what stands where something is missing.
        room: tokens of the longest text.
        rate: share of the tokens that are missing; by default the papers'.
        mean: length of a span.
        permute: infilling of sentences in random order.
        of: the model, for the error.

    Raises:
        BadInput: the vocabulary has too few ids that stand for nothing else.
    """
    share = {} if rate is None else {"rate": rate}

    def spans(sentences: Sequence[Sequence[int]], rng: np.random.Generator) -> Pair | None:
        ids = list(chain.from_iterable(sentences))
        dropped = sample_t5_spans(len(ids), rng, mean=mean, **share)
        return corrupt_spans(ids, dropped, marks.sentinels) if dropped else None

    def infilling(sentences: Sequence[Sequence[int]], rng: np.random.Generator) -> Pair | None:
        ids = list(chain.from_iterable(sentences))
        before = permute_sentences(sentences, rng) if permute else ids
        assert marks.mask is not None
        read = infill_spans(before, sample_bart_spans(len(ids), rng, mean=mean, **share), marks.mask)
        return (read[:room], ids) if ids else None  # empty spans could make it longer than the text

    if objective == "infilling":
        if marks.mask is None:
            raise BadInput(f"{of} has no mask, and no id without a meaning: raise vocab_size in its config.json by one")
        return infilling
    needed = count_t5_spans(room, mean=mean, **share)[1] + 1
    if len(marks.sentinels) < needed:
        raise BadInput(
            f"{of} has {len(marks.sentinels)} ids for sentinels (<extra_id_0>, [unused0] or ids without a piece), and "
            f"texts of {room} tokens need {needed}: lower --max-text, raise vocab_size or choose --objective infilling"
        )
    return spans


@dataclass(frozen=True)
class DenoisingBatch:
    """Texts with something missing, and what is to be written of them."""

    x: Inputs
    labels_BT: Tensor
    """IGNORED pads."""

    def to(self, device: str) -> "DenoisingBatch":
        """Return the same batch on another device."""
        return DenoisingBatch(self.x.to(device), self.labels_BT.to(device))


class DenoisedTexts:
    """Batches of corrupted texts: each text of a step is a pure function of (seed, step, its number)."""

    def __init__(
        self,
        store: PassageStore,
        pieces: Callable[[Sequence[str]], list[list[int]]],
        corrupts: Corrupts,
        frame: Frame,
        *,
        batch: int,
        room: int,
        seed: int,
        sentences: bool = False,
    ) -> None:
        """From the passages of ``store``.

        Args:
            store: where the texts are.
            pieces: ids of texts, nothing around them.
            corrupts: what is done to a text.
            frame: what stands around it.
            batch: texts a step.
            room: tokens of a text without its frame: a stretch of sentences of its passage.
            seed: of all that is random.
            sentences: each by itself is given to ``corrupts``, not a text as a whole.
        """
        if not store.live_count:
            raise BadInput("the index has no passages to learn from")
        self._store, self._pieces, self._corrupts, self._frame = store, pieces, corrupts, frame
        self._batch, self._room, self._seed, self._sentences = batch, room, seed, sentences

    def __getitem__(self, step: int) -> DenoisingBatch:
        """Return this process's share of the batch of a step, without reading the others' texts."""
        numbers = parallel.take_share(list(range(self._batch)))
        rngs = [np.random.default_rng([self._seed, step, number]) for number in numbers]
        pairs: list[Pair | None] = [None] * len(rngs)
        for _ in range(_TRIES):
            if not (left := [at for at, pair in enumerate(pairs) if pair is None]):
                break
            for at, pair in zip(left, self._drawn([rngs[at] for at in left]), strict=True):
                pairs[at] = pair
        else:
            raise BadInput(f"{_TRIES} passages in a row have too little in them to leave something out")
        return self._collate([pair for pair in pairs if pair is not None])

    def _drawn(self, rngs: list[np.random.Generator]) -> list[Pair | None]:
        rows = self._store.live_rows([int(rng.integers(self._store.live_count)) for rng in rngs])
        texts = [self._text(self._store[row].text, rng) for row, rng in zip(rows.tolist(), rngs, strict=True)]
        ids = iter(self._pieces(list(chain.from_iterable(texts))))
        return [
            self._corrupts(cut([next(ids) for _ in text], self._room), rng)
            for text, rng in zip(texts, rngs, strict=True)
        ]

    def _text(self, text: str, rng: np.random.Generator) -> list[str]:
        start, end = draw_sentences(text, rng, self._room)
        return split(text[start:end]) if self._sentences else [text[start:end]]

    def _collate(self, pairs: list[Pair]) -> DenoisingBatch:
        (before, after), (first, last) = self._frame.read, self._frame.written
        written = pad_rows([[*first, *target, *last] for _, target in pairs])
        labels = written.ids_NL.masked_fill(written.mask_NL == 0, IGNORED)
        return DenoisingBatch(pad_rows([[*before, *read, *after] for read, _ in pairs]), labels)


def split(text: str) -> list[str]:
    """Sentences, each with the white space before it: so the pieces of all are those of the text."""
    ends = [end for _, end, _ in find_sentences(text, 0)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def cut(sentences: Sequence[Sequence[int]], room: int) -> list[Sequence[int]]:
    """As many of the first tokens as there is room for."""
    found = []
    for sentence in sentences:
        if room > 0 and len(sentence):
            found.append(sentence[:room])
        room -= len(sentence)
    return found
