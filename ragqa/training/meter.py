"""Count the operations of a training step and measure the machine's peak rate."""

import time
from collections import Counter
from functools import cache

import torch
from torch import nn
from transformers import PreTrainedModel

from ragqa.training.precision import is_bfloat16_fast


def count_flops(module: nn.Module, tokens: int, predicted: int = 0) -> float:
    """Return the number of floating-point operations of a training step.

    A weight takes 6 operations per token, and a frozen weight 2 (forward pass). Embedding tables do not count, since
    they are not multiplied. Products of queries, keys and values do not count, since they add only a few per cent for
    short texts. Sources: Kaplan et al. 2020, section 2.1; PaLM (Chowdhery et al. 2022), appendix B.

    Args:
        module: transformers model, or a module that contains several.
        tokens: number of tokens in the batch.
        predicted: number of positions where the vocabulary is scored.
    """
    models = [part for part in module.modules() if isinstance(part, PreTrainedModel)]
    heads = {head.weight for model in models if (head := model.get_output_embeddings()) is not None}
    named = module.named_parameters()
    weights = [p for name, p in named if p.ndim > 1 and "embedding" not in name and p not in heads]
    body, head = (sum((6 if p.requires_grad else 2) * p.numel() for p in some) for some in (weights, heads))
    return float(tokens * body + predicted * head)


def count_seq2seq_weights(model: nn.Module) -> tuple[int, int]:
    """Return the number of weights that multiply each input token, and each output token.

    A training step takes 6 operations per weight and token. The function runs the model on two input tokens and three
    output tokens to see which tokens each layer multiplies. Keys and values of cross-attention belong to the input. The
    output layer counts even if it shares its weights with the embeddings.

    Args:
        model: seq2seq model of transformers.
    """
    counts: Counter[int] = Counter()

    def count_weight(module: nn.Module, arguments: object, output: torch.Tensor) -> None:
        counts[output.shape[:-1].numel()] += module.get_parameter("weight").numel()

    hooks = [
        part.register_forward_hook(count_weight)
        for part in model.modules()
        if not isinstance(part, nn.Embedding) and getattr(getattr(part, "weight", None), "ndim", 0) == 2
    ]
    device = next(model.parameters()).device
    inputs, outputs = (torch.zeros(1, length, dtype=torch.long, device=device) for length in (2, 3))
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(input_ids=inputs, decoder_input_ids=outputs, use_cache=False)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return counts[2], counts[3]


@cache
def measure_peak_flops(device: str = "cpu") -> float:
    """Return the peak rate of matrix products in the training precision, in operations/s.

    The measurement takes 1 s; later calls for the same device return the same result.

    Args:
        device: device as torch names it, for example ``cuda``.
    """
    size = 8192 if device.startswith("cuda") else 2048
    generator = torch.Generator(device).manual_seed(0)  # measuring must not change the dropout of a run
    dtype = torch.bfloat16 if is_bfloat16_fast(device) else torch.float32
    a = torch.randn(size, size, device=device, dtype=dtype, generator=generator)
    best, until = 0.0, time.perf_counter() + 1.0
    while time.perf_counter() < until:
        start = time.perf_counter()
        (a @ a)[0, 0].item()  # item() waits for a GPU to finish
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best
