"""How fast a run is: tokens a second, and the share of the machine's arithmetic that the model uses."""

import time
from functools import cache

import torch
from torch import nn


def model_flops(module: nn.Module, tokens: int) -> float:
    """Floating-point operations of a training step over ``tokens`` positions: 6 a weight and position.

    2 of them are the forward pass, all there is of a frozen weight.

    Embedding tables are looked up, not multiplied, and attention over such short texts adds a few per cent: neither
    counts (Kaplan et al. 2020, section 2.1; PaLM, Chowdhery et al. 2022, appendix B, without attention).
    """
    weights = (p for name, p in module.named_parameters() if p.ndim > 1 and "embedding" not in name)
    return float(tokens * sum((6 if p.requires_grad else 2) * p.numel() for p in weights))


@cache
def peak_flops(device: str = "cpu") -> float:
    """What the machine reaches in a product of large matrices in bfloat16, operations a second: measured, in 1 s."""
    size = 8192 if device.startswith("cuda") else 2048
    own = torch.Generator(device).manual_seed(0)  # to measure must not change the dropout of a run
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16, generator=own)
    best, until = 0.0, time.perf_counter() + 1.0
    while time.perf_counter() < until:
        began = time.perf_counter()
        (a @ a)[0, 0].item()  # waits for a GPU, too
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best
