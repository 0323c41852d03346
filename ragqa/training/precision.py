"""Which precision training computes in: bfloat16 where the machine multiplies it faster than float32."""

import platform
from functools import lru_cache

import torch


def mixed(device: torch.device | str) -> torch.autocast:
    """Matrix products in bfloat16 meanwhile, where that is faster."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=halves(device))


def halves(device: torch.device | str) -> bool:
    """Whether bfloat16 is faster: on a GPU, and on a CPU that has instructions for it.

    Without them a product takes five times as long as in float32, so there all is float32.
    """
    return torch.device(device).type != "cpu" or _has_instructions()


@lru_cache(1)
def _has_instructions() -> bool:
    if platform.machine() in ("arm64", "aarch64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
