"""Run models on token sequences: ONNX Runtime with one sequence per call, torch in batches."""

import math
import operator
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.machine import count_cores
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch, MissingExtra, summarize_error
from ragqa.runtime.tokens import TokenInput

Outputs = tuple[np.ndarray, ...]
"""Outputs of a model for one sequence, without a batch dimension."""

# The fused operators take longer on a CPU than their parts: a sum with its layer norm 5 times as long, a bias with GELU
# 1.5 times as long (one core of a Xeon, onnxruntime 1.31).
_DISABLED_FUSIONS = ("SkipLayerNormFusion", "BiasGeluFusion")
_BATCH_TOKENS = 16_384
"""Maximum number of tokens, including padding, in a batch of ``TorchRunner``."""


class OnnxRunner:
    """Runner of an export in ONNX Runtime, with one sequence and one thread per call.

    Calls run in parallel on all cores. There are no batches: dynamic quantisation uses one scale for a whole tensor, so
    the result for a sequence would depend on the rest of its batch. Single sequences are also faster on a CPU.
    """

    engine = "onnx"

    def __init__(
        self, path: Path, config: dict[str, Any], threads: int | None = None, *, file: str = artefacts.MODEL
    ) -> None:
        """Load a graph of an export.

        Args:
            path: directory of the export.
            config: configuration in the export's manifest.
            threads: number of parallel calls; by default one per core.
            file: name of the graph's file; only the graph of the default name has word embeddings.

        Raises:
            DamagedArtefact: the graph or the embeddings are missing or damaged.
            ArtefactError, Mismatch: the encoder with which the export shares embeddings is missing or has changed.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # One thread per call: threads of one call wait for each other, calls on different cores do not.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if file == artefacts.MODEL:
            self._table = onnxruntime.OrtValue.ortvalue_from_numpy(_map_embeddings(path, config["embeddings"]))
            options.add_external_initializers([config["embeddings"]["name"]], [self._table])
        try:
            self._session = create_session(path / file, options)
        except Exception as error:  # ONNX Runtime has many types of errors, which have no common base
            raise DamagedArtefact(f"{path / file} cannot be loaded: {summarize_error(error)[:200]}") from error
        self._pool = ThreadPoolExecutor(threads or count_cores(), thread_name_prefix="onnx")

    def run(self, inputs: Sequence[TokenInput], on_done: Callable[[int], None] | None = None) -> list[Outputs]:
        """Return the outputs of each sequence, in order.

        Args:
            inputs: sequences of tokens.
            on_done: function called after each sequence with the number of finished sequences.
        """
        results = []
        for outputs in self._pool.map(self._run_one, map(_make_arrays, inputs)):
            results.append(outputs)
            if on_done:
                on_done(len(results))
        return results

    def run_on(self, hidden: Sequence[np.ndarray]) -> list[Outputs]:
        """Return the outputs of the later layers for each sequence, in order.

        The runner must have the graph ``artefacts.LATER_MODEL``.

        Args:
            hidden: hidden states ``[L, D]`` of each sequence of L tokens.
        """
        return list(self._pool.map(self._run_one, ({"hidden": array} for array in hidden)))

    def _run_one(self, arrays: dict[str, np.ndarray]) -> Outputs:
        outputs = self._session.run(None, {name: array[None] for name, array in arrays.items()})
        return tuple(output[0] for output in outputs)


def _make_arrays(item: TokenInput) -> dict[str, np.ndarray]:
    ids = np.asarray(item.ids, dtype=np.int64)
    types = np.zeros_like(ids)
    types[item.first_segment :] = 1
    return {"input_ids": ids, "token_type_ids": types}


def create_session(model: Path, options: Any) -> Any:
    """Open an ONNX Runtime session on the CPU, without the fusions that make it slower.

    Args:
        model: ONNX file.
        options: ``onnxruntime.SessionOptions``.

    Raises:
        Exception: ONNX Runtime cannot load the file; its errors have no common base.
    """
    import onnxruntime

    return onnxruntime.InferenceSession(
        str(model), options, providers=["CPUExecutionProvider"], disabled_optimizers=_DISABLED_FUSIONS
    )


def _map_embeddings(path: Path, table: dict[str, Any]) -> np.ndarray:
    """Map the word embeddings of an export into memory that models with the file share."""
    file = path / table["file"]
    if file.parent.resolve() != path.resolve():
        if not file.parent.is_dir():
            raise ArtefactError(
                f"{path} shares the embeddings of {file.parent}, which does not exist: copy that directory as well"
            )
        owner = artefacts.read_manifest(file.parent, "encoder")
        if owner.files.get(file.name, {}).get("sha256") != table["sha256"]:
            raise Mismatch(f"{path} shares the embeddings of {file.parent}, which have changed since: export it again")
    dtype, shape = np.dtype(table["dtype"]), tuple(map(operator.index, table["shape"]))
    if dtype.kind not in "fiu" or not file.is_file() or file.stat().st_size != dtype.itemsize * math.prod(shape):
        raise DamagedArtefact(f"{file} does not hold the embeddings that the manifest describes: export it again")
    return np.memmap(file, dtype=dtype, mode="r", shape=shape)


class TorchRunner:
    """Runner of a torch function in batches of sequences of similar length."""

    engine = "torch"

    def __init__(self, function: Callable[..., tuple[Any, ...]], *, device: str) -> None:
        """Wrap a function.

        Args:
            function: function of token ids, attention mask and token types, each integers ``[N, L]``, to a tuple of
                tensors ``[N, …]``.
            device: torch device to which the arguments are moved.
        """
        self._function, self._device = function, device

    def run(self, inputs: Sequence[TokenInput], on_done: Callable[[int], None] | None = None) -> list[Outputs]:
        """Return the outputs of each sequence in float32, in order.

        An output with a value for each token also has values for the padding of the batch.

        Args:
            inputs: sequences of tokens.
            on_done: function called after each batch with the number of finished sequences.
        """
        import torch

        order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i].ids))
        results: list[Outputs] = [()] * len(inputs)
        while order:
            size = max(1, _BATCH_TOKENS // len(inputs[order[0]].ids))
            rows, order = order[:size], order[size:]
            batch = _pad_inputs([inputs[row] for row in rows])
            with torch.inference_mode():
                outputs = self._function(*(tensor.to(self._device) for tensor in batch))
            arrays = [output.float().cpu().numpy() for output in outputs]
            for n, row in enumerate(rows):
                results[row] = tuple(array[n] for array in arrays)
            if on_done:
                on_done(len(inputs) - len(order))
        return results


Runner = OnnxRunner | TorchRunner


def _pad_inputs(items: list[TokenInput]) -> tuple[Any, Any, Any]:
    """Pad N items, the longest first, and return their ids, mask and token types ``[N, L]``."""
    import torch

    ids = torch.zeros(len(items), len(items[0].ids), dtype=torch.long)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for n, item in enumerate(items):
        ids[n, : len(item.ids)] = torch.tensor(list(item.ids))
        mask[n, : len(item.ids)] = 1
        types[n, item.first_segment : len(item.ids)] = 1
    return ids, mask, types


def check_device(device: str) -> None:
    """Check that torch can use ``device``.

    Raises:
        MissingExtra: torch is not installed.
        BadInput: torch sees no such device.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"running a model on {device}", "torch") from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError if torch was built without CUDA
        raise BadInput(f"--device {device}: torch sees no such device on this machine; use --device cpu") from error
