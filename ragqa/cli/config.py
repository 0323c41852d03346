"""What the jobs' command lines share: options from a dataclass, paths a cluster can find, errors in one line."""

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ragqa.errors import BadInput, MissingExtra, RagqaError

Config = TypeVar("Config")


def parse(
    kind: type[Config], about: str | None, arguments: Sequence[str] | None = None, *, positional: bool = False
) -> Config:
    """The options of a job: the fields of the frozen dataclass ``kind``, given as ``--field value``.

    Those without a default are given as values alone, if ``positional``. A field that is such a dataclass, with a
    default, is given as ``--field.its-field value``.

    ``--config FILE.json`` gives them, or some of them, as a JSON object; other options overrule it. Needs tyro
    for anything but ``--config`` alone.

    Raises:
        BadInput: the file is no such object, an option is unknown, missing or no value of its type.
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
    alone = [field.name for field in _fields(kind) if positional and _needed(field)]
    defaults = {field.name: _default(field) for field in _fields(kind)}
    names = [part for name, value in given.items() for part in _typed(name, value, defaults[name], name in alone)]
    markers = (tyro.conf.FlagCreatePairsOff, *((tyro.conf.PositionalRequiredArgs,) if positional else ()))
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            config: Config = tyro.cli(
                kind,
                prog=f"python -m {_module()}",
                args=[*names, *rest],
                description=f"{(about or '').partition('Legend:')[0].rstrip()}\n\n{_CONFIG}",
                config=markers,
            )
    except SystemExit as error:
        if not error.code:
            raise
        raise BadInput(_unboxed(said.getvalue())) from None
    return config


_CONFIG = "--config FILE.json gives the options as a JSON object; what is typed overrules it."


def _module() -> str:
    """As ``python -m`` was told."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else Path(sys.argv[0]).stem


def _unboxed(said: str) -> str:
    """The text in the frame that tyro draws around an error, of spaces where a terminal has no lines, in one line."""
    titled, *lines = [line.strip("│┃╭╮╰╯─ ") for line in said.strip("\n").splitlines()]
    told = " ".join(line for line in lines if line.strip("-")).partition("For full helptext")[0]
    return f"{' '.join((told or titled).split())}; --help lists the options"


def _read(kind: type, file: Path) -> dict[str, Any]:
    """The options in a file, spelled as fields; ``shard-rows`` there is ``shard_rows``."""
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"--config {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{file} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadInput(f"{file} is not a JSON object of options")
    return _checked(kind, row, file, "")


def _checked(kind: type, row: dict[str, Any], file: Path, of: str) -> dict[str, Any]:
    """The options, each known and of its type; ``of`` is what stands before their names."""
    row = {name.replace("-", "_"): value for name, value in row.items()}
    types = {field.name: get_type_hints(kind)[field.name] for field in _fields(kind)}
    if unknown := [of + name for name in sorted(set(row) - set(types))]:
        raise BadInput(f"{file}: there is no option {', '.join(unknown)}; there are {', '.join(types)}")
    wrong = [f"{of}{name} = {json.dumps(value)}" for name, value in row.items() if not _fits(value, types[name])]
    if wrong:
        raise BadInput(f"{file}: {', '.join(wrong)}: not of the type of the option (--help tells it)")
    inner = {name: value for name, value in row.items() if is_dataclass(types[name])}
    return {**row, **{name: _checked(types[name], value, file, f"{of}{name}.") for name, value in inner.items()}}


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value of JSON can be that of a field of type ``wanted``.

    Paths are text there, tuples lists, and dataclasses objects.
    """
    if isinstance(wanted, UnionType) or get_origin(wanted) is Union:
        return any(_fits(value, each) for each in get_args(wanted))
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    if get_origin(wanted) is tuple:
        return isinstance(value, list) and all(_fits(each, get_args(wanted)[0]) for each in value)
    if is_dataclass(wanted):
        return isinstance(value, dict)
    if wanted is float:
        return type(value) in (int, float)
    return type(value) is (str if wanted is Path else wanted)


def _made(kind: type[Config], row: dict[str, Any]) -> Config:
    types = get_type_hints(kind)
    if missing := [field.name for field in _fields(kind) if _needed(field) and field.name not in row]:
        raise BadInput(f"--config: {', '.join(missing)}: not given")
    defaults = {field.name: _default(field) for field in _fields(kind)}
    return kind(**{name: _as(types[name], value, defaults[name]) for name, value in row.items()})


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)


def _needed(field: Field[Any]) -> bool:
    return _default(field) is MISSING


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _as(wanted: Any, value: Any, default: Any = None) -> Any:
    """A value of JSON as a field has it; an object changes some fields of the default."""
    if isinstance(value, dict):
        types = get_type_hints(wanted)
        return replace(
            default, **{name: _as(types[name], each, getattr(default, name)) for name, each in value.items()}
        )
    if isinstance(value, list):
        return tuple(_as(get_args(wanted)[0], each) for each in value)
    return Path(value) if isinstance(value, str) and (wanted is Path or Path in get_args(wanted)) else value


def _typed(name: str, value: Any, default: Any, alone: bool = False) -> list[str]:
    """An option as it would be typed, or its value ``alone``; nothing for one that stays as it is."""
    if isinstance(value, dict):
        return [part for key, each in value.items() for part in _typed(f"{name}.{key}", each, getattr(default, key))]
    if value is default:
        return []
    of, dot, last = name.replace("_", "-").rpartition(".")
    if isinstance(value, bool):
        return [f"--{of}{dot}{'' if value else 'no-'}{last}"]
    option = [] if alone else [f"--{of}{dot}{last}"]
    return [*option, *(map(str, value) if isinstance(value, list) else [str(value)])]


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
        told = str(error)
        if isinstance(error, OSError) and error.filename:
            told = f"{error.filename}: {error.strerror}: is the path right, and may it be written?"
        print(f"{name}: {' '.join(told.split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on from what it has written last", file=sys.stderr)
        raise SystemExit(130) from None
