"""What an extractive reader reads in training: the sequences of answering, and the spans that are right.

Legend: B questions, K passages that are read of each, N sequences, L tokens, P wordpieces of a passage, W longest
span in wordpieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipelines.common.gold_spans import GoldSpans, Place
from ragqa.models.inputs import of_like_length, padded
from ragqa.models.mlp_reader import MlpSpanReader
from ragqa.models.span_reader import IMPOSSIBLE, SpanReader, span_logits
from ragqa.reading.windows import Window, make_windows
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Passage

_WORTH = 8192
"""Tokens of padding that are worth a call of the reader of its own, on a GPU."""
_ROWS, _GRID = 8, 16
"""Rows that a CPU encodes together, and what their length is a multiple of: little padding, and what lies between the
layers fits its caches. All rows in as few calls as on a GPU took a fifth longer (2 cores of a Xeon with AMX)."""


@dataclass(frozen=True)
class Marked:
    """A window of a passage, and which of its spans are right."""

    window: Window
    spans: set[Place]


@dataclass(frozen=True)
class ToRead:
    """The passages of a batch of questions, each cut to what a reader reads at once."""

    ids_NL: Tensor
    mask_NL: Tensor
    types_NL: Tensor
    possible_NLW: Tensor
    """Spans that can be an answer; those of answering."""
    correct_NLW: Tensor
    """Spans among them that are a gold answer."""
    question_N: Tensor
    rank_N: Tensor
    """Place of the passage among those of its question."""

    def to(self, device: str) -> "ToRead":
        """The same on another device."""
        return ToRead(*(getattr(self, field.name).to(device) for field in fields(self)))

    @property
    def groups(self) -> list[tuple[Tensor, int]]:
        """Rows of like length, which are encoded together, and the length to which they are padded."""
        length_N = self.mask_NL.sum(-1)
        order_N = length_N.argsort(descending=True, stable=True)
        lengths = length_N[order_N].tolist()
        if self.mask_NL.device.type != "cpu":
            return [(order_N[begin:end], lengths[begin]) for begin, end in of_like_length(lengths, _WORTH)]
        padded_to = [min(-(-length // _GRID) * _GRID, self.mask_NL.shape[1]) for length in lengths[::_ROWS]]
        return list(zip(order_N.split(_ROWS), padded_to, strict=True))

    @property
    def tokens(self) -> int:
        """Wordpieces that go through the reader, padding included."""
        return sum(len(rows) * longest for rows, longest in self.groups)

    def by_question(self, values_N: Tensor, shape: tuple[int, ...], fill: float) -> Tensor:
        """``[B, K, …]``: rows of ``values_N`` at their question and rank; ``fill`` where a passage has no wordpiece."""
        whole = values_N.new_full(shape + values_N.shape[1:], fill)
        return whole.index_put((self.question_N, self.rank_N), values_N)


def marked(
    tokenizer: TextTokenizer, question: str, passages: Sequence[tuple[str, str]], gold: GoldSpans, max_tokens: int
) -> list[list[Marked]]:
    """The windows of each (title, text) passage of a question; of one without a wordpiece none."""
    found: list[list[Marked]] = [[] for _ in passages]
    for window in make_windows(tokenizer, question, list(passages), max_tokens):
        spans = gold.spans(window, passages[window.passage][1])
        # What the window before holds, too, is possible there alone.
        found[window.passage].append(Marked(window, {place for place in spans if place[1] >= window.overlap}))
    return found


def to_read(
    tokenizer: TextTokenizer,
    questions: Sequence[str],
    passages: Sequence[Sequence[Passage]],
    golds: Sequence[GoldSpans],
    *,
    max_tokens: int,
    width: int,
) -> ToRead:
    """The first window of every passage of every question that has a right span in one, and which spans those are.

    Other questions' spans teach nothing: their loss is 0 whatever a reader says (Lee et al. 2019, section 7.1), so they
    are not read; but where no question has any, the first one's are, that there is something to read.
    """
    found: list[tuple[int, Marked]] = []
    for number, (question, own, gold) in enumerate(zip(questions, passages, golds, strict=True)):
        texts = [(passage.title, passage.text) for passage in own]
        # Training reads only as far as the first window of a passage.
        found += [(number, parts[0]) for parts in marked(tokenizer, question, texts, gold, max_tokens) if parts]
    found = found or blank(tokenizer, questions[0], max_tokens)
    taught = {number for number, each in found if any(last - first < width for first, last in each.spans)}
    taught = taught or {found[0][0]}
    return collated([each for each in found if each[0] in taught], width)


def blank(tokenizer: TextTokenizer, question: str, max_tokens: int) -> list[tuple[int, Marked]]:
    """What is read where no passage has a wordpiece: a mark, which answers nothing."""
    return [(0, Marked(window, set())) for window in make_windows(tokenizer, question, [("", "?")], max_tokens)]


def collated(found: Sequence[tuple[int, Marked]], width: int) -> ToRead:
    """Windows, each with the number of its question, as a batch; right spans of more than ``width`` do not count."""
    batch = padded([each.window.tokens.ids for _, each in found])
    types = torch.zeros_like(batch.ids_NL)
    possible = np.zeros((*batch.ids_NL.shape, width), dtype=bool)
    right = np.zeros_like(possible)
    for row, (_, each) in enumerate(found):
        window = each.window
        types[row, window.tokens.first_segment : len(window.tokens.ids)] = 1
        possible[row, window.offset : window.offset + len(window.offsets)] = window.possible_spans(width)
        for first, last in each.spans:
            if last - first < width:
                right[row, window.offset + first, last - first] = True
    return ToRead(
        batch.ids_NL,
        batch.mask_NL,
        types,
        torch.from_numpy(possible),
        torch.from_numpy(right),
        torch.tensor([number for number, _ in found], dtype=torch.long),
        torch.tensor([each.window.passage for _, each in found], dtype=torch.long),
    )


def span_scores(reader: MlpSpanReader, batch: ToRead, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Scores ``[B, K, S]`` of all spans, and which are right; ``shape`` is (B, K), S = L · W."""
    score_NLW = reader(batch.ids_NL, batch.mask_NL, batch.types_NL)
    return _of_spans(score_NLW, batch, shape)


def end_scores(reader: SpanReader, batch: ToRead, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """The same of a reader that scores ends, and between them the passages' relevance ``[B, K]``, 0 where none is."""
    start_NL, end_NL, relevance_N = _ends(reader, batch)
    score_NLW = span_logits(start_NL, end_NL, batch.mask_NL.bool(), batch.possible_NLW.shape[-1])
    score_BKS, correct_BKS = _of_spans(score_NLW, batch, shape)
    return score_BKS, batch.by_question(relevance_N, shape, 0.0), correct_BKS


def _ends(reader: SpanReader, batch: ToRead) -> tuple[Tensor, Tensor, Tensor]:
    """What a reader says of the sequences: start ``[N, L]``, end ``[N, L]``, relevance ``[N]``; padding scores 0."""
    found, length = [], batch.ids_NL.shape[1]
    for rows, longest in batch.groups:
        *ends, relevance = reader(*(each[rows, :longest] for each in (batch.ids_NL, batch.mask_NL, batch.types_NL)))
        found.append([*(pad(each, (0, length - longest)) for each in ends), relevance])
    back = torch.cat([rows for rows, _ in batch.groups]).argsort()
    start_NL, end_NL, relevance_N = (torch.cat(each)[back] for each in zip(*found, strict=True))
    return start_NL, end_NL, relevance_N


def _of_spans(score_NLW: Tensor, batch: ToRead, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    score_NLW = score_NLW.masked_fill(~batch.possible_NLW, IMPOSSIBLE)
    score_BKS = batch.by_question(score_NLW.flatten(1), shape, IMPOSSIBLE)
    return score_BKS, batch.by_question(batch.correct_NLW.flatten(1), shape, False)
