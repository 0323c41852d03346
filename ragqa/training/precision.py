"""Which precision training computes in: bfloat16 where the machine multiplies it faster than float32."""

import platform
import time
from functools import cache, lru_cache

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
    return _cpu_has_instructions() and _product_seconds(torch.bfloat16) < _product_seconds(torch.float32)


@lru_cache(1)
def _cpu_has_instructions() -> bool:
    if platform.machine() in ("arm64", "aarch64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def _product_seconds(dtype: torch.dtype) -> float:
    """The best of some products of a small model's size: other work on the machine makes some of them slower."""
    own = torch.Generator().manual_seed(0)  # to measure must not change the dropout of a run
    a_MD, b_DD = (torch.randn(rows, 512, generator=own).to(dtype) for rows in (1024, 512))
    taken = []
    for _ in range(10):
        began = time.perf_counter()
        a_MD @ b_DD
        taken.append(time.perf_counter() - began)
    return min(taken)
