"""Training computes in bfloat16 where the machine has instructions for it, and nowhere else."""

import pytest
import torch

from ragqa.training import meter, precision


@pytest.mark.parametrize("fast", [True, False])
def test_products_are_of_the_precision_that_is_fast(monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
    monkeypatch.setattr(precision, "_has_instructions", lambda: fast)
    with precision.mixed("cpu"):
        found = torch.ones(2, 2) @ torch.ones(2, 2)
    assert found.dtype == (torch.bfloat16 if fast else torch.float32)
    assert precision.halves("cuda") and precision.halves("cpu") is fast


def test_a_peak_is_measured_in_the_same_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype] = []
    monkeypatch.setattr(precision, "_has_instructions", lambda: False)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, dtype, **more: (seen.append(dtype), randn(8, 8, dtype=dtype))[1])
    assert meter.peak_flops.__wrapped__("cpu") > 0
    assert seen == [torch.float32]
