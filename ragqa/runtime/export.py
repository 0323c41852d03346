"""Export a trained encoder or reader to 8-bit ONNX, to run it on a CPU without torch.

Weights are quantised per channel at export, and activations when the model runs (dynamic quantisation). The word
embeddings are in a separate file, so that a reader and the encoder from which it was trained can share them.
"""

import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.paths import suggest_model_folder
from ragqa.errors import ArtefactError, BadInput, Mismatch, MissingExtra, summarize_error
from ragqa.runtime import encoder as encoders
from ragqa.runtime.runner import create_session

EMBEDDINGS_FILE = "embeddings.bin"
CARD_FILE = "README.md"
_KINDS = ("encoder", "reader")
_SMALL_FILES = (artefacts.CALIBRATION, CARD_FILE)


def export(source: str | Path, out: Path, *, share: Path | None = None, card: Path | None = None) -> artefacts.Manifest:
    """Export the torch model at ``source`` into the directory ``out``.

    Args:
        source: directory of a reader of ``ragqa.models``, or directory or hub name of an encoder.
        out: directory to write; it is replaced when the export is complete. An earlier export of the same weights
            leaves its calibration unless ``source`` has one, and its model card unless ``card`` is given.
        share: directory of an exported encoder with the same word embeddings, whose file is used instead of a copy.
        card: Markdown model card to copy as README.md.

    Returns:
        The manifest of the export.

    Raises:
        MissingExtra: torch, transformers or onnx is not installed.
        Mismatch: ``share`` has other embeddings, or ``source`` is one of DPR's two encoders.
        BadInput: the card does not exist, or ``out`` holds something else or cannot be written.
        ArtefactError, DamagedArtefact: there is no model at ``source``, ``source`` or ``share`` is incomplete, or ONNX
            Runtime cannot compute the model in 8 bits.
    """
    if card is not None and not card.is_file():
        raise BadInput(f"--card {card}: there is no such file")
    try:
        import onnx  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtra("exporting a model", "torch") from error
    artefacts.check_replaceable(out, *_KINDS)
    first, *second = encoders.find_towers(str(source))
    kind, graphs, path, config = _load_model(first)
    with artefacts.replace_directory(out) as folder:
        config["embeddings"] = _write_model(graphs, folder, out, share)
        if second:
            _, graphs, _, questions = _load_model(second[0])
            config = encoders.join_towers(config, questions)
            embeddings = _write_model(graphs, folder / "questions", out / "questions", None)
            config["questions"] = {"embeddings": embeddings}
        shutil.copyfile(path / "tokenizer.json", folder / "tokenizer.json")
        for name, new in zip(_SMALL_FILES, (path / artefacts.CALIBRATION, card), strict=True):
            _copy_small_file(folder, name, new, out, config["identity"])
        return artefacts.write_manifest(folder, kind, config, {"weights": config["identity"]})


@contextmanager
def amend_export(path: Path) -> Iterator[Path]:
    """Yield a copy of an export, in which the block may change or add files.

    After the block, the copy gets a new manifest and replaces the export. If the block fails, the export is unchanged.

    Args:
        path: directory of the export.

    Raises:
        ArtefactError, DamagedArtefact: ``path`` is not an export, or is incomplete.
        Mismatch: a newer version of ragqa wrote the export.
        BadInput: ``path`` holds files of the user, or cannot be written.
    """
    kind = artefacts.peek_manifest(path).kind
    if kind not in _KINDS:
        raise ArtefactError(f"{path} is a ragqa {kind}, not an exported encoder or reader")
    manifest = artefacts.read_manifest(path, kind)
    with artefacts.replace_directory(path) as folder:
        shutil.copytree(path, folder, dirs_exist_ok=True)
        yield folder
        artefacts.write_manifest(folder, kind, manifest.config, manifest.parents)


def _copy_small_file(folder: Path, name: str, file: Path | None, out: Path, identity: str) -> None:
    """Copy a small file into an export.

    If there is no ``file``, the file of an earlier export of the same weights in ``out`` is copied.
    """
    if file is None or not file.is_file():
        try:
            file = out / name if artefacts.peek_manifest(out).parents.get("weights") == identity else None
        except ArtefactError:
            return
    if file is not None and file.is_file():
        shutil.copyfile(file, folder / name)


@dataclass(frozen=True)
class _Graph:
    file: str
    module: Any
    inputs: dict[str, Any]
    """Example inputs ``[1, L, …]`` by their names."""
    outputs: Sequence[str]
    """Names of the outputs."""


def _write_model(graphs: Sequence[_Graph], folder: Path, out: Path, share: Path | None) -> dict[str, Any]:
    """Write a model's graphs and word embeddings; return the config's entry ``embeddings``.

    The first graph has the word embeddings. ``folder`` later becomes ``out``.
    """
    folder.mkdir(exist_ok=True)
    embeddings: dict[str, Any] = {}
    for graph in graphs:
        with tempfile.TemporaryDirectory() as scratch:
            model = _quantise(graph, Path(scratch))
        embeddings = embeddings or _split_embeddings(model, folder, out, share)
        (folder / graph.file).write_bytes(model.SerializeToString())
    return embeddings


def _load_model(source: str | Path) -> tuple[str, list[_Graph], Path, dict[str, Any]]:
    import torch

    from ragqa.models import span_readers
    from ragqa.models.attention import UNPADDED, choose_attention

    path = Path(source)
    weights = path / "model.safetensors"
    if path.is_dir() and not weights.is_file():
        hint = ": it is an export already" if (path / artefacts.MODEL).is_file() else suggest_model_folder(path)
        raise ArtefactError(f"{path} has no model.safetensors to export{hint}")
    is_reader = span_readers.read_head_name(path) is not None
    if is_reader:
        model = span_readers.load_reader(path).eval()
        config = {**model.describe(), "identity": artefacts.checksum(weights)[:16]}
    else:
        model, path, config = encoders.load_tower(str(source))
        config["identity"] = encoders.compute_identity(path, config)
    choose_attention(model, UNPADDED)

    class SingleText(torch.nn.Module):
        """Model that reads one unpadded text and needs no attention mask."""

        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            # The exporter names weights after an attribute: after ``model`` for an encoder, ``function`` for a reader.
            # ``restore`` relies on these names.
            self.model, self.function = model, model if is_reader else None
            self.run = function

        def forward(self, *inputs: Any) -> Any:
            return self.run(*inputs)

    ids = torch.arange(16).unsqueeze(0)
    texts = {"input_ids": ids, "token_type_ids": torch.zeros_like(ids)}
    if not is_reader:
        encode = SingleText(lambda ids, types: (model(ids, torch.ones_like(ids)),))
        return "encoder", [_Graph(artefacts.MODEL, encode, texts, ["vector"])], path, config
    reader: Any = model
    if config.get("early_layer") is None:
        read = SingleText(lambda ids, types: model(ids, None, types))
        return "reader", [_Graph(artefacts.MODEL, read, texts, model.outputs)], path, config
    hidden = {"hidden": torch.zeros(1, 16, model.config.hidden_size)}
    graphs = [
        _Graph(artefacts.MODEL, SingleText(reader.read_early), texts, ["hidden", "early"]),
        _Graph(artefacts.LATER_MODEL, SingleText(reader.read_on), hidden, model.outputs),
    ]
    return "reader", graphs, path, config


def _quantise(graph: _Graph, scratch: Path) -> Any:
    import onnx
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    length = {1: torch.export.Dim.DYNAMIC}
    with _silence_warnings():
        torch.onnx.export(
            graph.module,
            tuple(graph.inputs.values()),
            str(scratch / "full.onnx"),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=((length,) * len(graph.inputs),),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        # Fuse operators now: a process opens a fused model three times as fast as a model that it has to fuse.
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(scratch / "fused.onnx")
        options.log_severity_level = 3
        create_session(scratch / "full.onnx", options)
        # Weights are signed, because unsigned weights have only 0.6 of the speed on AVX-512 VNNI. They use half the
        # range of 8 bits (reduce_range), because CPUs without VNNI add two products in 16 bits, which can overflow.
        options_int8 = {"per_channel": True, "reduce_range": True, "weight_type": QuantType.QInt8}
        quantize_dynamic(scratch / "fused.onnx", scratch / "int8.onnx", **options_int8)
        _check_runs(scratch / "int8.onnx", {name: tensor.numpy() for name, tensor in graph.inputs.items()})
    return onnx.load(scratch / "int8.onnx")


def _check_runs(model: Path, inputs: dict[str, np.ndarray]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    loaded = create_session(model, options)
    try:
        loaded.run(None, {item.name: inputs[item.name][:, :9] for item in loaded.get_inputs()})
    except Exception as error:  # ONNX Runtime has its own types; it fails for example on DeBERTa
        reason = summarize_error(error)[:200]
        raise ArtefactError(
            f"ONNX Runtime cannot compute this model in 8 bits ({reason}): answer with its torch directory"
        ) from error


@contextmanager
def _silence_warnings() -> Iterator[None]:
    """Suppress warnings of export and quantisation, which users cannot act on."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _split_embeddings(model: Any, folder: Path, out: Path, share: Path | None) -> dict[str, Any]:
    """Move the word embeddings of a model to a file, or refer to the equal file in ``share``."""
    from onnx import TensorProto, numpy_helper

    tensor = max(model.graph.initializer, key=lambda t: int(np.prod(t.dims)))  # the word embeddings are the largest
    table = np.ascontiguousarray(numpy_helper.to_array(tensor))
    file = folder / EMBEDDINGS_FILE
    table.tofile(file)
    digest, location = artefacts.checksum(file), EMBEDDINGS_FILE
    if share is not None:
        if artefacts.read_manifest(share, "encoder").files[EMBEDDINGS_FILE]["sha256"] != digest:
            raise Mismatch(f"the embeddings of {share} are not those of this model: export without --share")
        file.unlink()
        location = Path(os.path.relpath((share / EMBEDDINGS_FILE).resolve(), out.resolve())).as_posix()
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", EMBEDDINGS_FILE), ("offset", "0"), ("length", str(table.nbytes))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    shape = {"dtype": table.dtype.str, "shape": list(table.shape)}
    return {"name": tensor.name, "file": location, **shape, "sha256": digest}
