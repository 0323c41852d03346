"""What the jobs' command lines share: options from a dataclass, paths a cluster can find, errors in one line."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from ragqa.errors import BadInput, MissingExtra, RagqaError

Config = TypeVar("Config")


def parse(
    kind: type[Config], about: str | None, arguments: Sequence[str] | None = None, *, positional: bool = False
) -> Config:
    """The options of a job: the fields of the frozen dataclass ``kind``, given as ``--field value``.

    Those without a default are given as values alone, if ``positional``.

    ``--config FILE.json`` gives them, or some of them, as a JSON object; other options overrule it. Needs tyro
    for anything but ``--config`` alone.

    Raises:
        BadInput: the file is no such object.
        MissingExtra: tyro is needed and not installed.
    """
    rest = list(sys.argv[1:] if arguments is None else arguments)
    given: dict[str, Any] = {}
    if "--config" in rest:
        at = rest.index("--config")
        if at + 1 == len(rest):
            raise BadInput("--config needs the name of a JSON file")
        given = _read(kind, Path(rest[at + 1]))
        del rest[at : at + 2]
        if not rest:
            return _made(kind, given)
    try:
        import tyro
    except ImportError as error:
        raise MissingExtra("a command line of options (--config FILE.json does without)", "ray") from error
    names = [part for name, value in given.items() for part in _typed(name, value)]
    config: Config = tyro.cli(
        kind,
        prog=f"python -m index.{Path(sys.argv[0]).stem}",
        args=[*names, *rest],
        description=about,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalRequiredArgs)
        if positional
        else (tyro.conf.FlagCreatePairsOff,),
    )
    return config


def _read(kind: type, file: Path) -> dict[str, Any]:
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{file} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadInput(f"{file} is not a JSON object of options")
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(row) - set(known)):
        raise BadInput(f"{file}: there is no option {', '.join(unknown)}; there are {', '.join(known)}")
    return row


def _made(kind: type[Config], row: dict[str, Any]) -> Config:
    types = get_type_hints(kind)
    try:
        return kind(**{name: _as(types[name], value) for name, value in row.items()})
    except TypeError as error:  # a field without a default is not there, or a path is no text
        raise BadInput(f"--config: {str(error).rpartition('() ')[2]}") from error


def _as(wanted: Any, value: Any) -> Any:
    """A value of JSON as a field has it: paths are text there, tuples lists."""
    if isinstance(value, list):
        return tuple(_as(wanted, each) for each in value)
    return Path(value) if value and (wanted is Path or Path in get_args(wanted)) else value


def _typed(name: str, value: Any) -> list[str]:
    """An option as it would be typed; nothing for one that is off."""
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    return [option] if value is True else [option, str(value)]


def shared_path(path: Path, option: str) -> Path:
    """``path`` made absolute, so that it means the same to all machines of a cluster.

    Raises:
        BadInput: it is relative, and this runs in the copy of a working directory that ``ray job submit`` made.
    """
    if not path.is_absolute() and "working_dir_files" in Path.cwd().parts:
        raise BadInput(
            f"{option} {path}: a job runs in a copy of the working directory; give an absolute path that machines share"
        )
    return Path(os.path.abspath(path))


@contextmanager
def one_line(name: str) -> Iterator[None]:
    """Whatever is not ours to mend is one line on standard error, with exit status 2; 130 if it was interrupted."""
    try:
        yield
    except (RagqaError, OSError) as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on where it was", file=sys.stderr)
        raise SystemExit(130) from None
