"""What an extractive reader reads in training: the sequences of answering, and the spans that are right.

Legend: B questions, K passages that are read of each, N sequences, L tokens, P wordpieces of a passage, W longest
span in wordpieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from pipelines.gold_spans import GoldSpans
from ragqa.models.inputs import padded
from ragqa.models.mlp_reader import MlpSpanReader
from ragqa.models.span_reader import IMPOSSIBLE
from ragqa.reading.windows import Window, windows
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Passage


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

    def by_question(self, values_N: Tensor, shape: tuple[int, ...], fill: float) -> Tensor:
        """``[B, K, …]``: rows of ``values_N`` at their question and rank; ``fill`` where a passage has no wordpiece."""
        whole = values_N.new_full(shape + values_N.shape[1:], fill)
        return whole.index_put((self.question_N, self.rank_N), values_N)


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
    found: list[tuple[int, Window]] = []
    correct: list[tuple[int, int, int]] = []
    for number, (question, own, gold) in enumerate(zip(questions, passages, golds, strict=True)):
        texts = [(passage.title, passage.text) for passage in own]
        for window in windows(tokenizer, question, texts, max_tokens):
            if found and found[-1][0] == number and found[-1][1].passage == window.passage:
                continue  # training reads only as far as the first window of a passage
            spans = gold.spans(window, own[window.passage].text)
            correct += [(len(found), window.offset + first, last - first) for first, last in spans]
            found.append((number, window))
    if not found:  # all are blank: a mark stands for them
        found = [(0, window) for window in windows(tokenizer, questions[0], [("", "?")], max_tokens)]
    correct = [each for each in correct if each[2] < width]
    taught = {found[row][0] for row, *_ in correct} or {found[0][0]}
    kept = [row for row, (number, _) in enumerate(found) if number in taught]
    place = {row: at for at, row in enumerate(kept)}
    return _collated([found[row] for row in kept], [(place[row], first, last) for row, first, last in correct], width)


def _collated(found: list[tuple[int, Window]], correct: list[tuple[int, int, int]], width: int) -> ToRead:
    batch = padded([window.tokens.ids for _, window in found])
    types = torch.zeros_like(batch.ids_NL)
    possible = np.zeros((*batch.ids_NL.shape, width), dtype=bool)
    right = np.zeros_like(possible)
    for row, (_, window) in enumerate(found):
        types[row, window.tokens.first_segment : len(window.tokens.ids)] = 1
        possible[row, window.offset : window.offset + len(window.offsets)] = window.possible(width)
    for place in correct:
        right[place] = True
    return ToRead(
        batch.ids_NL,
        batch.mask_NL,
        types,
        torch.from_numpy(possible),
        torch.from_numpy(right),
        torch.tensor([number for number, _ in found], dtype=torch.long),
        torch.tensor([window.passage for _, window in found], dtype=torch.long),
    )


def span_scores(reader: MlpSpanReader, batch: ToRead, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Scores ``[B, K, S]`` of all spans, and which are right; ``shape`` is (B, K), S = L · W."""
    score_NLW = reader(batch.ids_NL, batch.mask_NL, batch.types_NL).masked_fill(~batch.possible_NLW, IMPOSSIBLE)
    score_BKS = batch.by_question(score_NLW.flatten(1), shape, IMPOSSIBLE)
    return score_BKS, batch.by_question(batch.correct_NLW.flatten(1), shape, False)
