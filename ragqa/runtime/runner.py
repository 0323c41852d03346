"""The two engines that run a model: ONNX Runtime, one text a call, and torch, in batches.

A runner takes token sequences and gives each one's outputs back, in order; which of the two it
is, nobody else knows.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput, Mismatch, MissingExtra
from ragqa.runtime.tokens import TokenInput

Outputs = tuple[np.ndarray, ...]

SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion")
"""What ONNX Runtime fuses into an operator that takes longer on a CPU than its parts: five times as long for a sum and
its layer norm, and half as long again for a bias and GELU (one core of a Xeon, onnxruntime 1.31)."""


class Runner(Protocol):
    """Runs a model over token sequences."""

    engine: ClassVar[str]
    """Its name."""

    def run(self, inputs: Sequence[TokenInput]) -> list[Outputs]:
        """The outputs of each sequence, in order, free of its neighbours'."""
        ...


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class OnnxRunner:
    """An exported model: one text a call on one thread, a call on each core.

    Dynamic quantisation takes one scale for a whole tensor, so a text in a batch would come out
    differently beside other texts; alone it never does, and on a CPU it is faster, too.
    So many ``threads`` run; by default one a core.
    """

    engine: ClassVar[str] = "onnx"

    def __init__(self, path: Path, config: dict[str, Any], threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._table = onnxruntime.OrtValue.ortvalue_from_numpy(_embeddings(path, config["embeddings"]))
        options.add_external_initializers([config["embeddings"]["name"]], [self._table])
        self._session = session(path / "model.onnx", options)
        self._pool = ThreadPoolExecutor(threads or cores(), thread_name_prefix="onnx")

    def run(self, inputs: Sequence[TokenInput]) -> list[Outputs]:
        """Each output without its batch dimension."""
        return list(self._pool.map(self._one, inputs))

    def _one(self, item: TokenInput) -> Outputs:
        ids = np.asarray(item.ids, dtype=np.int64)[None]
        types = np.zeros_like(ids)
        types[:, item.first_segment :] = 1
        outputs = self._session.run(None, {"input_ids": ids, "token_type_ids": types})
        return tuple(output[0] for output in outputs)


def session(model: Path, options: Any) -> Any:
    """ONNX Runtime's session of a model on a CPU, its graph optimised as ``options`` say, but for ``SLOWER``."""
    import onnxruntime

    return onnxruntime.InferenceSession(
        str(model), options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER
    )


def _embeddings(path: Path, table: dict[str, Any]) -> np.ndarray:
    """The word embeddings, memory-mapped: two models of one family share the file and its pages."""
    file = path / table["file"]
    if file.parent.resolve() != path.resolve():
        if not file.parent.is_dir():
            raise ArtefactError(f"{path} shares the embeddings of {file.parent}, which is not there: copy it along")
        owner = artefacts.read_manifest(file.parent, "encoder")
        if owner.files.get(file.name, {}).get("sha256") != table["sha256"]:
            raise Mismatch(f"{path} shares the embeddings of {file.parent}, but those are others now: export it again")
    return np.memmap(file, dtype=table["dtype"], mode="r", shape=tuple(table["shape"]))


class TorchRunner:
    """A torch function over padded batches, sorted by length, within a budget of tokens."""

    engine: ClassVar[str] = "torch"

    def __init__(
        self,
        function: Callable[..., tuple[Any, ...]],
        *,
        device: str,
        batch_tokens: int = 16_384,
    ) -> None:
        self._function, self._device, self._batch_tokens = function, device, batch_tokens

    def run(self, inputs: Sequence[TokenInput]) -> list[Outputs]:
        """Outputs with a token dimension keep their padding; readers know their lengths."""
        import torch

        order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i].ids))
        results: list[Outputs] = [()] * len(inputs)
        while order:
            size = max(1, self._batch_tokens // len(inputs[order[0]].ids))
            rows, order = order[:size], order[size:]
            length = len(inputs[rows[0]].ids)
            ids = torch.zeros(len(rows), length, dtype=torch.long)
            mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
            for n, row in enumerate(rows):
                item = inputs[row]
                ids[n, : len(item.ids)] = torch.tensor(list(item.ids))
                mask[n, : len(item.ids)] = 1
                types[n, item.first_segment : len(item.ids)] = 1
            with torch.inference_mode():
                outputs = self._function(*(t.to(self._device) for t in (ids, mask, types)))
            arrays = [output.float().cpu().numpy() for output in outputs]
            for n, row in enumerate(rows):
                results[row] = tuple(array[n] for array in arrays)
        return results


def check_device(device: str) -> None:
    """Raise unless torch is there and sees ``device``."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"running a model on {device}", "torch") from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        raise BadInput(f"--device {device}: torch sees none on this machine; use --device cpu") from error
