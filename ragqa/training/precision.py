"""Precision of training: bfloat16 where the machine multiplies faster in it."""

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


def autocast(device: torch.device | str) -> torch.autocast:
    """Compute matrix products in bfloat16 inside the block where that is faster."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=is_bfloat16_fast(device))


def is_bfloat16_fast(device: torch.device | str) -> bool:
    """Tell whether the device multiplies faster in bfloat16 than in float32.

    GPUs before Ampere and most CPUs have no instructions for it; without them a CPU takes five times as long as in
    float32. With them an AMD EPYC takes half the time, but an Intel Xeon whose matrix units (AMX) a virtual machine
    hides takes twice the time. So CPUs with these instructions are timed.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if _fixed_precision is not None:
        return _cpu_has_instructions() and _fixed_precision == "bfloat16"
    return _cpu_has_instructions() and _bfloat16_takes_less()


_fixed_precision: str | None = None
"""Precision set by ``fix_precision``."""


@contextmanager
def fix_precision(name: str | None) -> Iterator[None]:
    """Use the precision with which a run began instead of timing the CPU again; None times it.

    A second timing could choose differently, and a resumed run would then compute other losses.
    """
    global _fixed_precision
    before, _fixed_precision = _fixed_precision, name
    try:
        yield
    finally:
        _fixed_precision = before


def choose_precision(device: torch.device | str) -> str:
    """Return the precision in which an encoder in training embeds: ``bfloat16`` or ``float32``."""
    return "bfloat16" if is_bfloat16_fast(device) else "float32"


@cache
def _cpu_has_instructions() -> bool:
    if platform.machine() in ("arm64", "aarch64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def _bfloat16_takes_less() -> bool:
    """Time products of a small model's size in both precisions and compare the best times."""
    generator = torch.Generator().manual_seed(0)  # measuring must not change the dropout of a run
    a_MD, b_DD = (torch.randn(rows, 512, generator=generator) for rows in (1024, 512))
    times: dict[torch.dtype, list[float]] = {torch.bfloat16: [], torch.float32: []}
    for _ in range(30):  # the best counts, since other work on the machine slows some of them down
        for dtype, seconds in times.items():
            a, b = a_MD.to(dtype), b_DD.to(dtype)
            start = time.perf_counter()
            a @ b
            seconds.append(time.perf_counter() - start)
    return min(times[torch.bfloat16]) < min(times[torch.float32])
