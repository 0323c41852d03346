"""Restore torch weights from an exported reader, so that it can be trained further.

The restored weights are the 8-bit weights of the export, converted to float32.
"""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.errors import DamagedArtefact, Mismatch, MissingExtra

_READER_PREFIX = "function."
"""Prefix that the exporter puts before the names of a reader's parameters."""


def restore_weights(exported: Path, encoder: Path, out: Path) -> None:
    """Write a torch reader with the weights and the tokenizer of an exported reader.

    Args:
        exported: directory of an exported reader.
        encoder: directory of the encoder from which the reader was trained; an export does not hold its architecture.
        out: directory to write; a reader there is replaced.

    Raises:
        BadInput: ``out`` holds something other than a reader, or cannot be written.
        MissingExtra: torch, transformers or onnx is not installed.
        ArtefactError, DamagedArtefact: there is no exported reader, it or the encoder is incomplete, or ``out`` holds a
            damaged reader.
        Mismatch: the reader has another shape or tokenizer than the encoder, does not score starts and ends, or was
            exported by a newer version of ragqa.
    """
    try:
        import onnx
        import torch

        from ragqa.models.pretrained import load_encoder_module
        from ragqa.models.span_readers import SpanReader, check_replaceable
    except ImportError as error:
        raise MissingExtra("making torch weights of an export", "torch") from error
    check_replaceable(out)
    config = artefacts.read_manifest(exported, "reader").config
    if (head := config.get("reader", SpanReader.head_name)) != SpanReader.head_name:
        only = f"only readers with the head '{SpanReader.head_name}' can be restored"
        raise Mismatch(f"{exported} holds a reader with the head '{head}': {only}")
    tokenizer, expected = exported / "tokenizer.json", encoder / "tokenizer.json"
    if not expected.is_file() or tokenizer.read_bytes() != expected.read_bytes():
        raise Mismatch(
            f"{encoder} does not have the tokenizer.json of {exported}: "
            "name the encoder that the reader was trained from"
        )
    reader = SpanReader(load_encoder_module(encoder), has_pooler=bool(config.get("pooler")))
    if early_layer := config.get("early_layer"):
        reader.add_early_head(early_layer)
    reader.config.reader_absence = bool(config.get("absence"))
    reader.config.reader_tokens = config["max_tokens"]
    if config.get("max_span"):
        reader.config.reader_span = config["max_span"]
    table = _read_embeddings(exported, config)
    weights: dict[str, np.ndarray] = {}
    for file in (artefacts.MODEL, artefacts.LATER_MODEL) if early_layer else (artefacts.MODEL,):
        weights |= _read_weights(onnx.load(exported / file, load_external_data=False).graph, table)
    known = {name: torch.from_numpy(value) for name, value in weights.items() if name in reader.state_dict()}
    try:
        missing, _ = reader.load_state_dict(known, strict=False)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise Mismatch(f"{exported} does not have the shape of {encoder}: {reason}") from error
    if missing:
        raise Mismatch(f"{exported} has no {missing[0]}, which a reader made from {encoder} has")
    with artefacts.replace_directory(out) as folder:
        reader.save(folder)
        shutil.copyfile(tokenizer, folder / "tokenizer.json")


def _read_embeddings(exported: Path, config: dict[str, Any]) -> np.ndarray:
    row = config["embeddings"]
    file = exported / row["file"]
    if not file.is_file() or artefacts.checksum(file) != row["sha256"]:
        raise DamagedArtefact(f"{file} is not the file of embeddings that {exported} was exported with")
    return np.fromfile(file, np.dtype(row["dtype"])).reshape(row["shape"])


def _read_weights(graph: Any, table: np.ndarray) -> dict[str, np.ndarray]:
    """Return the parameters of a graph in float32, by their names in torch.

    The exporter renames the weights of matrix products but not their biases. So the name of a weight is found from the
    bias that is added to the product.
    """
    from onnx import TensorProto, numpy_helper

    initializers = {
        tensor.name: table if tensor.data_location == TensorProto.EXTERNAL else numpy_helper.to_array(tensor)
        for tensor in graph.initializer
    }
    uses = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            uses[name].append(node)
    weights = {}
    for name, value in initializers.items():
        stem = name.removesuffix("_quantized")
        parameter = stem.removeprefix(_READER_PREFIX)
        if stem != name:  # weights of MatMulInteger are [in, out], with a scale for each output
            scale, zero = initializers[f"{stem}_scale"], initializers[f"{stem}_zero_point"]
            value = ((value.astype(np.int32) - zero.astype(np.int32)) * scale).astype(np.float32)
            if not stem.startswith(_READER_PREFIX):
                value, parameter = value.T, _find_bias(uses, name).removesuffix("bias") + "weight"
        if value.dtype == np.float32:
            weights[parameter] = np.array(value, order="C")
    return weights


def _find_bias(uses: dict[str, list[Any]], name: str) -> str:
    """Return the name of the bias of the product with the weight ``name``, or an empty text."""
    while len(nodes := uses[name]) == 1:
        biases = [key for key in nodes[0].input if key.startswith(_READER_PREFIX) and key.endswith("bias")]
        if biases:  # a layer norm fused into the node lists its own bias first
            return biases[-1].removeprefix(_READER_PREFIX)
        name = nodes[0].output[0]
    return ""
