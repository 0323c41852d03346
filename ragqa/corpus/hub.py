"""Data sets of the Hugging Face hub, named ``hf:NAME[@REVISION][/CONFIG][:SPLIT]``, through ``datasets``.

Rows are streamed: nothing is kept on disk, and in memory a batch. The extra ``torch`` brings ``datasets``.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

from ragqa.artefacts import paths
from ragqa.corpus.formats import columns
from ragqa.corpus.formats.base import Document, InputFile, ProblemHandler
from ragqa.errors import BadInput, MissingExtra

_PREFIX = "hf:"
_FORM = re.compile(
    r"""hf: (?P<name> \.{0,2}/[^@:]+ | [\w.-]+(?:/[\w.-]+)? )  # a folder, or a name with or without its owner
    (?: @ (?P<revision> refs/\w+/[\w.-]+ | [^/:@]+ ) )?
    (?: / (?P<config> [^/:@]+ ) )?
    (?: : (?P<split> .+ ) )?""",
    re.VERBOSE,
)
_ROWS = 256
"""Of a batch."""


@dataclass(frozen=True)
class _Name:
    """What ``hf:…`` names."""

    name: str
    """On the hub, or of a folder that is laid out as on the hub."""
    revision: str | None
    config: str | None
    split: str | None


def is_hub(path: str | Path) -> bool:
    """Whether a path is meant as a name on the hub."""
    return str(path).startswith(_PREFIX)


def absolute(path: str | Path) -> Path:
    """Make a path, or the folder in ``hf:./…``, absolute; a name on the hub stays as it is."""
    if not is_hub(path):
        return paths.make_absolute(path)
    there = str(path).removeprefix(_PREFIX)
    return Path(f"{_PREFIX}{paths.make_absolute(there)}" if there.startswith(".") else path)


def check(path: Path) -> None:
    """Raise BadInput on a name that cannot be one of a data set."""
    _parsed(path)


def read(path: Path, intake: ProblemHandler) -> Iterator[tuple[InputFile, int, Document]]:
    """The rows of the data set in their order, each a document; see ``columns.records``.

    Raises MissingExtra where ``datasets`` is not installed, unless bad input is skipped.
    """
    source = InputFile(str(path), path.name, BufferedReader(BytesIO()), intake)
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        missing = MissingExtra(f"reading {path}", "torch")
        if not intake.skip_bad:
            raise missing from error
        source.bad(str(missing))
        return
    for row, document in columns.records(source, lambda: _opened(_parsed(path))):
        intake.report.bytes_read += len(document.text)
        yield source, row, document


def _parsed(path: Path) -> _Name:
    match = _FORM.fullmatch(str(path))
    if match is None:
        form = "hf:NAME[@REVISION][/CONFIG][:SPLIT], as in hf:wikimedia/wikipedia/20231101.en:train"
        raise BadInput(f"{path} is not the name of a data set: {form}")
    return _Name(**match.groupdict())


def _opened(name: _Name) -> columns.Table:
    with _as_os_error():
        batches = iter(_loaded(name).with_format("arrow").iter(batch_size=_ROWS))
        first = next(batches, None)
        if first is None:
            raise OSError("there are no rows in it")
    return first.schema, _batches(first, batches)


def _loaded(name: _Name) -> Any:
    """The split as an IterableDataset."""
    from datasets import load_dataset

    loaded = load_dataset(name.name, name.config, split=name.split, revision=name.revision, streaming=True)
    if name.split is not None:
        return loaded
    if len(loaded) != 1:
        raise OSError(f"choose one of its splits ({', '.join(loaded)}), as in hf:{name.name}:{next(iter(loaded))}")
    return next(iter(loaded.values()))


def _batches(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    with _as_os_error():
        yield from rest


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Whatever the hub, the network or a file format behind them raises, as one kind of error."""
    try:
        yield
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error
