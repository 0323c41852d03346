"""Data sets of the Hugging Face hub, named ``hf:NAME[@REVISION][/CONFIG][:SPLIT]``.

Rows are streamed through ``datasets`` (extra ``torch``): nothing is stored on disk, and memory holds one batch.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

from ragqa.artefacts import paths
from ragqa.corpus.formats import tables
from ragqa.corpus.formats.base import Document, InputFile, ProblemHandler
from ragqa.errors import BadInput

_PREFIX = "hf:"
_FORM = re.compile(
    r"""hf: (?P<name> \.{0,2}/[^@:]+ | [\w.-]+(?:/[\w.-]+)? )  # a folder, or a name with or without its owner
    (?: @ (?P<revision> refs/\w+/[\w.-]+ | [^/:@]+ ) )?
    (?: / (?P<config> [^/:@]+ ) )?
    (?: : (?P<split> .+ ) )?""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class _DatasetName:
    """Parts of the name ``hf:NAME[@REVISION][/CONFIG][:SPLIT]``."""

    name: str
    """Name on the hub, or path of a folder with the layout of the hub."""
    revision: str | None
    config: str | None
    split: str | None


def is_hub_name(path: str | Path) -> bool:
    """Return True if a path is the name of a data set on the hub."""
    return str(path).startswith(_PREFIX)


def make_absolute(path: str | Path) -> Path:
    """Return an absolute path, also for the folder in ``hf:./…``; hub names do not change."""
    if not is_hub_name(path):
        return paths.make_absolute(path)
    name = str(path).removeprefix(_PREFIX)
    return Path(f"{_PREFIX}{paths.make_absolute(name)}" if name.startswith(".") else path)


def read_dataset(path: Path, problems: ProblemHandler) -> Iterator[tuple[InputFile, int, Document]]:
    """Yield each row of a data set as a document, with its file and row number.

    ``tables.read_table`` describes the columns and the errors.

    Raises:
        MissingExtra: ``datasets`` is not installed, and bad input is not skipped.
    """
    file = InputFile(str(path), path.name, BufferedReader(BytesIO()), problems)
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        file.reject_without_extra("torch", error)
        return
    for row, document in tables.read_table(file, lambda: _open_table(parse_name(path))):
        problems.report.bytes_read += len(document.text)
        yield file, row, document


def parse_name(path: Path) -> _DatasetName:
    """Parse the name of a data set; raise BadInput if it is malformed."""
    match = _FORM.fullmatch(str(path))
    if match is None:
        form = "hf:NAME[@REVISION][/CONFIG][:SPLIT], as in hf:wikimedia/wikipedia/20231101.en:train"
        raise BadInput(f"{path} is not the name of a data set: {form}")
    return _DatasetName(**match.groupdict())


def _open_table(name: _DatasetName) -> tables.Table:
    with _convert_errors():
        batches = iter(_load_split(name).with_format("arrow").iter(batch_size=tables.BATCH_ROWS))
        first = next(batches, None)
        if first is None:
            raise OSError("there are no rows in it")
    return first.schema, _chain_batches(first, batches)


def _load_split(name: _DatasetName) -> Any:
    """Return the split as a ``datasets.IterableDataset``."""
    from datasets import load_dataset

    loaded = load_dataset(name.name, name.config, split=name.split, revision=name.revision, streaming=True)
    if name.split is not None:
        return loaded
    if len(loaded) != 1:
        raise OSError(f"choose one of its splits ({', '.join(loaded)}), as in hf:{name.name}:{next(iter(loaded))}")
    return next(iter(loaded.values()))


def _chain_batches(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    with _convert_errors():
        yield from rest


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert any error of the hub, the network or a file format to OSError."""
    try:
        yield
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error
