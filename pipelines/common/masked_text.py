"""Batches of masked texts for masked language modelling.

Legend: B texts of a batch, L tokens, M masked positions of a text.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipelines.common.config import MASKINGS, MaskingConfig
from pipelines.common.tokenized_passages import TokenizedPassages
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.matching.sentences import find_sentences
from ragqa.models.inputs import Inputs, pad_rows
from ragqa.objectives import IGNORED
from ragqa.pretraining import masking
from ragqa.pretraining.salient import RuleTagger, SpacyTagger, Tagger
from ragqa.runtime.tokens import Pieces, TextTokenizer
from ragqa.training import parallel

NULL = -1
"""Row of the null passage, which is empty."""
_SAMPLE = 10_000
"""Number of passages from which the tagger learns common words."""
_TRIES = 1000
"""Number of texts in a row with nothing to mask after which training stops."""

ChoosePositions = Callable[[str, Pieces, np.random.Generator], masking.Positions]
"""Function from a text, its wordpieces and a random generator to the positions to mask."""


@dataclass(frozen=True)
class MaskedText:
    """Text with masked wordpieces."""

    row: int
    """Row of the text's passage in the corpus; ``NULL`` if this passage cannot be retrieved."""
    ids: list[int]
    """Wordpieces of the masked text, without [CLS] and [SEP]."""
    positions: list[int]
    """Positions in ``ids`` to predict."""
    labels: list[int]
    """Wordpieces at ``positions`` before masking."""
    characters: tuple[int, int] = (0, 0)
    """Start and end (exclusive) of the text in its passage, in characters."""

    @property
    def original_ids(self) -> list[int]:
        """Wordpieces of the text before masking."""
        ids = self.ids.copy()
        for position, label in zip(self.positions, self.labels, strict=True):
            ids[position] = label
        return ids


@dataclass(frozen=True)
class MaskedBatch:
    """Batch of masked texts as inputs [CLS] text [SEP], with their labels."""

    texts: list[MaskedText]
    """B texts."""
    x: Inputs
    """Token ids and mask of the inputs."""
    positions_BM: Tensor
    """Positions to predict in the inputs; 0 for padding."""
    labels_BM: Tensor
    """Wordpieces at ``positions_BM`` before masking; ``IGNORED`` for padding."""

    def to(self, device: str) -> "MaskedBatch":
        """Return a copy of the batch on ``device``."""
        return MaskedBatch(self.texts, self.x.to(device), self.positions_BM.to(device), self.labels_BM.to(device))


def load_tagger(name: str, titles: Iterable[str], texts: Iterable[str]) -> Tagger:
    """Return a tagger of salient spans.

    Args:
        name: rule, or spacy:MODEL.
        titles: titles of the corpus, which the tagger ``rule`` uses as names.
        texts: sample of the corpus, from which the tagger ``rule`` learns common words.

    Raises:
        BadInput: there is no tagger of this name, or the spaCy model is not installed.
        MissingExtra: spaCy is not installed.
    """
    kind, _, model = name.partition(":")
    if kind == "spacy" and model:
        return SpacyTagger(model)
    if name != "rule":
        raise BadInput(f"tagger {name}: rule or spacy:MODEL is needed")
    return RuleTagger(titles, texts)


def make_position_chooser(kind: str, tagger: Tagger | None, *, rate: float, count: int) -> ChoosePositions:
    """Return the function that chooses the positions to mask.

    Args:
        kind: unit of masking, one of ``MASKINGS``.
        tagger: tagger of salient spans; needed only if ``kind`` is salient.
        rate: share of the wordpieces to mask; ignored for salient spans.
        count: number of salient spans to mask.

    Raises:
        BadInput: there is no masking of this name.
    """
    if kind == "salient":
        assert tagger is not None

        def salient(text: str, pieces: Pieces, rng: np.random.Generator) -> masking.Positions:
            spans = [(span.start, span.end) for span in tagger.find_spans(text) if span.end <= pieces.offsets[-1][1]]
            return masking.sample_salient_spans(pieces.offsets, spans, rng, count)

        return salient
    by_words = {"spans": masking.sample_spans, "words": masking.sample_whole_words}
    if kind in by_words:
        return lambda text, pieces, rng: by_words[kind](pieces.words, rng, rate)
    if kind == "uniform":
        return lambda text, pieces, rng: masking.sample_wordpieces(len(pieces.ids), rng, rate)
    raise BadInput(f"masking {kind}: choose one of {', '.join(MASKINGS)}")


def open_masked_texts(
    config: MaskingConfig,
    passages: TokenizedPassages,
    tagger: Tagger | None,
    *,
    batch: int,
    seed: int,
    texts: Path | None = None,
    are_passages: bool = True,
) -> "MaskedTexts":
    """Open the batches of masked texts of a recipe.

    Args:
        config: settings of masking.
        passages: passages to mask, unless ``texts`` is given.
        tagger: tagger of salient spans; None loads the tagger that ``config`` names.
        batch: number of texts per step, over all processes.
        seed: seed of all random choices.
        texts: index directory of other passages to mask.
        are_passages: True if the masked passages can be retrieved.

    Raises:
        BadInput, MissingExtra: there is no masking of the configured name, or the tagger cannot be loaded.
        ArtefactError, DamagedArtefact: ``texts`` is not an index, or is damaged.
    """
    if tagger is None and config.masking == "salient":
        titles = {passage.title for batch in passages.store.iter_batches() for passage in batch if passage.title}
        tagger = load_tagger(config.tagger, titles, sample_texts(passages.store))
    return MaskedTexts(
        passages.store if texts is None else PassageStore.open(texts / "passages"),
        passages.tokenizer,
        make_position_chooser(config.masking, tagger, rate=config.rate, count=config.spans),
        batch=batch,
        max_text=config.max_text,
        seed=seed,
        only_masks=config.masking == "salient",
        in_spans=config.masking == "spans",
        are_passages=are_passages,
    )


def sample_texts(store: PassageStore) -> list[str]:
    """Return the texts of at most 10,000 passages, at equal distances in the corpus."""
    ranks = np.unique(np.linspace(0, store.live_count - 1, min(store.live_count, _SAMPLE)).astype(int))
    return [passage.text for passage in store.get(store.get_live_rows(ranks).tolist())]


class MaskedTexts:
    """Batches of masked texts, indexed by step; seed and step determine a batch."""

    def __init__(
        self,
        store: PassageStore,
        tokenizer: TextTokenizer,
        choose_positions: ChoosePositions,
        *,
        batch: int,
        max_text: int,
        seed: int,
        only_masks: bool,
        in_spans: bool = False,
        are_passages: bool = True,
    ) -> None:
        """Prepare to mask passages of a store.

        Args:
            store: passages.
            tokenizer: tokenizer of the model.
            choose_positions: function that chooses the positions to mask.
            batch: number of texts per step, over all processes.
            max_text: largest length of a text in wordpieces, including [CLS] and [SEP]. A text is one or more
                consecutive sentences of a passage.
            seed: seed of all random choices.
            only_masks: True to replace every chosen wordpiece by a mask. Otherwise, as in BERT, a mask replaces 80 %, a
                random wordpiece replaces 10 %, and 10 % stay.
            in_spans: True to give consecutive positions the same kind of replacement, as in SpanBERT.
            are_passages: True if the passages of ``store`` can be retrieved.
        """
        self._store, self._tokenizer, self._choose_positions = store, tokenizer, choose_positions
        self._batch, self._room, self._seed = batch, max_text - 2, seed
        self._shares = {"random_rate": 0.0, "keep_rate": 0.0} if only_masks else {}
        self._in_spans, self._are_passages = in_spans, are_passages
        self._others = np.asarray(tokenizer.ordinary_ids)  # once, because there are tens of thousands of ids

    def __getitem__(self, step: int) -> MaskedBatch:
        """Return this process's share of the batch of a step.

        Raises:
            BadInput: too many texts in a row have nothing to mask, or the processes cannot share the batch evenly.
        """
        rng = np.random.default_rng([self._seed, step])
        texts = self._draw_texts(rng)
        return self.collate(parallel.take_share([next(texts) for _ in range(self._batch)]))

    def _draw_texts(self, rng: np.random.Generator) -> Iterator[MaskedText]:
        failures = 0
        while failures < _TRIES:
            row = int(self._store.get_live_rows(rng.integers(self._store.live_count)))
            text = self.mask(row, self._store[row].text, rng)
            failures = 0 if text else failures + 1
            if text:
                yield text
        raise BadInput(f"{_TRIES} texts in a row have nothing to mask: choose another masking")

    def mask(self, row: int, text: str, rng: np.random.Generator) -> MaskedText | None:
        """Sample consecutive sentences of a passage and mask them.

        Args:
            row: row of the passage.
            text: text of the passage.
            rng: random generator.

        Returns:
            The masked sentences, or None if there is nothing to mask.
        """
        start, end = draw_sentences(text, rng, self._room)
        pieces = truncate(self._tokenizer.tokenize(text[start:end]), self._room)
        if not pieces.ids:
            return None
        positions = self._choose_positions(text[start:end], pieces, rng)
        if not len(positions):
            return None
        mask = self._tokenizer.mask_id
        ids = masking.corrupt_wordpieces(
            pieces.ids, positions, rng, mask=mask, vocabulary=self._others, per_run=self._in_spans, **self._shares
        )
        row = row if self._are_passages else NULL
        return MaskedText(row, ids, positions.tolist(), [pieces.ids[position] for position in positions], (start, end))

    def collate(self, texts: list[MaskedText]) -> MaskedBatch:
        """Return a batch of one or more masked texts."""
        first, last = self._tokenizer.special_ids
        width = max(len(text.positions) for text in texts)
        positions = torch.zeros(len(texts), width, dtype=torch.long)
        labels = torch.full((len(texts), width), IGNORED)
        for row, text in enumerate(texts):
            positions[row, : len(text.positions)] = torch.tensor(text.positions) + 1
            labels[row, : len(text.labels)] = torch.tensor(text.labels)
        return MaskedBatch(texts, pad_rows([[first, *text.ids, last] for text in texts]), positions, labels)


def draw_sentences(text: str, rng: np.random.Generator, room: int) -> tuple[int, int]:
    """Sample consecutive sentences of a passage; return their start and end in characters.

    Args:
        text: text of a passage.
        rng: random generator.
        room: largest length in wordpieces, estimated at four characters per wordpiece. The result can have more
            wordpieces, and a single sentence can be longer.

    Returns:
        Start and end (exclusive); 0 and 0 if the text has no sentences.
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


def truncate(pieces: Pieces, room: int) -> Pieces:
    """Return the first ``room`` wordpieces of a text."""
    return Pieces(pieces.ids[:room], pieces.offsets[:room], pieces.words[:room])
