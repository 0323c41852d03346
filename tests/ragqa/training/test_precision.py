"""Training computes in bfloat16 where the machine has instructions for it that are worth it, and nowhere else."""

import itertools
from pathlib import Path

import pytest
import torch

from ragqa.training import meter, precision


@pytest.mark.parametrize("has", [True, False])
@pytest.mark.parametrize("worth", [True, False])
def test_products_are_of_the_precision_that_is_fast(monkeypatch: pytest.MonkeyPatch, has: bool, worth: bool) -> None:
    monkeypatch.setattr(precision, "_cpu_has_instructions", lambda: has)
    monkeypatch.setattr(precision, "_bfloat16_takes_less", lambda: worth)
    with precision.mixed("cpu"):
        found = torch.ones(2, 2) @ torch.ones(2, 2)
    assert found.dtype == (torch.bfloat16 if has and worth else torch.float32)
    assert precision.bfloat16_is_fast("cpu") is (has and worth)
    assert precision.name("cpu") == ("bfloat16" if has and worth else "float32")


@pytest.mark.skipif(not Path("/proc/cpuinfo").is_file(), reason="the kernel's list of instructions is Linux's")
def test_the_instructions_are_those_that_the_kernel_names() -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    assert precision._cpu_has_instructions() == bool({"avx512_bf16", "amx_tile", "bf16"}.intersection(flags))


@pytest.mark.parametrize("faster", [True, False])
def test_products_are_timed_and_leave_the_dropout_of_a_run_alone(monkeypatch: pytest.MonkeyPatch, faster: bool) -> None:
    """By a clock on which a product of bfloat16 takes one second, or three, and one of float32 two."""
    lengths = itertools.cycle((1 if faster else 3, 2))
    clock = itertools.accumulate(itertools.chain.from_iterable((0, next(lengths)) for _ in itertools.count()))
    monkeypatch.setattr(precision.time, "perf_counter", lambda: next(clock))
    before = torch.get_rng_state()
    assert precision._bfloat16_takes_less.__wrapped__() is faster
    assert torch.equal(before, torch.get_rng_state())


def test_gpus_that_would_emulate_it_compute_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: including_emulation)
    assert not precision.bfloat16_is_fast("cuda:1")


def test_a_peak_is_measured_in_the_same_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype] = []
    monkeypatch.setattr(precision, "_cpu_has_instructions", lambda: False)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, dtype, **more: (seen.append(dtype), randn(8, 8, dtype=dtype))[1])
    assert meter.peak_flops.__wrapped__("cpu") > 0
    assert seen == [torch.float32]
