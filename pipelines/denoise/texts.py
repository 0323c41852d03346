"""Corrupted texts, from which a seq2seq model learns to restore the original.

Tokenizer and model determine the special ids around a text (``Frame``) and the ids that replace missing parts
(``Marks``).

Legend: B texts of a batch, T tokens of a target.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor

from pipelines.common.masked_text import draw_sentences
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.matching.sentences import find_sentences
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
"""Number of texts in a row that are too short to corrupt, after which training stops."""
_SENTINELS = re.compile(r"▁?<extra_id_(\d+)>"), re.compile(r"\[unused(\d+)\]")
"""Patterns of sentinels in the vocabularies of T5 and of BERT."""

Pair = tuple[list[int], list[int]]
"""Ids of the encoder's input and of the decoder's target, without special ids around them."""
Corruption = Callable[[Sequence[Sequence[int]], np.random.Generator], Pair | None]
"""Function from the ids of a text's sentences and a random generator to a pair; None for a text too short."""


@dataclass(frozen=True)
class Frame:
    """Special ids around the encoder's input and around the decoder's target."""

    read: Pair
    """Ids before and after the input."""
    written: Pair
    """Ids before and after the target."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, start: int, end: int, pad: int) -> "Frame":
        """Return the ids that a tokenizer puts around a text.

        Args:
            tokenizer: tokenizer of transformers. If it adds no special ids, the input gets ``start`` and ``end``, but
                no ``start`` that equals ``end`` or ``pad`` (T5).
            start: id with which the decoder starts; it is not part of the target.
            end: id that ends the target.
            pad: padding id.
        """
        alone, whole = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
        first = next(place for place in range(len(whole) + 1) if whole[place : place + len(alone)] == alone)
        before, after = whole[:first], whole[first + len(alone) :]
        if not before and not after:
            before, after = [start] if start not in (end, pad) else [], [end]
        return cls((before, after), ([id for id in before if id != start], [end]))

    @property
    def room(self) -> int:
        """Number of ids to reserve beside a text: special ids, and the last sentinel of a target."""
        return max(len(before) + len(after) for before, after in (self.read, self.written)) + 1


@dataclass(frozen=True)
class Marks:
    """Ids that replace missing parts of a text and occur in no text."""

    sentinels: list[int]
    """Ids that replace spans, in the order in which they are used."""
    mask: int | None
    """Id that replaces each span in infilling; None if there is no free id."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, rows: int) -> "Marks":
        """Return the marks of a tokenizer and a model.

        Sentinels are the pieces ``<extra_id_N>``, sorted by N. If the vocabulary has none, they are the pieces
        ``[unusedN]``; if it has none of these, the ids without a piece. The mask is the piece ``[MASK]`` or ``<mask>``;
        without both, the first sentinel.

        Args:
            tokenizer: tokenizer of transformers.
            rows: number of the model's embeddings.
        """
        vocabulary = tokenizer.get_vocab()
        ids_by_rule = [
            {int(m[1]): id for piece, id in vocabulary.items() if (m := rule.fullmatch(piece))} for rule in _SENTINELS
        ]
        free = dict(enumerate(sorted(set(range(rows)) - set(vocabulary.values()))))
        ids_by_number = next((some for some in ids_by_rule if some), free)
        sentinels = [ids_by_number[number] for number in sorted(ids_by_number)]
        masks = (vocabulary[name] for name in ("[MASK]", "<mask>") if name in vocabulary)
        return cls(sentinels, next(masks, sentinels[0] if sentinels else None))


def make_corruption(
    objective: str, marks: Marks, *, room: int, rate: float | None, mean: float, is_permuted: bool, source: object
) -> Corruption:
    """Return the function that corrupts a text.

    Args:
        objective: ``spans`` (T5) or ``infilling`` (BART).
        marks: ids that replace the missing parts.
        room: largest length of a text in tokens, without its frame.
        rate: share of the tokens that are missing; None for the share in the paper.
        mean: mean length of a span in tokens.
        is_permuted: True to put the sentences into random order (infilling).
        source: directory of the model, for error messages.

    Raises:
        BadInput: the vocabulary has too few sentinels, or no mask.
    """
    options = {"mean": mean} if rate is None else {"mean": mean, "rate": rate}

    def corrupt_by_spans(sentences: Sequence[Sequence[int]], rng: np.random.Generator) -> Pair | None:
        ids = list(chain.from_iterable(sentences))
        spans = sample_t5_spans(len(ids), rng, **options)
        return corrupt_spans(ids, spans, marks.sentinels) if spans else None

    def corrupt_by_infilling(sentences: Sequence[Sequence[int]], rng: np.random.Generator) -> Pair | None:
        ids = list(chain.from_iterable(sentences))
        before = permute_sentences(sentences, rng) if is_permuted else ids
        assert marks.mask is not None
        read = infill_spans(before, sample_bart_spans(len(ids), rng, **options), marks.mask)
        return (read[:room], ids) if ids else None  # masks of empty spans can make the input longer than the text

    if objective == "infilling":
        if marks.mask is None:
            raise BadInput(
                f"{source} has no mask, and no id without a meaning: raise vocab_size in its config.json by one"
            )
        return corrupt_by_infilling
    needed = count_t5_spans(room, **options)[1] + 1
    if len(marks.sentinels) < needed:
        raise BadInput(
            f"{source} has {len(marks.sentinels)} ids for sentinels (<extra_id_0>, [unused0] or ids without a piece), "
            f"and texts of {room} tokens need {needed}: lower --max-text, raise vocab_size or choose "
            "--objective infilling"
        )
    return corrupt_by_spans


@dataclass(frozen=True)
class DenoisingBatch:
    """Batch of corrupted texts and their targets."""

    x: Inputs
    """Corrupted texts."""
    labels_BT: Tensor
    """Ids of the targets, padded with ``IGNORED``."""

    def to(self, device: str) -> "DenoisingBatch":
        """Return a copy of the batch on ``device``."""
        return DenoisingBatch(self.x.to(device), self.labels_BT.to(device))


class DenoisedTexts:
    """Batches of corrupted texts, indexed by step; seed and step determine a batch."""

    def __init__(
        self,
        store: PassageStore,
        pieces: Callable[[Sequence[str]], list[list[int]]],
        corrupt: Corruption,
        frame: Frame,
        *,
        batch: int,
        room: int,
        seed: int,
        has_sentences: bool = False,
    ) -> None:
        """Prepare to corrupt texts from the passages of ``store``.

        Args:
            store: passages.
            pieces: function from texts to their token ids.
            corrupt: function that corrupts a text.
            frame: special ids around a text.
            batch: texts per step.
            room: largest length of a text in tokens, without its frame. A text is one or more consecutive sentences of
                a passage.
            seed: seed of all random numbers.
            has_sentences: True to pass the sentences of a text to ``corrupt``; False to pass the text as one sentence.

        Raises:
            BadInput: there are no passages.
        """
        if not store.live_count:
            raise BadInput("the index has no passages to learn from")
        self._store, self._pieces, self._corrupt, self._frame = store, pieces, corrupt, frame
        self._batch, self._room, self._seed, self._has_sentences = batch, room, seed, has_sentences

    def __getitem__(self, step: int) -> DenoisingBatch:
        """Return this process's share of the batch of a step.

        Raises:
            BadInput: too many texts in a row are too short, or the processes cannot share the batch evenly.
        """
        rngs = [np.random.default_rng([self._seed, step, n]) for n in parallel.take_share(list(range(self._batch)))]
        pairs: list[Pair | None] = [None] * len(rngs)
        for _ in range(_TRIES):
            if not (missing := [place for place, pair in enumerate(pairs) if pair is None]):
                return self._collate([pair for pair in pairs if pair is not None])
            for place, pair in zip(missing, self._draw_pairs([rngs[place] for place in missing]), strict=True):
                pairs[place] = pair
        raise BadInput(f"{_TRIES} passages in a row are too short to leave out a part of them")

    def _draw_pairs(self, rngs: list[np.random.Generator]) -> list[Pair | None]:
        rows = self._store.get_live_rows([int(rng.integers(self._store.live_count)) for rng in rngs])
        texts = [self._draw_text(self._store[row].text, rng) for row, rng in zip(rows.tolist(), rngs, strict=True)]
        ids = iter(self._pieces(list(chain.from_iterable(texts))))
        return [
            self._corrupt(truncate_sentences([next(ids) for _ in text], self._room), rng)
            for text, rng in zip(texts, rngs, strict=True)
        ]

    def _draw_text(self, text: str, rng: np.random.Generator) -> list[str]:
        start, end = draw_sentences(text, rng, self._room)
        return split_sentences(text[start:end]) if self._has_sentences else [text[start:end]]

    def _collate(self, pairs: list[Pair]) -> DenoisingBatch:
        (before, after), (first, last) = self._frame.read, self._frame.written
        written = pad_rows([[*first, *target, *last] for _, target in pairs])
        labels = written.ids_NL.masked_fill(written.mask_NL == 0, IGNORED)
        return DenoisingBatch(pad_rows([[*before, *read, *after] for read, _ in pairs]), labels)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences; each sentence includes the white space before it."""
    ends = [end for _, end, _ in find_sentences(text, 0)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def truncate_sentences(sentences: Sequence[Sequence[int]], room: int) -> list[Sequence[int]]:
    """Return the first tokens of a text, divided into sentences.

    Args:
        sentences: token ids of each sentence.
        room: largest number of tokens in all sentences together.
    """
    truncated = []
    for sentence in sentences:
        if room > 0 and len(sentence):
            truncated.append(sentence[:room])
        room -= len(sentence)
    return truncated
