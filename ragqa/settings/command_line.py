"""Command lines of recipes and jobs, made from their frozen dataclasses.

Fields are options and their docstrings the help; ``--config FILE.json`` gives options as a JSON object.
"""

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ragqa.errors import BadInput, MissingExtra, RagqaError
from ragqa.settings.groups import FLAT, field_default, flat_groups, nest_settings

Config = TypeVar("Config")
_HELP = "--config FILE.json gives options as a JSON object; options on the command line win over the file."


def parse_config(
    ConfigClass: type[Config],
    description: str | None,
    arguments: Sequence[str] | None = None,
    *,
    positional: bool = False,
) -> Config:
    """Parse the options of a recipe or job into its frozen dataclass.

    A field of a nested dataclass is given as ``--outer.inner value``, or as ``--inner value`` if the dataclass is a
    flat group (see ``ragqa.settings.groups``). Options on the command line override those in the file of ``--config``.
    ``--config`` alone works without tyro.

    Args:
        ConfigClass: the dataclass.
        description: text above the options in the help; anything from ``Legend:`` on is left out.
        arguments: the command line; by default that of the process.
        positional: take fields without a default as positional arguments.

    Raises:
        BadInput: an option is unknown, missing or of another type; for a file, all that is wrong is named.
        MissingExtra: tyro is needed and not installed.
    """
    rest = list(sys.argv[1:] if arguments is None else arguments)
    if "--config" not in rest:
        return _parse_options(ConfigClass, description, rest, positional, default=None)
    position = rest.index("--config")
    if position + 1 == len(rest):
        raise BadInput("--config needs the name of a JSON file")
    file = Path(rest[position + 1])
    del rest[position : position + 2]
    problems: list[str] = []
    values = _merge(ConfigClass, _read_file(file), None, "", problems)
    if not rest:
        problems += [f"{name} is not given" for name in _find_missing(values)]
    if problems:
        raise BadInput(f"{file}: {'; '.join(problems)}")
    if not rest:
        return _construct(values)
    return _parse_options(ConfigClass, description, rest, positional, default=values)


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"--config {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{file} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise BadInput(f"{file} is not a JSON object of options")
    return values


def _merge(ConfigClass: Any, values: dict[str, Any], base: Any, prefix: str, problems: list[str]) -> Any:
    """Return an instance with ``values`` over those of ``base``, or over the defaults of the class.

    Its ``__post_init__`` has not run, since options on the command line may still change it. Fields without a value
    are MISSING. What is wrong with ``values`` is added to ``problems``.
    """
    types = get_type_hints(ConfigClass)
    merged = {
        field.name: field_default(field) if base is None else getattr(base, field.name) for field in fields(ConfigClass)
    }
    groups = flat_groups(ConfigClass)
    for name in groups.keys() & {name for name, value in merged.items() if value is MISSING}:
        merged[name] = _merge(groups[name], {}, None, prefix, problems)
    values = nest_settings(ConfigClass, {key.replace("-", "_"): value for key, value in values.items()})
    for name, value in values.items():
        if name in merged:
            merged[name] = _decode(value, types[name], merged[name], prefix + name, problems)
        else:
            problems.append(f"unknown option {prefix}{name}; the options are {', '.join(merged)}")
    return _unchecked(ConfigClass, merged)


def _find_missing(instance: Any) -> list[str]:
    """Return the names of the options without a value, those of flat groups among them."""
    groups = flat_groups(type(instance))
    nested = [name for group in groups for name in _find_missing(getattr(instance, group))]
    return [name for name, value in vars(instance).items() if value is MISSING] + nested


def _unchecked(ConfigClass: Any, values: dict[str, Any]) -> Any:
    instance = object.__new__(ConfigClass)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def _construct(instance: Any) -> Any:
    """Construct an unchecked instance and its nested ones again, so that each ``__post_init__`` runs."""
    values = {name: _construct(value) if is_dataclass(value) else value for name, value in vars(instance).items()}
    return type(instance)(**values)


def _decode(value: Any, expected: Any, base: Any, name: str, problems: list[str]) -> Any:
    """Turn a JSON value into one of type ``expected``: text may be a path, a list a tuple, an object a dataclass."""
    if isinstance(expected, UnionType) or get_origin(expected) is Union:
        for member in get_args(expected):
            attempt: list[str] = []
            decoded = _decode(value, member, base, name, attempt)
            if not attempt:
                return decoded
    elif get_origin(expected) is Literal:
        if value in get_args(expected):
            return value
    elif get_origin(expected) is tuple:
        if isinstance(value, list):
            return tuple(_decode(item, get_args(expected)[0], None, name, problems) for item in value)
    elif is_dataclass(expected):
        if isinstance(value, dict):
            return _merge(expected, value, None if base is MISSING else base, f"{name}.", problems)
    elif expected is Path and isinstance(value, str):
        return Path(value)
    elif type(value) is expected or (expected is float and type(value) is int):
        return value
    problems.append(f"{name} = {json.dumps(value)} is not of the type of the option (see --help)")
    return value


def _parse_options(
    ConfigClass: type[Config], description: str | None, arguments: list[str], positional: bool, default: Any
) -> Config:
    """Parse options with tyro; those with a value in ``default`` are optional."""
    try:
        import tyro
    except ImportError as error:
        raise MissingExtra("a command line of options (--config FILE.json does without)", "torch") from error
    markers = (tyro.conf.FlagCreatePairsOff, *((tyro.conf.PositionalRequiredArgs,) if positional else ()))
    _remove_prefixes(ConfigClass, tyro.conf.arg(name=""))
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            return tyro.cli(
                ConfigClass,
                prog=f"python -m {_main_module()}",
                args=arguments,
                **({} if default is None else {"default": _replace_missing(default, tyro.MISSING)}),
                description=f"{(description or '').partition('Legend:')[0].rstrip()}\n\n{_HELP}",
                config=markers,
            )
    except SystemExit as error:
        if not error.code:
            raise
        raise BadInput(_unframe(errors.getvalue())) from None


def _remove_prefixes(ConfigClass: Any, no_prefix: Any) -> None:
    """Annotate the flat groups of a config, and of those inside it, with tyro's own marker.

    The configs cannot use it themselves, because recipes with ``--config`` run without tyro.
    """
    for owner in ConfigClass.__mro__:
        for name, hint in list(vars(owner).get("__annotations__", {}).items()):
            if FLAT in getattr(hint, "__metadata__", ()):
                owner.__annotations__[name] = Annotated[hint, no_prefix]
    for hint in get_type_hints(ConfigClass).values():
        if is_dataclass(hint):
            _remove_prefixes(hint, no_prefix)


def _replace_missing(instance: Any, missing: Any) -> Any:
    """Replace each MISSING by the marker ``missing`` of tyro, in nested dataclasses too."""
    values = {
        name: missing if value is MISSING else _replace_missing(value, missing) if is_dataclass(value) else value
        for name, value in vars(instance).items()
    }
    return _unchecked(type(instance), values)


def _main_module() -> str:
    """Return the name of the module that ``python -m`` runs."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem


def _unframe(message: str) -> str:
    """Return the text of an error as one line, without the frame that tyro draws (by lines, or only spaces)."""
    title, *lines = [line.strip("│┃╭╮╰╯─ ") for line in message.strip("\n").splitlines()]
    text = " ".join(line for line in lines if line.strip("-")).partition("For full helptext")[0]
    return f"{' '.join((text or title).split())}; --help lists the options"


def resolve_shared_path(path: Path, option: str) -> Path:
    """Make ``path`` absolute, so that it means the same to all machines of a cluster.

    Raises:
        BadInput: it is relative, and this runs in the copy of a working directory that ``ray job submit`` made.
    """
    if not path.is_absolute() and "working_dir_files" in Path.cwd().parts:
        raise BadInput(
            f"{option} {path}: a job runs in a copy of the working directory; give an absolute path that machines share"
        )
    return Path(os.path.abspath(path))


@contextmanager
def report_errors(program: str) -> Iterator[None]:
    """Print an expected error as one line on standard error and exit with status 2, or 130 after an interrupt."""
    try:
        yield
    except (RagqaError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}: check the path and its permissions"
        print(f"{program}: {' '.join(message.split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"{program}: interrupted; run the same command again to continue", file=sys.stderr)
        raise SystemExit(130) from None
