"""Options that several commands share, and the classes of commands with special arguments."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ragqa.errors import BadInput
from ragqa.reading.registry import READERS
from ragqa.retrieval.registry import Fusion, RetrieverKind

SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Settings of every group of commands."""
READER_HELP = f"Reader: a directory, KIND:MODEL, or one saved in the pipeline: {', '.join(READERS)}."
OWN_THRESHOLD = "  [default: the reader's own]"
IndexOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--index",
        "--pipeline",
        metavar="PATH",
        help="Index or pipeline directory; or http://HOST:PORT, a served index.",
    ),
]
KOption = Annotated[
    int | None,
    typer.Option("-k", min=1, help="Passages to read; by default as many as the reader was trained with, or 10."),
]
RetrieverOption = Annotated[str | None, typer.Option(help=f"{', '.join(RetrieverKind)}.  [default: the index's]")]
ReaderOption = Annotated[str | None, typer.Option(help=READER_HELP)]
FusionOption = Annotated[str | None, typer.Option(help=f"Fusion of scores (hybrid retriever): {' or '.join(Fusion)}.")]
EncoderOption = Annotated[str | None, typer.Option(help="Another form of the encoder that made the index.")]
BeamsOption = Annotated[int | None, typer.Option(min=1, help="Beams of the search (generative readers); 1 is greedy.")]
FastOption = Annotated[bool | None, typer.Option("--fast", help="Decode fast instead of thoroughly (rag-sequence).")]
MaxAnswerOption = Annotated[int | None, typer.Option(help="Maximum answer length in tokens (generative readers).")]
MinAnswerOption = Annotated[
    int | None, typer.Option(min=0, help="Minimum answer length in tokens (generative readers).")
]
SkipBadOption = Annotated[bool, typer.Option("--skip-bad", help="Skip and count malformed records.")]
BuildDeviceOption = Annotated[str, typer.Option(help="Device of torch encoders and FAISS: cpu or cuda.")]
CountsAsJsonOption = Annotated[bool, typer.Option("--json", help="Print the counts as one JSON object.")]
FiguresAsJsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")]


def single_index(places: list[Path] | None) -> Path | None:
    """Return the index or pipeline; raise BadInput if both options were given."""
    if places and len(places) > 1:
        raise BadInput(
            f"{' and '.join(map(str, places))}: --index and --pipeline name the same thing, give one of them"
        )
    return places[0] if places else None


class DefaultCommandGroup(TyperGroup):
    """A group of commands that runs its first command if none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after putting the default command in front if they name none."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


class QuestionGroup(TyperGroup):
    """The group of all commands, which asks when it is given a question in place of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after putting ``ask`` in front of a question: text of several words."""
        if args and args[0] not in self.commands and len(args[0].split()) > 1:
            args = ["ask", *args]
        return super().parse_args(ctx, args)


class MultiValueCommand(TyperCommand):
    """A command whose repeatable options also take several values in a row: ``--add a b c``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after repeating such an option in front of each of its values."""
        repeatable = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        option, values = "", 0
        for argument in args:
            if argument.startswith("-"):
                option, values = (argument if argument in repeatable else ""), 0
            elif option and (values := values + 1) > 1:
                spread.append(option)
            spread.append(argument)
        return super().parse_args(ctx, spread)
