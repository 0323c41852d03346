"""How fast a run is: tokens a second, and the share of the machine's arithmetic that the model uses."""

import time
from collections import Counter
from functools import cache

import torch
from torch import nn
from transformers import PreTrainedModel

from ragqa.training.precision import bfloat16_is_fast


def model_flops(module: nn.Module, tokens: int, guessed: int = 0) -> float:
    """Floating-point operations of a training step over ``tokens`` positions: 6 a weight and position.

    2 of them are the forward pass, all there is of a frozen weight. The head of a masked language model scores its
    vocabulary at the ``guessed`` positions only.

    Embedding tables are looked up, not multiplied, and attention over such short texts adds a few per cent: neither
    counts (Kaplan et al. 2020, section 2.1; PaLM, Chowdhery et al. 2022, appendix B, without attention).
    """
    parts = [part for part in module.modules() if isinstance(part, PreTrainedModel)]
    heads = {head.weight for part in parts if (head := part.get_output_embeddings()) is not None}
    named = module.named_parameters()
    weights = [p for name, p in named if p.ndim > 1 and "embedding" not in name and p not in heads]
    body, head = (sum((6 if p.requires_grad else 2) * p.numel() for p in some) for some in (weights, heads))
    return float(tokens * body + guessed * head)


def seq2seq_weights(model: nn.Module) -> tuple[int, int]:
    """Weights that go into each token that is read, and into each that is written: 6 operations each in a step.

    Which is which is seen as two tokens are read and three written: keys and values of cross-attention are of what is
    read, a head that shares the embeddings counts. ``model`` is called as those of transformers are.
    """
    counts: Counter[int] = Counter()

    def seen(module: nn.Module, arguments: object, output: torch.Tensor) -> None:
        counts[output.shape[:-1].numel()] += module.get_parameter("weight").numel()

    parts = [part for part in model.modules() if not isinstance(part, nn.Embedding)]
    weights = [getattr(part, "weight", None) for part in parts]
    multiplied = [part for part, weight in zip(parts, weights, strict=True) if weight is not None and weight.ndim == 2]
    hooks = [part.register_forward_hook(seen) for part in multiplied]
    place = next(model.parameters()).device
    read, written = (torch.zeros(1, length, dtype=torch.long, device=place) for length in (2, 3))
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(input_ids=read, decoder_input_ids=written, use_cache=False)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return counts[2], counts[3]


@cache
def peak_flops(device: str = "cpu") -> float:
    """What the machine reaches in a product of large matrices, operations a second: measured, in 1 s.

    In the precision that is trained in there: see ``precision.mixed``.
    """
    size = 8192 if device.startswith("cuda") else 2048
    own = torch.Generator(device).manual_seed(0)  # to measure must not change the dropout of a run
    dtype = torch.bfloat16 if bfloat16_is_fast(device) else torch.float32
    a = torch.randn(size, size, device=device, dtype=dtype, generator=own)
    best, until = 0.0, time.perf_counter() + 1.0
    while time.perf_counter() < until:
        began = time.perf_counter()
        (a @ a)[0, 0].item()  # waits for a GPU, too
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best
