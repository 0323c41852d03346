"""Training computes in bfloat16 only where the machine has instructions for it and is faster with them."""

import itertools
from pathlib import Path

import pytest
import torch

from ragqa.training import meter, precision


@pytest.mark.parametrize("has_instructions", [True, False])
@pytest.mark.parametrize("is_faster", [True, False])
def test_autocast_uses_the_faster_precision(
    monkeypatch: pytest.MonkeyPatch, has_instructions: bool, is_faster: bool
) -> None:
    monkeypatch.setattr(precision, "_cpu_has_instructions", lambda: has_instructions)
    monkeypatch.setattr(precision, "_bfloat16_takes_less", lambda: is_faster)
    with precision.autocast("cpu"):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if has_instructions and is_faster else torch.float32)
    assert precision.is_bfloat16_fast("cpu") is (has_instructions and is_faster)
    assert precision.choose_precision("cpu") == ("bfloat16" if has_instructions and is_faster else "float32")


@pytest.mark.skipif(not Path("/proc/cpuinfo").is_file(), reason="only Linux lists the instructions")
def test_the_instructions_agree_with_the_kernels_list() -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    assert precision._cpu_has_instructions() == bool({"avx512_bf16", "amx_tile", "bf16"}.intersection(flags))


@pytest.mark.parametrize("faster", [True, False])
def test_timing_compares_precisions_and_draws_no_random_numbers(monkeypatch: pytest.MonkeyPatch, faster: bool) -> None:
    """Use a clock on which a product takes 1 or 3 seconds in bfloat16, and 2 in float32."""
    lengths = itertools.cycle((1 if faster else 3, 2))
    clock = itertools.accumulate(itertools.chain.from_iterable((0, next(lengths)) for _ in itertools.count()))
    monkeypatch.setattr(precision.time, "perf_counter", lambda: next(clock))
    before = torch.get_rng_state()
    assert precision._bfloat16_takes_less.__wrapped__() is faster
    assert torch.equal(before, torch.get_rng_state())


def test_gpus_that_would_emulate_bfloat16_compute_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: including_emulation)
    assert not precision.is_bfloat16_fast("cuda:1")


def test_peak_flops_are_measured_in_training_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype] = []
    monkeypatch.setattr(precision, "_cpu_has_instructions", lambda: False)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, dtype, **more: (seen.append(dtype), randn(8, 8, dtype=dtype))[1])
    assert meter.measure_peak_flops.__wrapped__("cpu") > 0
    assert seen == [torch.float32]
