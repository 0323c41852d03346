"""Which reader a setting names; nothing heavy is imported before that is known."""

import json
from collections.abc import Callable
from pathlib import Path

from ragqa.errors import BadInput
from ragqa.reading.base import Decoding, Reader

GENERATORS = ("rag-token", "rag-sequence", "fid", "closed-book")
"""Kinds of readers that write their answers."""
NAMES = ("span", *GENERATORS)
"""What a pipeline may call its readers."""


def open_reader(setting: str | None, *, decoding: Decoding | None = None, device: str = "cpu") -> Reader:
    """The default reader, that of a directory, or with ``KIND:SOURCE`` a seq2seq (directory or hub name) used so.

    Raises:
        ArtefactError, DamagedArtefact: see ``ExtractiveReader.load`` and ``GenerativeReader.load``.
        BadInput: the same, or there is a ``decoding`` for a reader that writes nothing.
    """
    kind, source = split(setting)
    if kind is None and not (source and writes(Path(source))):
        from ragqa.reading.span import ExtractiveReader

        if decoding is not None:
            options = "--beams, --fast, --max-answer and --min-answer"
            raise BadInput(f"{options} are for readers that write, and this one marks spans: leave them out")
        return ExtractiveReader.load(Path(source) if source else None, device=device)
    from ragqa.reading.generative import GenerativeReader

    assert source is not None
    return GenerativeReader.load(source, kind, decoding=decoding, device=device)


def split(setting: str | None) -> tuple[str | None, str | None]:
    """Kind and source of a setting; either may be None."""
    kind, colon, source = (setting or "").partition(":")
    if colon and kind in GENERATORS:
        if not source:
            raise BadInput(f"--reader {setting}: name the directory of the model behind the colon")
        return kind, source
    return None, setting


def moved(setting: str, move: Callable[[str], str]) -> str:
    """The setting with its place moved; the name of a model on the hub stays."""
    kind, source = split(setting)
    assert source is not None
    if kind is None:
        return move(source)
    return f"{kind}:{move(source) if source.startswith('.') or Path(source).exists() else source}"


def writes(path: Path) -> bool:
    """Whether a generator lies in the directory ``path``: a seq2seq, whatever it is used as."""
    if (path / "generator.json").is_file():
        return True
    try:
        config = json.loads((path / "config.json").read_text())
        return bool(config.get("is_encoder_decoder")) or config.get("model_type") == "rag"
    except (OSError, ValueError, AttributeError):
        return False


def named(wanted: str, readers: dict[str, str], where: object) -> str:
    """The setting that a pipeline keeps for the reader it calls ``wanted``, or ``wanted`` where that is no name.

    Raises:
        BadInput: it has none of that name.
    """
    if wanted in readers:
        return readers[wanted]
    if wanted in NAMES:
        has = f"it has {', '.join(readers)}" if readers else f"give a directory, or {wanted}:DIRECTORY"
        raise BadInput(f"--reader {wanted}: {where} names no such reader; {has}")
    if readers and ":" not in wanted and not Path(wanted).exists():
        raise BadInput(f"--reader {wanted}: {where} has {', '.join(readers)}, and no such directory is there")
    return wanted
