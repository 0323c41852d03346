"""Export a trained encoder or reader to 8-bit ONNX: the one way from ``models/`` to a CPU.

Weights are quantised per channel, activations when the model runs (dynamic quantisation). The
word embeddings go into a file of their own, so that a reader whose embeddings stayed those of an
encoder can share them.
"""

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput, Mismatch, MissingExtra
from ragqa.runtime import encoder as encoders
from ragqa.runtime.runner import session

EMBEDDINGS = "embeddings.bin"
CARD = "README.md"
KINDS = ("encoder", "reader")
OWN = (artefacts.MANIFEST, "model.onnx", EMBEDDINGS, "tokenizer.json", "questions", artefacts.CALIBRATION, CARD)
"""What lies in an export."""


def export(source: str | Path, out: Path, *, share: Path | None = None, card: Path | None = None) -> artefacts.Manifest:
    """Export the torch model at ``source`` into the directory ``out``.

    Args:
        source: directory of a reader of ``ragqa.models``, or directory or hub name of an encoder.
        out: directory to write; replaced as a whole when the export is whole. An export of the same weights there
            leaves its calibration and its card to the new one, which has none of its own.
        share: export of an encoder with the same word embeddings, to use its file.
        card: Markdown model card to put beside the weights as README.md.

    Raises:
        MissingExtra: torch, transformers or onnx is not installed.
        Mismatch: ``share`` has other embeddings.
        BadInput: there is no such card.
    """
    if card is not None and not card.is_file():
        raise BadInput(f"--card {card}: there is no such file")
    try:
        import onnx  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtra("exporting a model", "torch") from error
    artefacts.check_replaceable(out, *KINDS)
    artefacts.check_no_other_files(out, OWN)
    first, *second = encoders.towers(str(source))
    kind, module, path, config = _trained(first)
    with artefacts.replace_directory(out) as folder:
        config["embeddings"] = _write(module, kind, folder, out, share)
        if second:
            _, module, _, asked = _trained(second[0])
            config = encoders.joined(config, asked)
            config["questions"] = {"embeddings": _write(module, kind, folder / "questions", out / "questions", None)}
        shutil.copyfile(path / "tokenizer.json", folder / "tokenizer.json")
        for name, given in {artefacts.CALIBRATION: path / artefacts.CALIBRATION, CARD: card}.items():
            _add(folder, name, given, out, config["identity"])
        return artefacts.write_manifest(folder, kind, config, {"weights": config["identity"]})


@contextmanager
def amending(path: Path) -> Iterator[Path]:
    """A copy of an exported encoder or reader to add small files to; sealed, it takes its place if the block ends well.

    Raises:
        ArtefactError, DamagedArtefact: ``path`` is no export, or not whole.
    """
    kind = artefacts.peek_manifest(path).kind
    if kind not in KINDS:
        raise ArtefactError(f"{path} is a ragqa {kind}, not an exported encoder or reader")
    manifest = artefacts.read_manifest(path, kind)
    with artefacts.replace_directory(path) as folder:
        shutil.copytree(path, folder, dirs_exist_ok=True)
        yield folder
        artefacts.write_manifest(folder, kind, manifest.config, manifest.parents)


def _add(folder: Path, name: str, given: Path | None, out: Path, identity: str) -> None:
    """Put ``given`` into ``folder`` or, where there is none, what an export of the same weights at ``out`` has."""
    if given is None or not given.is_file():
        try:
            given = out / name if artefacts.peek_manifest(out).parents.get("weights") == identity else None
        except ArtefactError:
            return
    if given is not None and given.is_file():
        shutil.copyfile(given, folder / name)


def _write(module: Any, kind: str, folder: Path, out: Path, share: Path | None) -> dict[str, Any]:
    """Write a model into ``folder``, which will be ``out``; where its embeddings are."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        model = _quantised(module, kind, Path(scratch))
    embeddings = _split_embeddings(model, folder, out, share)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return embeddings


def _trained(source: str | Path) -> tuple[str, Any, Path, dict[str, Any]]:
    """Kind, module (ids, types) -> outputs, directory and config of the model at ``source``."""
    import torch

    from ragqa.models import readers
    from ragqa.models.encoder_attention import UNPADDED, choose_attention

    path = Path(source)
    weights = path / "model.safetensors"
    if path.is_dir() and not weights.is_file():
        raise ArtefactError(f"{path} has no model.safetensors to export")
    is_reader = readers.read_reader_kind(path) is not None

    class Alone(torch.nn.Module):
        """The model on one unpadded text: no mask, so none is computed."""

        def __init__(self, model: Any, function: Any) -> None:
            super().__init__()
            self.model, self.function = model, function

        def forward(self, ids: Any, types: Any) -> Any:
            return self.function(ids, None if is_reader else torch.ones_like(ids), types)

    if is_reader:
        reader = readers.load_reader(path).eval()
        choose_attention(reader, UNPADDED)
        config = {**readers.describe_reader(reader), "identity": artefacts.checksum(weights)[:16]}
        return "reader", Alone(reader, reader), path, config
    function, path, settings = encoders.torch_encoder(str(source))
    choose_attention(function.model, UNPADDED)
    config = {**settings, "identity": encoders.identity(path, settings)}
    return "encoder", Alone(function.model, function), path, config


def _quantised(module: Any, kind: str, scratch: Path) -> Any:
    """The module as an optimised ONNX model with 8-bit weights."""
    import onnx
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    ids = torch.arange(16).unsqueeze(0)
    outputs = ["vector"] if kind == "encoder" else list(module.model.outputs)
    length = {1: torch.export.Dim.DYNAMIC}
    with warnings.catch_warnings(), _silent():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (ids, torch.zeros_like(ids)),
            str(scratch / "full.onnx"),
            input_names=["input_ids", "token_type_ids"],
            output_names=outputs,
            dynamic_shapes=(length, length),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        # Fused once, here: opening is then three times faster than fusing in every process.
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(scratch / "fused.onnx")
        options.log_severity_level = 3
        session(scratch / "full.onnx", options)
        # Signed weights: unsigned ones run at 0.6 of the speed on AVX-512 VNNI. Half their range, so 7 bits: without
        # VNNI, sums of two products are kept in 16 bits, and those of the whole range do not fit.
        signed = {"per_channel": True, "reduce_range": True, "weight_type": QuantType.QInt8}
        quantize_dynamic(scratch / "fused.onnx", scratch / "int8.onnx", **signed)
        _check_runs(scratch / "int8.onnx")
    return onnx.load(scratch / "int8.onnx")


def _check_runs(model: Path) -> None:
    """Raise ArtefactError where ONNX Runtime cannot compute it: DeBERTa's products of positions in 8 bits, say."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    runs = session(model, options)
    ids = np.arange(9)[None]
    try:
        runs.run(None, {each.name: ids if each.name == "input_ids" else ids * 0 for each in runs.get_inputs()})
    except Exception as error:  # of its own kinds
        reason = str(error).strip().split("\n")[0][:200]
        raise ArtefactError(
            f"ONNX Runtime cannot compute this model in 8 bits ({reason}): answer with its torch directory"
        ) from error


@contextmanager
def _silent() -> Iterator[None]:
    """No lines of exporter and quantiser on what is not installed, and what was done before quantising."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _split_embeddings(model: Any, folder: Path, out: Path, share: Path | None) -> dict[str, Any]:
    """Move the word embeddings out of ``model`` into a file, or point to the shared one."""
    from onnx import TensorProto, numpy_helper

    tensor = max(model.graph.initializer, key=lambda t: int(np.prod(t.dims)))
    table = np.ascontiguousarray(numpy_helper.to_array(tensor))
    file = folder / EMBEDDINGS
    table.tofile(file)
    digest, location = artefacts.checksum(file), EMBEDDINGS
    if share is not None:
        if artefacts.read_manifest(share, "encoder").files[EMBEDDINGS]["sha256"] != digest:
            raise Mismatch(f"the embeddings of {share} are not those of this model: export without --share")
        file.unlink()
        location = _relative(share / EMBEDDINGS, out)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", EMBEDDINGS), ("offset", "0"), ("length", str(table.nbytes))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return {
        "name": tensor.name,
        "file": location,
        "dtype": table.dtype.str,
        "shape": list(table.shape),
        "sha256": digest,
    }


def _relative(target: Path, base: Path) -> str:
    import os

    return Path(os.path.relpath(target.resolve(), base.resolve())).as_posix()
