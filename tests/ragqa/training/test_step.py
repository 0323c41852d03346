"""The optimizer step clips gradients and refuses losses and gradients that are not finite."""

import torch
from torch import nn

from ragqa.errors import NonFiniteLoss
from ragqa.training.step import apply_gradients, optimise
from tests.helpers.errors import assert_one_line


def test_losses_and_gradients_that_are_not_finite_change_no_weight() -> None:
    layer = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters())
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.tensor([[1.0, float("nan")]])
    assert_one_line(
        lambda: apply_gradients(optimizer, rate=1.0, clip=1.0, step=7), NonFiniteLoss, "the gradient is nan at step 7"
    )
    loss = layer(torch.tensor([[float("inf"), 0.0]])).sum()
    assert_one_line(lambda: optimise(loss, optimizer, rate=1.0, clip=1.0, step=8), NonFiniteLoss, "inf at step 8")
    assert torch.equal(layer.weight, before)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert apply_gradients(optimizer, rate=0.5, clip=1.0, step=9) == 5.0
    assert torch.allclose(layer.weight, before - 0.5 * torch.tensor([[0.6, 0.8]]), atol=1e-4)
