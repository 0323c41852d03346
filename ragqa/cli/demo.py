"""``ragqa demo``: build the index of the demo encyclopedia."""

from typing import Annotated

import typer

from ragqa.cli.output import print_result


def demo(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index again.")] = False,
) -> None:
    """Build the index of the demo encyclopedia if it is missing, and show where it is."""
    from ragqa.artefacts.paths import get_demo_dir
    from ragqa.demo import demo_index
    from ragqa.progress import Bars

    target = demo_index(rebuild=rebuild, progress=Bars())
    print_result(f"index      {target}")
    print_result(f"articles   {get_demo_dir() / 'articles'}")
    print_result(f"questions  {get_demo_dir() / 'questions.jsonl'}")
