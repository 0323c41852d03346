"""Training input of span readers: windows with their gold spans, and scores of all spans.

Legend: B questions, K passages of a question, N windows, L tokens, W wordpieces of the longest span, S = L · W spans
of a passage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipelines.common.examples.gold_spans import GoldSpans, WordpieceSpan
from ragqa.models.inputs import group_by_length, pad_rows
from ragqa.models.span_readers import MlpSpanReader, SpanReader
from ragqa.reading.windows import Window, make_windows
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Passage

IMPOSSIBLE = -1e4
"""Logit of an impossible span: e^-1e4 is 0 in float32, and -inf makes gradients NaN."""
_PADDING_WORTH_A_CALL = 8192
"""Number of padding tokens that take a GPU as long as a further call of the reader."""
_CPU_ROWS, _CPU_LENGTH_STEP = 8, 16
"""Number of windows that a CPU encodes in one call, and the multiple to which their length is rounded up.
A call with few windows has little padding, and its activations fit into the cache. With windows grouped as for a GPU, a
step took a fifth longer (2 cores of a Xeon with AMX)."""


@dataclass(frozen=True)
class MarkedWindow:
    """Window of a passage with the gold spans inside it."""

    window: Window
    """Window of the passage, with the question."""
    spans: set[WordpieceSpan]
    """Gold spans in the window."""


@dataclass(frozen=True)
class ReaderBatch:
    """Tensors of the windows of B questions, with the gold spans."""

    ids_NL: Tensor
    """Token ids of the windows."""
    mask_NL: Tensor
    """1 for tokens, 0 for padding."""
    types_NL: Tensor
    """Token types: 1 from the title on, 0 for the question and padding."""
    possible_NLW: Tensor
    """True at [n, l, w] if the span of w + 1 tokens that begins at position l of window n can be an answer."""
    correct_NLW: Tensor
    """True for gold spans."""
    question_N: Tensor
    """Number of the question of each window, from 0."""
    rank_N: Tensor
    """Rank of each window's passage among the passages of its question, from 0."""

    def to(self, device: str) -> "ReaderBatch":
        """Return a copy of the batch on ``device``."""
        return ReaderBatch(*(getattr(self, field.name).to(device) for field in fields(self)))

    @property
    def length_groups(self) -> list[tuple[Tensor, int]]:
        """Row numbers and padded length in wordpieces of the windows of each reader call."""
        length_N = self.mask_NL.sum(-1)
        order_N = length_N.argsort(descending=True, stable=True)
        lengths = length_N[order_N].tolist()
        if self.mask_NL.device.type != "cpu":
            groups = group_by_length(lengths, _PADDING_WORTH_A_CALL)
            return [(order_N[begin:end], lengths[begin]) for begin, end in groups]
        step = _CPU_LENGTH_STEP
        padded_to = [min(-(-length // step) * step, self.mask_NL.shape[1]) for length in lengths[::_CPU_ROWS]]
        return list(zip(order_N.split(_CPU_ROWS), padded_to, strict=True))

    @property
    def tokens(self) -> int:
        """Number of wordpieces that go through the reader, including padding."""
        return sum(len(rows) * longest for rows, longest in self.length_groups)

    def arrange_by_question(self, values_N: Tensor, shape: tuple[int, ...], fill: float) -> Tensor:
        """Arrange the values of windows by question and rank, ``[B, K, …]``.

        Args:
            values_N: value or tensor of each window.
            shape: number of questions B, and number of passages per question K.
            fill: value for a rank at which a question has no window.
        """
        whole = values_N.new_full(shape + values_N.shape[1:], fill)
        return whole.index_put((self.question_N, self.rank_N), values_N)


def mark_windows(
    tokenizer: TextTokenizer, question: str, passages: Sequence[tuple[str, str]], gold: GoldSpans, max_tokens: int
) -> list[list[MarkedWindow]]:
    """Return the windows of each passage with their gold spans.

    Args:
        tokenizer: the reader's tokenizer.
        question: the question.
        passages: title and text of each passage. A passage without wordpieces has no window.
        gold: finder of the gold spans of the question.
        max_tokens: largest length of a window in wordpieces, including the question.

    Raises:
        BadInput, ArtefactError: as for ``make_windows``.
        SlowPattern: an answer is a pattern that takes too long.
    """
    marked: list[list[MarkedWindow]] = [[] for _ in passages]
    for window in make_windows(tokenizer, question, list(passages), max_tokens):
        spans = gold.find(window, passages[window.passage][1])
        # Windows overlap. A span in the overlap counts only in the earlier window, as in answering.
        marked[window.passage].append(MarkedWindow(window, {span for span in spans if span[1] >= window.overlap}))
    return marked


def make_reader_batch(
    tokenizer: TextTokenizer,
    questions: Sequence[str],
    passages: Sequence[Sequence[Passage]],
    golds: Sequence[GoldSpans],
    *,
    max_tokens: int,
    max_span: int,
) -> ReaderBatch:
    """Make a batch of the first window of each passage, for the questions with a gold span.

    A question without a gold span is left out, because its loss is always 0 (Lee et al. 2019, section "Learning"). If
    no question has a gold span, the first question with a window stays, because a batch must not be empty.

    Args:
        tokenizer: the reader's tokenizer.
        questions: B questions.
        passages: the passages of each question.
        golds: finders of the gold spans of each question.
        max_tokens: largest length of a window in wordpieces, including the question.
        max_span: wordpieces of the longest span; longer gold spans are left out.

    Raises:
        BadInput, ArtefactError, SlowPattern: as for ``mark_windows``.
    """
    numbered_windows: list[tuple[int, MarkedWindow]] = []
    for number, (question, question_passages, gold) in enumerate(zip(questions, passages, golds, strict=True)):
        texts = [(passage.context, passage.text) for passage in question_passages]
        marked = mark_windows(tokenizer, question, texts, gold, max_tokens)
        numbered_windows += [(number, windows_of_passage[0]) for windows_of_passage in marked if windows_of_passage]
    numbered_windows = numbered_windows or make_blank_window(tokenizer, questions[0], max_tokens)
    with_loss = {
        number for number, window in numbered_windows if any(last - first < max_span for first, last in window.spans)
    }
    with_loss = with_loss or {numbered_windows[0][0]}
    return collate([(number, window) for number, window in numbered_windows if number in with_loss], max_span)


def make_blank_window(tokenizer: TextTokenizer, question: str, max_tokens: int) -> list[tuple[int, MarkedWindow]]:
    """Return a window of the text "?", for a question whose passages have no wordpieces.

    Arguments are as for ``mark_windows``. The result is a list with the pair (0, window) for ``collate``.
    """
    return [(0, MarkedWindow(window, set())) for window in make_windows(tokenizer, question, [("", "?")], max_tokens)]


def collate(numbered_windows: Sequence[tuple[int, MarkedWindow]], max_span: int) -> ReaderBatch:
    """Return a batch of windows with their gold spans.

    Args:
        numbered_windows: pairs of the number of a question and a window; at least one.
        max_span: wordpieces of the longest span; longer gold spans are left out.
    """
    batch = pad_rows([marked.window.tokens.ids for _, marked in numbered_windows])
    types = torch.zeros_like(batch.ids_NL)
    possible = np.zeros((*batch.ids_NL.shape, max_span), dtype=bool)
    correct = np.zeros_like(possible)
    for row, (_, marked) in enumerate(numbered_windows):
        window = marked.window
        types[row, window.tokens.first_segment : len(window.tokens.ids)] = 1
        possible[row, window.offset : window.offset + len(window.offsets)] = window.find_possible_spans(max_span)
        for first, last in marked.spans:
            if last - first < max_span:
                correct[row, window.offset + first, last - first] = True
    return ReaderBatch(
        batch.ids_NL,
        batch.mask_NL,
        types,
        torch.from_numpy(possible),
        torch.from_numpy(correct),
        torch.tensor([number for number, _ in numbered_windows], dtype=torch.long),
        torch.tensor([marked.window.passage for _, marked in numbered_windows], dtype=torch.long),
    )


def score_spans(reader: MlpSpanReader, batch: ReaderBatch, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Compute the scores of all spans with a reader that scores whole spans.

    Args:
        reader: span reader.
        batch: windows of B questions, at most one for each passage.
        shape: number of questions B, and number of passages per question K.

    Returns:
        The scores of all spans ``[B, K, S]``, ``IMPOSSIBLE`` for a span that cannot be an answer; and a mask
        ``[B, K, S]`` that is True for gold spans.
    """
    score_NLW = reader(batch.ids_NL, batch.mask_NL, batch.types_NL)
    return _arrange_spans(score_NLW, batch, shape)


@dataclass(frozen=True)
class SpansByEnds:
    """Scores of a reader that scores starts and ends, for K passages of B questions."""

    score_BKS: Tensor
    """Scores of all spans, without relevance; ``IMPOSSIBLE`` for spans that cannot be an answer."""
    relevance_BK: Tensor
    """Relevance of each passage; 0 for a missing passage."""
    absence_BK: Tensor
    """Score of "no answer": start score plus end score of the first token; 0 for a missing passage."""
    correct_BKS: Tensor
    """True for gold spans."""
    present_BK: Tensor
    """1 for a passage, 0 for a missing one."""
    early_BK: Tensor | None
    """Relevance of each passage after the reader's early layer; None for a reader without this layer."""


def score_spans_by_ends(reader: SpanReader, batch: ReaderBatch, shape: tuple[int, int]) -> SpansByEnds:
    """Compute the scores of all spans with a reader that scores starts and ends.

    Arguments are as for ``score_spans``.
    """
    start_NL, end_NL, relevance_N, *early_N = _score_ends(reader, batch)
    score_NLW = compute_span_logits(start_NL, end_NL, batch.mask_NL.bool(), batch.possible_NLW.shape[-1])
    score_BKS, correct_BKS = _arrange_spans(score_NLW, batch, shape)
    present_BK = batch.arrange_by_question(torch.ones_like(relevance_N), shape, 0.0)
    relevance_BK, absence_BK, *early_BK = (
        batch.arrange_by_question(values_N, shape, 0.0)
        for values_N in (relevance_N, start_NL[:, 0] + end_NL[:, 0], *early_N)
    )
    return SpansByEnds(score_BKS, relevance_BK, absence_BK, correct_BKS, present_BK, early_BK[0] if early_BK else None)


def compute_span_logits(start_NL: Tensor, end_NL: Tensor, inside_NL: Tensor, width: int) -> Tensor:
    """Compute the score of each span as the sum of the scores of its start and its end.

    Args:
        start_NL: ``[N, L]`` scores of starts.
        end_NL: ``[N, L]`` scores of ends.
        inside_NL: ``[N, L]`` bool, true at tokens where a span can start and end.
        width: longest span in tokens, W.

    Returns:
        ``[N, L, W]``; element (i, w) is the score of the tokens i … i + w. It is ``IMPOSSIBLE`` if a span
        cannot start at i or end at i + w, and never lower.
    """
    end_NL = end_NL.masked_fill(~inside_NL, IMPOSSIBLE)
    end_NLW = pad(end_NL, (0, width - 1), value=IMPOSSIBLE).unfold(1, width, 1)
    score = start_NL.masked_fill(~inside_NL, IMPOSSIBLE).unsqueeze(-1) + end_NLW
    return score.clamp_min(IMPOSSIBLE)


def _score_ends(reader: SpanReader, batch: ReaderBatch) -> tuple[Tensor, ...]:
    """Return start scores ``[N, L]``, end scores ``[N, L]`` and relevance ``[N]``.

    A reader with an early layer adds its early relevance ``[N]``. The scores of padding have no meaning.
    """
    outputs, length = [], batch.ids_NL.shape[1]
    for rows, longest in batch.length_groups:
        start_NL, end_NL, *of_passages = reader(
            *(tensor[rows, :longest] for tensor in (batch.ids_NL, batch.mask_NL, batch.types_NL))
        )
        outputs.append([*(pad(end, (0, length - longest)) for end in (start_NL, end_NL)), *of_passages])
    original_order = torch.cat([rows for rows, _ in batch.length_groups]).argsort()
    return tuple(torch.cat(parts)[original_order] for parts in zip(*outputs, strict=True))


def _arrange_spans(score_NLW: Tensor, batch: ReaderBatch, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    score_NLW = score_NLW.masked_fill(~batch.possible_NLW, IMPOSSIBLE)
    score_BKS = batch.arrange_by_question(score_NLW.flatten(1), shape, IMPOSSIBLE)
    return score_BKS, batch.arrange_by_question(batch.correct_NLW.flatten(1), shape, False)
