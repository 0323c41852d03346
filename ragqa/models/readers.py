"""Detection and loading of the kinds of extractive readers."""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.mlp_reader import MlpSpanReader
from ragqa.models.span_reader import SpanReader

KINDS: dict[str, type[SpanReader] | type[MlpSpanReader]] = {
    reader.kind: reader for reader in (SpanReader, MlpSpanReader)
}

READER_FILES = ("config.json", "model.safetensors", "tokenizer.json", artefacts.CALIBRATION, "README.md")
"""Files of a reader's directory."""


def read_reader_kind(path: Path) -> str | None:
    """Return the kind of the reader in the directory ``path``, one of ``KINDS``; None if there is no reader."""
    config, weights = path / "config.json", path / "model.safetensors"
    if not (config.is_file() and weights.is_file()):
        return None
    try:
        kind = json.loads(config.read_text()).get("reader")
    except (ValueError, AttributeError) as error:
        raise ArtefactError(f"{config} is damaged: {error}") from error
    if kind is None:  # earlier versions did not record the kind
        with safe_open(weights, "pt") as file:
            return SpanReader.kind if "head.weight" in file.keys() else None  # noqa: SIM118
    if kind not in KINDS:
        raise ArtefactError(f"{path} holds a reader of the unknown kind '{kind}'; ragqa has {', '.join(KINDS)}")
    return str(kind)


def check_replaceable(out: Path) -> None:
    """Raise BadInput unless ``out`` is new or holds a reader and no other files."""
    if out.exists() and (out.is_file() or any(out.iterdir())) and read_reader_kind(out) is None:
        raise BadInput(f"{out} holds something other than a reader: choose another directory")
    artefacts.check_no_other_files(out, READER_FILES)


def load_reader(path: Path) -> SpanReader | MlpSpanReader:
    """Load the reader in the directory ``path``.

    Raises:
        ArtefactError, DamagedArtefact: there is no reader, or its weights do not fit its configuration.
    """
    kind = read_reader_kind(path)
    if kind is None:
        raise ArtefactError(f"{path} is not a reader")
    return KINDS[kind].load(path)


def describe_reader(reader: SpanReader | MlpSpanReader) -> dict[str, Any]:
    """Return the settings of a reader that its ``SpanScorer`` needs."""
    return {
        "reader": reader.kind,
        "prior": reader.prior,
        "max_tokens": reader.max_tokens,
        "max_span": reader.max_span,
    }
