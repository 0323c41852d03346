"""Command line of a recipe."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from ragqa.progress import Bars
from ragqa.settings.command_line import parse_config, report_errors

Config = TypeVar("Config")


def run_recipe(
    program: str,
    ConfigClass: type[Config],
    description: str | None,
    main: Callable[..., Path] | str,
    *,
    in_processes: bool = True,
) -> None:
    """Run a recipe with the options of the command line, and print the directory that it makes.

    Args:
        program: name of the module, for errors, which are printed as one line.
        ConfigClass: dataclass of the recipe's settings.
        description: text above the options in the help.
        main: the recipe, a function of its settings, ``progress`` and ``notify``; or the name of the module whose
            ``main`` it is. That is loaded after the options were read, so that --help needs no torch.
        in_processes: whether to train in as many processes as the settings say.
    """
    with report_errors(program):
        config = parse_config(ConfigClass, description)
        recipe: Callable[..., Path] = import_module(main).main if isinstance(main, str) else main
        if in_processes:
            from pipelines.common.processes import train_in_processes

            recipe = partial(train_in_processes, recipe)
        print(recipe(config, progress=Bars(), notify=print))
