"""Torch weights of an exported reader: what training goes on from where only the 8-bit model is at hand.

The weights are those that the CPU reads with, so rounded to 8 bits: what they lose is what the export lost.
"""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.errors import DamagedArtefact, Mismatch, MissingExtra

_OWN = "function."
"""What the exporter puts before a reader's own names."""


def restore(exported: Path, like: Path, out: Path) -> None:
    """Write the torch reader whose export lies in ``exported`` into the directory ``out``, its tokenizer beside.

    Args:
        exported: directory that ``ragqa export`` wrote of a reader, or the one that comes with ragqa.
        like: directory of the encoder that the reader was made of: its shape is in no export.
        out: as ``ragqa.models`` saves readers; a reader there is replaced.

    Raises:
        BadInput: something else lies at ``out``, or beside a reader there.
        MissingExtra: torch, transformers or onnx is not installed.
        ArtefactError, DamagedArtefact: there is no exported reader, or it is not whole.
        Mismatch: it is not of the shape of ``like``, or has another tokenizer; or is not a reader of starts and ends.
    """
    try:
        import onnx
        import torch

        from ragqa.models.readers import check_replaceable
        from ragqa.models.span_reader import SpanReader
    except ImportError as error:
        raise MissingExtra("making torch weights of an export", "torch") from error
    check_replaceable(out)
    config = artefacts.read_manifest(exported, "reader").config
    if (kind := config.get("reader", SpanReader.kind)) != SpanReader.kind:
        raise Mismatch(f"{exported} holds a reader '{kind}': only those of kind '{SpanReader.kind}' can be made again")
    own, other = exported / "tokenizer.json", like / "tokenizer.json"
    if not other.is_file() or own.read_bytes() != other.read_bytes():
        raise Mismatch(f"{like} has not the tokenizer.json of {exported}: name the encoder that it was made of")
    reader = SpanReader.from_encoder(like)
    reader.config.reader_tokens = config["max_tokens"]
    if config.get("max_span"):
        reader.config.reader_span = config["max_span"]
    weights = _weights(onnx.load(exported / "model.onnx", load_external_data=False).graph, _table(exported, config))
    told = {name: torch.from_numpy(value) for name, value in weights.items() if name in reader.state_dict()}
    try:
        missing, _ = reader.load_state_dict(told, strict=False)
    except RuntimeError as error:
        raise Mismatch(f"{exported} is not of the shape of {like}: {' '.join(str(error).split())[:200]}") from error
    if missing:
        raise Mismatch(f"{exported} has no {missing[0]}, which a reader made of {like} has")
    with artefacts.replace_directory(out) as folder:
        reader.save(folder)
        shutil.copyfile(own, folder / "tokenizer.json")


def _table(exported: Path, config: dict[str, Any]) -> np.ndarray:
    """The word embeddings, which lie in a file of their own."""
    row = config["embeddings"]
    file = exported / row["file"]
    if not file.is_file() or artefacts.checksum(file) != row["sha256"]:
        raise DamagedArtefact(f"{file} is not the file of embeddings that {exported} was exported with")
    return np.fromfile(file, np.dtype(row["dtype"])).reshape(row["shape"])


def _weights(graph: Any, table: np.ndarray) -> dict[str, np.ndarray]:
    """Every parameter by its own name, in float32.

    Those of matrix products have lost theirs on the way: the bias that is added to the product still has it.
    """
    from onnx import TensorProto, numpy_helper

    held = {
        each.name: table if each.data_location == TensorProto.EXTERNAL else numpy_helper.to_array(each)
        for each in graph.initializer
    }
    uses = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            uses[name].append(node)
    found = {}
    for name, value in held.items():
        stem = name.removesuffix("_quantized")
        own = stem.removeprefix(_OWN)
        if stem != name:  # MatMulInteger's are [in, out], with a scale for each output
            value = _float(value, held[f"{stem}_scale"], held[f"{stem}_zero_point"])
            if not stem.startswith(_OWN):
                value, own = value.T, _bias_behind(uses, name).removesuffix("bias") + "weight"
        if value.dtype == np.float32:
            found[own] = np.array(value, order="C")
    return found


def _float(value: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    return ((value.astype(np.int32) - zero.astype(np.int32)) * scale).astype(np.float32)


def _bias_behind(uses: dict[str, list[Any]], name: str) -> str:
    """Name of the bias that is added to the product of which ``name`` is a factor."""
    while len(nodes := uses[name]) == 1:
        biases = [each for each in nodes[0].input if each.startswith(_OWN) and each.endswith("bias")]
        if biases:  # where the norm behind is fused in, its own bias comes before
            return biases[-1].removeprefix(_OWN)
        name = nodes[0].output[0]
    return ""
