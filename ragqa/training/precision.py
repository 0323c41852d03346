"""Which precision training computes in: bfloat16 where the machine multiplies it faster than float32."""

import platform
from functools import lru_cache

import torch


def mixed(device: torch.device | str) -> torch.autocast:
    """Matrix products in bfloat16 meanwhile, where that is faster."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=bfloat16_is_fast(device))


def bfloat16_is_fast(device: torch.device | str) -> bool:
    """Whether the device has instructions for it, which GPUs before Ampere have not, nor most CPUs.

    Without them a CPU takes five times as long for a product as in float32.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return _cpu_has_instructions()


@lru_cache(1)
def _cpu_has_instructions() -> bool:
    if platform.machine() in ("arm64", "aarch64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
