"""Precision of training: bfloat16 on devices that multiply faster in bfloat16."""

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


def autocast(device: torch.device | str) -> torch.autocast:
    """Return a context that computes in bfloat16 if the device multiplies faster in bfloat16."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=is_bfloat16_fast(device))


def is_bfloat16_fast(device: torch.device | str) -> bool:
    """Return True if the device multiplies faster in bfloat16 than in float32.

    GPUs before Ampere and most CPUs have no bfloat16 instructions; such a CPU takes five times as long as in float32.
    With these instructions, an AMD EPYC takes half the time of float32, but an Intel Xeon twice the time if a virtual
    machine hides its matrix units (AMX). So CPUs with bfloat16 instructions are timed once per process, unless
    ``fix_precision`` sets the precision.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if _fixed_precision is not None:
        return _cpu_has_instructions() and _fixed_precision == "bfloat16"
    return _cpu_has_instructions() and _bfloat16_takes_less()


_fixed_precision: str | None = None


@contextmanager
def fix_precision(name: str | None) -> Iterator[None]:
    """Fix the precision of training on a CPU until the end of the block.

    This keeps the precision, and so the losses, of a resumed run: a second timing of the CPU could end differently.

    Args:
        name: ``bfloat16`` or ``float32``; None to time the CPU. A CPU without bfloat16 instructions ignores it.
    """
    global _fixed_precision
    before, _fixed_precision = _fixed_precision, name
    try:
        yield
    finally:
        _fixed_precision = before


def choose_precision(device: torch.device | str) -> str:
    """Return the precision to embed passages in training, ``bfloat16`` or ``float32``."""
    return "bfloat16" if is_bfloat16_fast(device) else "float32"


@cache
def _cpu_has_instructions() -> bool:
    if platform.machine() in ("arm64", "aarch64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def _bfloat16_takes_less() -> bool:
    generator = torch.Generator().manual_seed(0)  # measuring must not change the dropout of a run
    a_MD, b_DD = (torch.randn(rows, 512, generator=generator) for rows in (1024, 512))
    times: dict[torch.dtype, list[float]] = {torch.bfloat16: [], torch.float32: []}
    for _ in range(30):  # only the best time counts, since other processes slow down some products
        for dtype, seconds in times.items():
            a, b = a_MD.to(dtype), b_DD.to(dtype)
            start = time.perf_counter()
            a @ b
            seconds.append(time.perf_counter() - start)
    return min(times[torch.bfloat16]) < min(times[torch.float32])
