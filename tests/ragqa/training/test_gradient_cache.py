"""Gradients computed in chunks equal those of the whole batch."""

import pytest
import torch
from torch import Tensor, nn

from ragqa.objectives import in_batch_nll
from ragqa.training import gradient_cache


def make_towers(dropout: float) -> nn.ModuleList:
    torch.manual_seed(0)
    sides = [nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4)) for _ in range(2)]
    return nn.ModuleList(sides).double()


def take_gradients(model: nn.Module) -> list[Tensor]:
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert len(gradients) == len(list(model.parameters()))
    model.zero_grad(set_to_none=True)
    return gradients


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("sizes", [([2, 2, 3], [4, 1]), ([7], [2, 3]), ([7], [5])], ids=str)
def test_gradients_of_chunks_equal_those_of_the_whole_batch(sizes: tuple[list[int], list[int]], dropout: float) -> None:
    """Compare with the plain gradient, whose random numbers are drawn by the same chunks in the same order."""
    model = make_towers(dropout)
    rows = [torch.randn(7, 5, dtype=torch.double), torch.randn(5, 5, dtype=torch.double)]
    positive = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    sides = [
        [lambda tower=tower, chunk=chunk: tower(chunk) for chunk in side.split(lengths)]
        for tower, side, lengths in zip(model, rows, sizes, strict=True)
    ]

    def loss(questions: Tensor, passages: Tensor) -> Tensor:
        return in_batch_nll(questions, passages, positive)

    torch.manual_seed(1)
    plain = loss(*(torch.cat([encode() for encode in side]) for side in sides))
    plain.backward()
    expected, random = take_gradients(model), torch.rand(3)
    torch.manual_seed(1)
    value = gradient_cache.backward(sides, loss)
    found, random_after = take_gradients(model), torch.rand(3)
    assert value.item() == pytest.approx(plain.item(), abs=1e-12) and not value.requires_grad
    assert all(torch.allclose(a, b, atol=1e-6, rtol=0) for a, b in zip(found, expected, strict=True))
    assert any(gradient.abs().max() > 1e-3 for gradient in expected)
    assert torch.equal(random_after, random)  # the second pass does not change the random numbers that follow


def test_gradients_are_added_to_existing_ones() -> None:
    layer = nn.Linear(3, 2, bias=False).double()
    rows = torch.randn(4, 3, dtype=torch.double)
    layer.weight.grad = torch.ones_like(layer.weight)
    gradient_cache.backward([[lambda: layer(rows[:1]), lambda: layer(rows[1:])]], lambda vectors: vectors.sum())
    assert torch.allclose(layer.weight.grad, 1 + rows.sum(0).expand(2, 3))
