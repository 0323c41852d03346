"""Texts with something to guess: what masked language models are pretrained on, with passages or without.

Legend: B texts of a batch, L tokens, M masked positions of the text that has most.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipelines.common.config import MASKINGS, MaskingConfig
from pipelines.common.tokenized_passages import Blocks
from ragqa.corpus.blocks import find_sentences
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.inputs import Inputs, pad_rows
from ragqa.objectives import IGNORED
from ragqa.pretraining import masking
from ragqa.pretraining.salient import RuleTagger, SpacyTagger, Tagger
from ragqa.runtime.tokens import Pieces, TextTokenizer
from ragqa.training import parallel

_SAMPLE = 10_000
"""Passages from which the tagger learns what is written in lower case."""
_TRIES = 1000
"""Texts without anything salient in a row, after which the corpus is taken to have none."""

Chooses = Callable[[str, Pieces, np.random.Generator], masking.Positions]
"""Positions to mask in a text."""


@dataclass(frozen=True)
class Text:
    """A text with something masked."""

    row: int
    """Of the passage that it was taken from."""
    ids: list[int]
    """As the model reads it, without [CLS] and [SEP]."""
    positions: list[int]
    labels: list[int]
    """What stood there."""
    place: tuple[int, int] = (0, 0)
    """First and last character in its passage."""

    @property
    def whole(self) -> list[int]:
        """As it was before."""
        found = self.ids.copy()
        for position, label in zip(self.positions, self.labels, strict=True):
            found[position] = label
        return found


@dataclass(frozen=True)
class MaskedBatch:
    """Texts [CLS] x [SEP] with labels."""

    texts: list[Text]
    x: Inputs
    positions_BM: Tensor
    """In x; 0 pads."""
    labels_BM: Tensor
    """IGNORED pads."""

    def to(self, device: str) -> "MaskedBatch":
        """The same on another device."""
        return MaskedBatch(self.texts, self.x.to(device), self.positions_BM.to(device), self.labels_BM.to(device))


def named_tagger(name: str, titles: Iterable[str], texts: Iterable[str]) -> Tagger:
    """The tagger ``rule``, which knows these titles and texts, or that of spaCy's model in ``spacy:MODEL``."""
    kind, _, model = name.partition(":")
    if kind == "spacy" and model:
        return SpacyTagger(model)
    if name != "rule":
        raise BadInput(f"tagger {name}: rule or spacy:MODEL is needed")
    return RuleTagger(titles, texts)


def chooser(kind: str, tagger: Tagger | None, *, rate: float, count: int) -> Chooses:
    """How positions are chosen: one of MASKINGS; ``rate`` of the wordpieces, or ``count`` salient spans."""
    if kind == "salient":
        assert tagger is not None

        def salient(text: str, pieces: Pieces, rng: np.random.Generator) -> masking.Positions:
            found = [(span.start, span.end) for span in tagger.spans(text) if span.end <= pieces.offsets[-1][1]]
            return masking.sample_salient_spans(pieces.offsets, found, rng, count)

        return salient
    by_words = {"spans": masking.sample_spans, "words": masking.sample_whole_words}
    if kind in by_words:
        return lambda text, pieces, rng: by_words[kind](pieces.words, rng, rate)
    if kind == "uniform":
        return lambda text, pieces, rng: masking.sample_wordpieces(len(pieces.ids), rng, rate)
    raise BadInput(f"masking {kind}: choose one of {', '.join(MASKINGS)}")


def masked_texts(
    config: MaskingConfig, blocks: Blocks, finds: Tagger | None, *, of: Path | None = None
) -> "MaskedTexts":
    """The texts X, masked: of the passages themselves, or of those in the index directory ``of``.

    ``finds`` finds salient spans in place of the tagger that ``config`` names.
    """
    if finds is None and config.masking == "salient":
        finds = named_tagger(config.tagger, titles(blocks.store), sampled(blocks.store))
    return MaskedTexts(
        blocks.store if of is None else PassageStore.open(of / "passages"),
        blocks.tokenizer,
        chooser(config.masking, finds, rate=config.rate, count=config.spans),
        batch=config.batch,
        max_text=config.max_text,
        seed=config.seed,
        masks_only=config.masking == "salient",
        together=config.masking == "spans",
    )


def titles(store: PassageStore) -> set[str]:
    """Of the documents: names that a tagger may know."""
    return {passage.title for passages in store.iter_batches() for passage in passages if passage.title}


def sampled(store: PassageStore) -> list[str]:
    """Texts of some passages, from all over: what the corpus writes in lower case."""
    ranks = np.unique(np.linspace(0, store.live_count - 1, min(store.live_count, _SAMPLE)).astype(int))
    return [passage.text for passage in store.get(store.live_rows(ranks).tolist())]


class MaskedTexts:
    """Batches of masked texts: that of a step is a pure function of (seed, step)."""

    def __init__(
        self,
        store: PassageStore,
        tokenizer: TextTokenizer,
        chooses: Chooses,
        *,
        batch: int,
        max_text: int,
        seed: int,
        masks_only: bool,
        together: bool = False,
    ) -> None:
        """From the passages of ``store``.

        Args:
            store: where the texts are.
            tokenizer: of the model.
            chooses: what to mask.
            batch: texts a step.
            max_text: wordpieces of a text, [CLS] and [SEP] included: a stretch of sentences of its passage.
            seed: of all that is random.
            masks_only: nothing but masks stands in place of what is guessed; else BERT's 80, 10, 10 %.
            together: these are drawn once for positions that follow each other, as SpanBERT does for a span.
        """
        self._store, self._tokenizer, self._chooses = store, tokenizer, chooses
        self._batch, self._room, self._seed = batch, max_text - 2, seed
        self._shares = {"random_rate": 0.0, "keep_rate": 0.0} if masks_only else {}
        self._together = together
        self._others = np.asarray(tokenizer.ordinary_ids)  # once: they are some tens of thousands

    def __getitem__(self, step: int) -> MaskedBatch:
        """This process's share of the batch of a step."""
        rng = np.random.default_rng([self._seed, step])
        found = self._texts(rng)
        return self.collate(parallel.take_share([next(found) for _ in range(self._batch)]))

    def _texts(self, rng: np.random.Generator) -> Iterator[Text]:
        vain = 0
        while vain < _TRIES:
            row = int(self._store.live_rows(rng.integers(self._store.live_count)))
            text = self.masked(row, self._store[row].text, rng)
            vain = 0 if text else vain + 1
            if text:
                yield text
        raise BadInput(f"{_TRIES} texts in a row have nothing to mask: choose another masking")

    def masked(self, row: int, text: str, rng: np.random.Generator) -> Text | None:
        """A stretch of ``text`` with something masked; None where there is nothing."""
        start, end = stretch(text, rng, self._room)
        pieces = cut(self._tokenizer.tokenize(text[start:end]), self._room)
        if not pieces.ids:
            return None
        positions = self._chooses(text[start:end], pieces, rng)
        if not len(positions):
            return None
        mask = self._tokenizer.mask_id
        ids = masking.corrupt(
            pieces.ids, positions, rng, mask=mask, vocabulary=self._others, per_run=self._together, **self._shares
        )
        return Text(row, ids, positions.tolist(), [pieces.ids[at] for at in positions], (start, end))

    def collate(self, texts: list[Text]) -> MaskedBatch:
        """Texts as a batch."""
        first, last = self._tokenizer.special_ids
        width = max(len(text.positions) for text in texts)
        positions = torch.zeros(len(texts), width, dtype=torch.long)
        labels = torch.full((len(texts), width), IGNORED)
        for row, text in enumerate(texts):
            positions[row, : len(text.positions)] = torch.tensor(text.positions) + 1
            labels[row, : len(text.labels)] = torch.tensor(text.labels)
        return MaskedBatch(texts, pad_rows([[first, *text.ids, last] for text in texts]), positions, labels)


def stretch(text: str, rng: np.random.Generator, room: int) -> tuple[int, int]:
    """First and last character of some sentences of ``text`` that follow each other, up to about ``room`` wordpieces.

    A wordpiece is taken to have four characters: what is too long is cut afterwards.
    """
    sentences = [(start, end) for start, end, _ in find_sentences(text, 0)]
    if not sentences:
        return 0, 0
    first = last = int(rng.integers(len(sentences)))
    while last + 1 < len(sentences) and sentences[last + 1][1] - sentences[first][0] < 4 * room:
        last += 1
    while first and sentences[last][1] - sentences[first - 1][0] < 4 * room:
        first -= 1
    return sentences[first][0], sentences[last][1]


def cut(pieces: Pieces, room: int) -> Pieces:
    """The first ``room`` wordpieces."""
    return Pieces(pieces.ids[:room], pieces.offsets[:room], pieces.words[:room])
