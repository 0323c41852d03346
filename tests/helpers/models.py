"""Small torch models, and configurations of small transformers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from conftest import ROOT
from torch import Tensor, nn

FAMILIES = ("bert", "electra", "roberta", "distilbert", "deberta-v2", "modernbert")


class TiedLinear(nn.Module):
    """Two layers that share one weight, as an encoder and its language-model head do."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows [n, 3] to rows [n, 3]."""
        return self.other(torch.relu(self.one(rows)))


@contextmanager
def one_thread() -> Iterator[dict[str, str]]:
    """Use one thread, and yield the environment of a process that does: their sums are equal to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        yield {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    finally:
        torch.set_num_threads(before)


def make_tiny_config(family: str, vocabulary: int = 50) -> Any:
    """Return the configuration of a tiny model."""
    from transformers import AutoConfig

    names = {"distilbert": ("dim", "n_layers", "n_heads", "hidden_dim")}
    width, layers, heads, inner = names.get(
        family, ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    )
    sizes = {width: 16, layers: 1, heads: 2, inner: 32, "vocab_size": vocabulary, "max_position_embeddings": 40}
    special = {f"{name}_token_id": 2 for name in ("bos", "eos", "cls", "sep")} if family == "modernbert" else {}
    return AutoConfig.for_model(family, **sizes, pad_token_id=0, **special)
