"""Command line of a recipe."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from ragqa.errors import MissingExtra
from ragqa.progress import Bars
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.terminal import print_text

Config = TypeVar("Config")


def run_recipe(
    program: str,
    ConfigClass: type[Config],
    description: str | None,
    main: Callable[..., Path] | str,
    *,
    in_processes: bool = True,
) -> None:
    """Run a recipe with the options of the command line, and print the directory of its result.

    Args:
        program: name of the module; error messages begin with it.
        ConfigClass: dataclass of the recipe's settings.
        description: text above the options in the help.
        main: function that runs the recipe with the settings, ``progress`` and ``notify``, and returns the directory of
            the result; or the name of a module with this function as ``main``. The module is imported only after the
            options are read, because it loads torch, which --help does not need.
        in_processes: True to run ``main`` by ``train_in_processes``.

    Raises:
        SystemExit: ``report_errors`` has printed an error, or the help was printed.
    """
    with report_errors(program):
        config = parse_config(ConfigClass, description)
        recipe = _import_main(main) if isinstance(main, str) else main
        if in_processes:
            from pipelines.common.processes import train_in_processes

            recipe = partial(train_in_processes, recipe)
        print_text(str(recipe(config, progress=Bars(), notify=print_text)))


def _import_main(module: str) -> Callable[..., Path]:
    try:
        main: Callable[..., Path] = import_module(module).main
    except ModuleNotFoundError as error:
        if error.name in ("torch", "transformers", "safetensors", "datasets"):
            raise MissingExtra("training", "torch") from error
        raise
    return main
