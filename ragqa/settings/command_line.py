"""Make the command lines of recipes and jobs from frozen dataclasses.

Each field becomes an option, and its docstring the help of the option. ``--config FILE.json`` gives options as a JSON
object.
"""

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from difflib import get_close_matches
from enum import EnumType
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ragqa.artefacts.paths import is_encoder_path, resolve_input_file
from ragqa.errors import BadInput, MissingExtra, RagqaError
from ragqa.settings.checks import report_together
from ragqa.settings.groups import FLAT, POSITIONAL, get_default, get_flat_groups, nest_settings
from ragqa.terminal import escape_messages, print_error

Config = TypeVar("Config")
_HELP = "--config FILE.json gives options as a JSON object; options on the command line override the file."


def parse_config(
    ConfigClass: type[Config],
    description: str | None,
    arguments: Sequence[str] | None = None,
) -> Config:
    """Parse the options of a recipe or job into its frozen dataclass.

    A field of a nested dataclass is set by ``--outer.inner value``, or by ``--inner value`` if the dataclass is a flat
    group (see ``ragqa.settings.groups``). A field that is annotated with ``POSITIONAL`` is an argument without a name.
    The help of a field that is annotated with an enumeration lists the members of the enumeration.

    Options on the command line override options in the file of ``--config``. If ``--config`` is the only option, tyro
    is not needed.

    Args:
        ConfigClass: the dataclass.
        description: text above the options in the help; the text from ``Legend:`` on is left out.
        arguments: the command line; by default the arguments of the process.

    Returns:
        An instance of the dataclass.

    Raises:
        BadInput: an option is unknown, missing, of a wrong type or out of range, or the file cannot be read.
        MissingExtra: tyro is needed and not installed.
        SystemExit: ``--help`` is given; the help was printed.
    """
    options = list(sys.argv[1:] if arguments is None else arguments)
    if "--config" not in options:
        default = _decode_config(ConfigClass, {}, MISSING, "", _import_tyro().MISSING, [])
        return _parse_options(ConfigClass, description, options, default)
    position = options.index("--config")
    if position + 1 == len(options):
        raise BadInput("--config needs the name of a JSON file")
    file = Path(options[position + 1])
    del options[position : position + 2]
    if options:
        missing = _import_tyro().MISSING  # the command line can have the options that the file lacks
        default = _read_config(ConfigClass, file, missing)
        return _parse_options(ConfigClass, description, options, default)
    return _construct(_read_config(ConfigClass, file, MISSING))


def _read_config(ConfigClass: Any, file: Path, missing: Any) -> Any:
    try:
        values = json.loads(resolve_input_file(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"--config {file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise BadInput(f"{file} is not a JSON object of options")
    problems: list[str] = []
    config = _decode_config(ConfigClass, values, MISSING, "", missing, problems)
    if problems:
        raise BadInput(f"{file}: {'; '.join(problems)}")
    return config


def _decode_config(
    ConfigClass: Any, values: dict[str, Any], base: Any, prefix: str, missing: Any, problems: list[str]
) -> Any:
    """Return an unchecked instance of a config, whose ``__post_init__`` has not run.

    The checks run later, because options on the command line can still change values.

    Args:
        ConfigClass: class of the config.
        values: options from the file.
        base: instance with defaults; MISSING for the defaults of the class.
        prefix: prefix of the options in messages, for a nested config.
        missing: value of options that are not given. If it is MISSING, these options are problems.
        problems: list to which errors are added.
    """
    types, groups = get_type_hints(ConfigClass), get_flat_groups(ConfigClass)
    defaults = {field.name: get_default(field) for field in fields(ConfigClass)}
    options = defaults if base is MISSING else dict(vars(base))
    nested = nest_settings(ConfigClass, {key.replace("-", "_"): value for key, value in values.items()})
    for name, value in ({group: {} for group in groups} | nested).items():
        if name not in options:
            problems.append(f"unknown option {prefix}{name}; the options are {', '.join(options)}")
        elif is_dataclass(types[name]) and isinstance(value, dict):
            inner = prefix if name in groups else f"{prefix}{name}."
            options[name] = _decode_config(types[name], value, options[name], inner, missing, problems)
        else:
            try:
                options[name] = _decode(value, types[name])
            except TypeError:
                problems.append(f"{prefix}{name} = {json.dumps(value)} is not of the type of the option (see --help)")
    for name in [name for name, value in options.items() if value is MISSING]:
        options[name] = missing
        problems += [f"{prefix}{name} is not given"] * (missing is MISSING)
    config = object.__new__(ConfigClass)
    vars(config).update(options)
    return config


def _decode(value: Any, expected: Any) -> Any:
    origin, members = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        for member in members:
            with suppress(TypeError):
                return _decode(value, member)
    elif origin is tuple and isinstance(value, list):
        return tuple(_decode(item, members[0]) for item in value)
    elif expected is Path and isinstance(value, str):
        return Path(value)
    elif (
        (origin is Literal and value in members)
        or type(value) is expected
        or (expected is float and type(value) is int)
    ):
        return value
    raise TypeError


@report_together()
def _construct(instance: Any) -> Any:
    """Construct a config and its nested configs again, so that ``__post_init__`` checks them."""
    values = {name: _construct(value) if is_dataclass(value) else value for name, value in vars(instance).items()}
    return type(instance)(**values)


def _import_tyro() -> Any:
    try:
        import tyro
    except ImportError as error:
        raise MissingExtra("a command line with options (--config FILE.json alone does not)", "torch") from error
    return tyro


def _parse_options(ConfigClass: type[Config], description: str | None, arguments: list[str], default: Config) -> Config:
    """Parse options with tyro; options that have a value in ``default`` need not be given."""
    tyro = _import_tyro()
    _translate_markers(ConfigClass, tyro.conf)
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), report_together():
            config: Config = tyro.cli(
                ConfigClass,
                prog=f"python -m {get_main_module()}",
                args=arguments,
                description=f"{(description or '').partition('Legend:')[0].rstrip()}\n\n{_HELP}",
                config=(tyro.conf.FlagCreatePairsOff,),
                default=default,
            )
            return config
    except SystemExit as error:
        if not error.code:
            raise
        message = _unframe(errors.getvalue())
        raise BadInput(f"{_explain(arguments, default, tyro.MISSING, message) or message} Try --help.") from None


def _translate_markers(ConfigClass: Any, conf: Any) -> None:
    """Replace ragqa's markers in the annotations of a config by markers of tyro.

    The annotations of nested configs change as well. The config classes cannot contain markers of tyro, because recipes
    with ``--config`` run without tyro.
    """
    for owner in ConfigClass.__mro__:
        for name, hint in list(vars(owner).get("__annotations__", {}).items()):
            for marker in getattr(hint, "__metadata__", ()):
                if marker == FLAT:
                    hint = Annotated[hint, conf.arg(name="")]
                elif marker == POSITIONAL:
                    hint = conf.Positional[Annotated[hint, conf.arg(metavar=name.upper())]]
                elif isinstance(marker, EnumType):
                    hint = Annotated[hint, conf.arg(metavar=f"{{{','.join(marker)}}}")]
            owner.__annotations__[name] = hint
    for hint in get_type_hints(ConfigClass).values():
        if is_dataclass(hint):
            _translate_markers(hint, conf)


def _explain(arguments: list[str], default: Any, missing: Any, message: str) -> str:
    """Return a message that names the unknown and the missing options of a command line.

    The message is empty if there are none. It is shorter than tyro's own message, which has the help of each missing
    option and of each similar option.

    Args:
        arguments: the command line, which tyro refused.
        default: unchecked config with the defaults of the options.
        missing: value of options without a default.
        message: message of tyro, which has the missing arguments without a name, in upper case.
    """
    options = _list_options(default)
    given = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    parts = []
    for name in dict.fromkeys(given):
        if name not in options:
            similar = get_close_matches(name.strip("-"), [option.strip("-") for option in options], 1)
            parts.append(f"unknown option {name}" + (f"; did you mean --{similar[0]}?" if similar else "."))
    without = [name for name, value in options.items() if value is missing and name not in given]
    if absent := [name for name in without if name.startswith("--") or name in message.split()]:
        parts.append(f"missing: {', '.join(absent)}.")
    return " ".join(parts)


def _list_options(config: Any, prefix: str = "--") -> dict[str, Any]:
    """Return a config's values by option name; positional arguments are in upper case."""
    options: dict[str, Any] = {}
    hints = get_type_hints(type(config), include_extras=True)
    for name, value in vars(config).items():
        markers = getattr(hints[name], "__metadata__", ())
        if is_dataclass(value):
            options |= _list_options(value, prefix if FLAT in markers else f"{prefix}{name}.")
        elif POSITIONAL in markers:
            options[name.upper()] = value
        else:  # a switch that is on by default has an option that turns it off
            options[f"{prefix}{'no-' if value is True else ''}{name}".replace("_", "-")] = value
    return options


def get_main_module() -> str:
    """Return the name of the module (``python -m``) or script (without ``.py``) in execution."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem


def _unframe(message: str) -> str:
    title, *lines = [line.strip("│┃╭╮╰╯─ ") for line in message.strip("\n").splitlines()]
    text = " ".join(line for line in lines if line.strip("-")).partition("For full helptext")[0]
    return f"{' '.join((text or title).split()).removesuffix('.')}."


def resolve_shared_paths(config: Config, *names: str) -> Config:
    """Return a copy of a config with absolute paths, for all machines of a cluster.

    A string counts as a path if a file or folder has this name; ``default`` and other strings do not change.

    Args:
        config: config with the options.
        names: names of the options; their values are paths, strings or None.

    Raises:
        BadInput: a path is relative, and the working directory is a copy that ``ray job submit`` made.
    """
    values = {name: value for name in names if (value := getattr(config, name)) is not None}
    paths = {name: value for name, value in values.items() if isinstance(value, Path) or is_encoder_path(value)}
    for name, path in paths.items():
        if not Path(path).is_absolute() and "working_dir_files" in Path.cwd().parts:
            hint = "a job runs in a copy of the working directory; give an absolute path that machines share"
            raise BadInput(f"--{name} {path}: {hint}")
    return replace(config, **{name: type(path)(os.path.abspath(path)) for name, path in paths.items()})  # type: ignore


@contextmanager
def report_errors(program: str) -> Iterator[None]:
    """Print a RagqaError or OSError of the block as one line and exit with status 2.

    After an interrupt, the line says how to continue, and the status is 130. Other errors are bugs and are not caught.

    Args:
        program: name of the program, with which the line begins.

    Raises:
        SystemExit: there was an error or an interrupt.
    """
    escape_messages()
    try:
        yield
    except (RagqaError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}: check the path and its permissions"
        print_error(program, message)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print_error(program, "interrupted; run the same command again to continue")
        raise SystemExit(130) from None
