"""Which precision training computes in: bfloat16 where the machine multiplies it faster than float32."""

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


def mixed(device: torch.device | str) -> torch.autocast:
    """Matrix products in bfloat16 meanwhile, where that is faster."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=bfloat16_is_fast(device))


def bfloat16_is_fast(device: torch.device | str) -> bool:
    """Whether the device has instructions for it, which GPUs before Ampere lack, and most CPUs, and gains by it.

    Without them a CPU takes five times as long for a product as in float32. With them an AMD EPYC takes half of the
    time, but an Intel Xeon whose matrix units (AMX) a virtual machine hides takes twice of it: so a CPU is timed.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return _cpu_has_instructions() and (_bfloat16_takes_less() if _settled is None else _settled == "bfloat16")


_settled: str | None = None


@contextmanager
def settled(name: str | None) -> Iterator[None]:
    """Have CPUs with the instructions compute as a run began, not as they would be timed now; None times them."""
    global _settled
    before, _settled = _settled, name
    try:
        yield
    finally:
        _settled = before


def name(device: torch.device | str) -> str:
    """Of the precision in which an encoder of a run in training embeds."""
    return "bfloat16" if bfloat16_is_fast(device) else "float32"


@cache
def _cpu_has_instructions() -> bool:
    if platform.machine() in ("arm64", "aarch64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def _bfloat16_takes_less() -> bool:
    """Of products of a small model's size, by the best of some in turn: other work on the machine slows down some."""
    own = torch.Generator().manual_seed(0)  # to measure must not change the dropout of a run
    a_MD, b_DD = (torch.randn(rows, 512, generator=own) for rows in (1024, 512))
    taken: dict[torch.dtype, list[float]] = {torch.bfloat16: [], torch.float32: []}
    for _ in range(30):
        for dtype, seconds in taken.items():
            a, b = a_MD.to(dtype), b_DD.to(dtype)
            began = time.perf_counter()
            a @ b
            seconds.append(time.perf_counter() - began)
    return min(taken[torch.bfloat16]) < min(taken[torch.float32])
