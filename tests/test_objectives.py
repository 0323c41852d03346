"""Losses against hand-computed values and numbers from an independent implementation."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from ragqa.objectives import span_nll


def test_two_passages_two_spans_by_hand() -> None:
    # exp of span + relevance: passage 0: 1, 2; passage 1 (relevance log 3): 3, 3. Correct: 2 and 3.
    spans = torch.tensor([[0.0, math.log(2)], [0.0, 0.0]])
    relevance = torch.tensor([0.0, math.log(3)])
    correct = torch.tensor([[False, True], [True, False]])
    assert span_nll(spans, relevance, correct).item() == pytest.approx(-math.log(5 / 9), abs=1e-6)


def test_nothing_correct_costs_nothing_and_has_no_gradient() -> None:
    spans = torch.randn(2, 3, 4, requires_grad=True)
    correct = torch.zeros(2, 3, 4, dtype=torch.bool)
    correct[1, 2, 1] = True
    loss = span_nll(spans, torch.zeros(2, 3), correct)
    loss.sum().backward()
    assert loss[0].item() == 0.0
    assert torch.all(spans.grad[0] == 0)
    assert torch.isfinite(spans.grad).all() and spans.grad[1].abs().sum() > 0


def test_equals_the_reader_loss_of_realm() -> None:
    """Numbers from the REALM classes of transformers 4.39.3 on random tensors."""
    data = np.load(Path(__file__).parent / "data" / "realm_reader.npz")
    spans = torch.from_numpy(data["span_logits"]).double()
    relevance = torch.from_numpy(data["reader_relevance"]).double().requires_grad_()
    correct = torch.zeros(spans.shape, dtype=torch.bool)
    for k in range(len(correct)):
        for start, end in zip(data["gold_starts"][k], data["gold_ends"][k], strict=True):
            same = (data["span_starts"] == start) & (data["span_ends"] == end) & (start >= 0)
            correct[k] |= torch.from_numpy(same)
    loss = span_nll(spans, relevance, correct)
    assert loss.item() == pytest.approx(float(data["reader_loss"]), abs=1e-5)
