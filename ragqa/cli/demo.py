"""``ragqa demo``: the index of the demo encyclopedia."""

from typing import Annotated

import typer

from ragqa.cli.output import say


def demo(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index again.")] = False,
) -> None:
    """Build the index of the demo encyclopedia and show where it is."""
    from ragqa.artefacts.paths import get_demo_dir
    from ragqa.demo import demo_index
    from ragqa.progress import Bars

    target = demo_index(rebuild=rebuild, progress=Bars())
    say(f"index      {target}")
    say(f"articles   {get_demo_dir() / 'articles'}")
    say(f"questions  {get_demo_dir() / 'questions.jsonl'}")
