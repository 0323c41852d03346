"""Read data sets of the Hugging Face hub, named ``hf:NAME[@REVISION][/CONFIG][:SPLIT]``.

Rows are streamed through ``datasets`` (extra ``torch``): no row is stored on disk, and memory holds one batch.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

from ragqa.artefacts import paths
from ragqa.corpus.formats.base import Document, InputFile, ProblemHandler
from ragqa.corpus.formats.tables import arrow
from ragqa.errors import BadInput

_PREFIX = "hf:"
_FORM = re.compile(
    r"""hf: (?P<name> \.{0,2}/[^@:]+ | [\w.-]+(?:/[\w.-]+)? )  # a folder, or a name with or without its owner
    (?: @ (?P<revision> refs/\w+/[\w.-]+ | [^/:@]+ ) )?
    (?: / (?P<config> [^/:@]+ ) )?
    (?: : (?P<split> .+ ) )?""",
    re.VERBOSE,
)
_OUTSIDE = re.compile(r"^[/~\\]|^[A-Za-z]:|(?:^|[/\\])\.\.(?:[/\\]|\Z)|://|::")
"""Pattern of a path that can lead out of a folder: an absolute path, a path with ``~`` or ``..``, or a URL."""


@dataclass(frozen=True)
class _DatasetName:
    """Parts of the name ``hf:NAME[@REVISION][/CONFIG][:SPLIT]``; a missing part is None."""

    name: str
    """Name on the hub, or path of a folder with the layout of the hub."""
    revision: str | None
    config: str | None
    split: str | None


def is_hub_name(path: str | Path) -> bool:
    """Return True if a path is the name of a data set on the hub."""
    return str(path).startswith(_PREFIX)


def make_absolute(path: str | Path) -> Path:
    """Return the absolute form of a path or of ``hf:./…``; other ``hf:…`` names do not change."""
    if not is_hub_name(path):
        return paths.make_absolute(path)
    name = str(path).removeprefix(_PREFIX)
    return Path(f"{_PREFIX}{paths.make_absolute(name)}" if name.startswith(".") else path)


def read_dataset(path: Path, problems: ProblemHandler) -> Iterator[tuple[InputFile, int, Document]]:
    """Yield the rows of a data set as documents.

    Each tuple has the data set as a file, the number of the row (from 1), and the document. ``arrow.read_table``
    describes the columns.

    Args:
        path: name of the data set, ``hf:…``.
        problems: handler of malformed rows and of a data set that cannot be read.

    Raises:
        BadInput: the name is malformed.
        BadInput, BadLine: in strict mode, as for ``arrow.read_table``.
        MissingExtra: in strict mode, ``datasets`` is not installed.
    """
    file = InputFile(str(path), path.name, BufferedReader(BytesIO()), problems)
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        file.reject_without_extra("torch", error)
        return
    for row, document in arrow.read_table(file, lambda: _open_table(parse_name(path))):
        problems.report.bytes_read += len(document.text)
        yield file, row, document


def parse_name(path: Path) -> _DatasetName:
    """Return the parts of the name of a data set; raise BadInput if the name is malformed."""
    match = _FORM.fullmatch(str(path))
    if match is None:
        form = "hf:NAME[@REVISION][/CONFIG][:SPLIT], as in hf:wikimedia/wikipedia/20231101.en:train"
        raise BadInput(f"{path} is not the name of a data set: {form}")
    return _DatasetName(**match.groupdict())


def _open_table(name: _DatasetName) -> arrow.Table:
    with _convert_errors():
        batches = iter(_load_split(name).with_format("arrow").iter(batch_size=arrow.BATCH_ROWS))
        first = next(batches, None)
        if first is None:
            raise OSError("there are no rows in it")
    return first.schema, _chain_batches(first, batches)


def _load_split(name: _DatasetName) -> Any:
    """Return the named split, or else the only split, as a ``datasets.IterableDataset``."""
    from datasets import load_dataset_builder

    is_folder = name.name.startswith(("/", "."))
    if is_folder:
        _check_card(Path(name.name))
    builder = load_dataset_builder(name.name, name.config, revision=name.revision)
    if is_folder:
        _check_data_files(Path(name.name), builder.config.data_files or {})
    loaded = builder.as_streaming_dataset(split=name.split)
    if name.split is not None:
        return loaded
    if len(loaded) != 1:
        raise OSError(f"choose one of its splits ({', '.join(loaded)}), as in hf:{name.name}:{next(iter(loaded))}")
    return next(iter(loaded.values()))


def _check_card(folder: Path) -> None:
    """Raise OSError if the card (metadata) of a data set names data outside of its folder."""
    import yaml
    from huggingface_hub import DatasetCard

    cards: dict[str, object] = {}
    if (readme := folder / "README.md").is_file():
        cards[readme.name] = DatasetCard.load(readme).data.to_dict()
    if (settings := folder / ".huggingface.yaml").is_file():
        cards[settings.name] = yaml.safe_load(settings.read_text("utf-8"))
    for name, card in cards.items():
        for pattern in _iter_strings(card, set()):
            if _OUTSIDE.search(pattern):
                raise OSError(f"{name} names data outside of the folder: {pattern[:80]!r}")


def _iter_strings(value: object, seen: set[int]) -> Iterator[str]:
    """Yield the strings under ``data_files`` and ``data_dir`` at any depth of a card.

    ``seen`` collects the ids (``id``) of the containers that were read.
    """
    # In YAML, a container can occur many times, and can contain itself.
    if not isinstance(value, (dict, list)) or id(value) in seen:
        return
    seen.add(id(value))
    pending = [value[key] for key in ("data_files", "data_dir") if key in value] if isinstance(value, dict) else []
    found = set[int]()
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, (dict, list)) and id(part) not in found:
            found.add(id(part))
            pending += part.values() if isinstance(part, dict) else part
    for part in value.values() if isinstance(value, dict) else value:
        yield from _iter_strings(part, seen)


def _check_data_files(folder: Path, data_files: Mapping[str, Sequence[str]]) -> None:
    """Raise OSError if a data file that ``datasets`` found is outside of the folder."""
    for path in chain.from_iterable(data_files.values()):
        # zip://NAME::/PATH is the file NAME in the archive PATH.
        if not Path(str(path).rpartition("::")[2]).is_relative_to(folder.resolve()):
            raise OSError(f"it names data outside of the folder: {str(path)[:80]!r}")


def _chain_batches(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    with _convert_errors():
        yield from rest


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert any error of the hub, the network or a file format to OSError."""
    try:
        yield
    except ConnectionError as error:
        raise OSError(
            f"its name is looked up at the Hugging Face hub, which cannot be reached ({error}): without network, index "
            "hf:./DIR, a copy that was made by: hf download NAME --repo-type dataset --local-dir DIR"
        ) from error
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error
