"""Names of all readers, and loading of a reader by a setting such as ``rag-token:DIRECTORY``.

To add a reader, write its file with a class that has ``load``, and add one member to ``ReaderKind`` and one entry to
``_READERS``. Classes are named and not imported here, so that looking up a name loads none of them.
"""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ragqa.errors import BadInput

if TYPE_CHECKING:
    from ragqa.reading.base import Decoding, Reader, RetrieverIdentity


class ReaderKind(StrEnum):
    """A way to answer from passages, by its name on command lines and in saved pipelines and generators."""

    SPAN = "span"
    RAG_TOKEN = "rag-token"
    RAG_SEQUENCE = "rag-sequence"
    FID = "fid"
    CLOSED_BOOK = "closed-book"

    @property
    def is_generative(self) -> bool:
        """True for readers that write their answers."""
        return self is not ReaderKind.SPAN

    @property
    def uses_scores(self) -> bool:
        """True for readers whose prior over passages was trained with the scores of one retriever (RAG)."""
        return self in (ReaderKind.RAG_TOKEN, ReaderKind.RAG_SEQUENCE)


_SPAN, _GENERATIVE = "ragqa.reading.span:ExtractiveReader", "ragqa.reading.generative:GenerativeReader"
_READERS = {
    ReaderKind.SPAN: _SPAN,
    ReaderKind.RAG_TOKEN: _GENERATIVE,
    ReaderKind.RAG_SEQUENCE: _GENERATIVE,
    ReaderKind.FID: _GENERATIVE,
    ReaderKind.CLOSED_BOOK: _GENERATIVE,
}
GENERATIVE_KINDS = tuple(kind for kind in ReaderKind if kind.is_generative)


def open_reader(
    setting: str | None,
    *,
    decoding: "Decoding | None" = None,
    device: str = "cpu",
    scored_by: "RetrieverIdentity | None" = None,
) -> "Reader":
    """Open the reader that a setting names.

    Args:
        setting: directory of a reader, ``KIND:SOURCE`` for a seq2seq (directory or hub name) to use as that kind, or
            None for the reader that comes with the package.
        decoding: settings of a generative reader; None for those of its training.
        device: ``cpu``, ``cuda`` or ``cuda:N`` for torch models.
        scored_by: retriever that scores its hits; None if it is the one of its training.

    Raises:
        ArtefactError, DamagedArtefact: there is no reader, or it is not whole.
        BadInput: ``decoding`` is given for a span reader, or is out of range.
    """
    kind, source = split_setting(setting)
    if kind is None and not (source and is_generator(Path(source))):
        if decoding is not None:
            options = "--beams, --fast, --max-answer and --min-answer"
            raise BadInput(f"{options} are for readers that write, and this one marks spans: leave them out")
        span_reader: Reader = resolve_name(_SPAN).load(Path(source) if source else None, device=device)
        return span_reader
    reader_class = resolve_name(
        _READERS[ReaderKind(kind)] if kind else _GENERATIVE
    )  # without one, the directory names it
    generative: Reader = reader_class.load(source, kind, decoding=decoding, device=device, scored_by=scored_by)
    return generative


def split_setting(setting: str | None) -> tuple[str | None, str | None]:
    """Return kind and source of a setting; either may be None.

    Raises:
        BadInput: there is a kind, but no source after the colon.
    """
    kind, colon, source = (setting or "").partition(":")
    if colon and kind in GENERATIVE_KINDS:
        if not source:
            raise BadInput(f"--reader {setting}: name the directory of the model after the colon")
        return kind, source
    return None, setting


def relocate_setting(setting: str, relocate: Callable[[str], str]) -> str:
    """Apply ``relocate`` to the path in a setting; the hub name of a model stays as it is."""
    kind, source = split_setting(setting)
    assert source is not None
    if kind is None:
        return relocate(source)
    return f"{kind}:{relocate(source) if source.startswith('.') or Path(source).exists() else source}"


def is_generator(path: Path) -> bool:
    """Tell whether the directory ``path`` holds a seq2seq, trained here or elsewhere."""
    if (path / "generator.json").is_file():
        return True
    try:
        config = json.loads((path / "config.json").read_text())
        return bool(config.get("is_encoder_decoder")) or config.get("model_type") == "rag"
    except (OSError, ValueError, AttributeError):
        return False


def resolve_setting(name: str, readers: Mapping[str, str], owner: object) -> str:
    """Return the setting that a pipeline stores under ``name``, or ``name`` if it is a setting itself.

    Args:
        name: name or setting.
        readers: settings of the pipeline's readers by their names.
        owner: path of the pipeline, for messages.

    Raises:
        BadInput: the pipeline has no reader of that name.
    """
    if name in readers:
        return readers[name]
    if name in list(ReaderKind):
        hint = f"it has {', '.join(readers)}" if readers else f"give a directory, or {name}:DIRECTORY"
        raise BadInput(f"--reader {name}: {owner} names no such reader; {hint}")
    if readers and ":" not in name and not Path(name).exists():
        raise BadInput(f"--reader {name}: {owner} has {', '.join(readers)}, and no such directory is there")
    return name


def kind_of_fingerprint(fingerprint: str) -> ReaderKind:
    """Return the kind of the reader with this fingerprint, as reports record it."""
    return ReaderKind(fingerprint.partition("-")[2] or ReaderKind.SPAN)
