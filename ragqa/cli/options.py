"""Options that commands share, and classes of commands with special forms of arguments."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from functools import wraps
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ragqa.cli.output import print_error
from ragqa.errors import BadInput
from ragqa.reading.registry import READERS
from ragqa.retrieval.registry import Fusion, RetrieverKind

if TYPE_CHECKING:
    from ragqa.pipeline import Pipeline

SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Arguments of ``typer.Typer`` for every command group."""
_VALUE_IS_OPTIONAL = "--sync"
"""Option of ``MultiValueCommand`` that can be given without a value."""
THRESHOLD_DEFAULT = "  [default: set by ragqa calibrate, or the reader's own]"
StrictOption = Annotated[bool, typer.Option("--strict", help="Stop at the first file or record that cannot be read.")]
BuildDeviceOption = Annotated[str, typer.Option(help="Device of torch encoders and FAISS: cpu or cuda.")]
CountsAsJsonOption = Annotated[bool, typer.Option("--json", help="Print the counts as one JSON object.")]
FiguresAsJsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")]


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """Options of the commands that load a pipeline."""

    index: Annotated[
        list[Path] | None,
        typer.Option(
            "--index",
            "--pipeline",
            metavar="PATH",
            help="Index or pipeline directory; or http://HOST:PORT, a served index.",
        ),
    ] = None
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="Number of passages to read.  [default: the reader's own, such as 30]"),
    ] = None
    retriever: Annotated[str | None, typer.Option(help=f"{', '.join(RetrieverKind)}.  [default: the index's]")] = None
    reader: Annotated[
        str | None,
        typer.Option(
            help="Reader: a directory, KIND:MODEL, such as chat:http://localhost:11434/v1#llama3.2, or one that is "
            f"saved in the pipeline: {', '.join(READERS)}."
        ),
    ] = None
    beams: Annotated[int | None, typer.Option(min=1, help="Beams of the search (generative readers); 1 is greedy.")] = (
        None
    )
    fast: Annotated[bool | None, typer.Option("--fast", help="Decode fast instead of thoroughly (rag-sequence).")] = (
        None
    )
    max_answer: Annotated[int | None, typer.Option(help="Maximum answer length in tokens (readers that write).")] = None
    min_answer: Annotated[
        int | None, typer.Option(min=0, help="Minimum answer length in tokens (generative readers).")
    ] = None
    fusion: Annotated[str | None, typer.Option(help=f"Fusion of scores (hybrid retriever): {' or '.join(Fusion)}.")] = (
        None
    )
    encoder: Annotated[
        str | None, typer.Option(help="Another form of the index's encoder: export or torch weights.")
    ] = None
    in_: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="PATTERN", help="Search only these files or folders, as in --in 'work/*.pdf'."),
    ] = None
    tag: Annotated[list[str] | None, typer.Option(help="Search only documents that have this tag; repeat for all.")] = (
        None
    )
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Search only documents since a date, 2024-01-31, or 7d ago.")
    ] = None
    device: Annotated[
        str | None, typer.Option(help="Device of index search and torch models: cpu or cuda.  [default: cpu]")
    ] = None

    def find_index(self) -> Path | None:
        """Return the path of the index or pipeline; None if none is given.

        Raises:
            BadInput: several are given.
        """
        if self.index and len(self.index) > 1:
            names = " and ".join(map(str, self.index))
            raise BadInput(f"{names}: --index and --pipeline name the same thing, give one of them")
        return self.index[0] if self.index else None

    def load_pipeline(self, path: Path) -> "Pipeline":
        """Load the pipeline at ``path``; warnings and errors: as for ``load_pipelines``."""
        return self.load_pipelines({"": path})[""]

    def load_pipelines(self, paths: Mapping[str, Path]) -> "dict[str, Pipeline]":
        """Load pipelines with these options, and print each of their warnings once to stderr.

        Args:
            paths: paths of indexes or pipeline directories by name, or URLs.

        Returns:
            The pipelines by name, with the filter of ``--in``, ``--tag`` and ``--since``.

        Raises:
            BadInput: a filter is malformed; also as for ``Pipeline.load``.
            ArtefactError, DamagedArtefact, Mismatch, MissingExtra, RemoteError: as for ``Pipeline.load``.
        """
        from ragqa.pipeline import Pipeline
        from ragqa.reading.base import Decoding

        decoding = Decoding.from_options(
            beams=self.beams, fast=self.fast, max_answer=self.max_answer, min_answer=self.min_answer
        )
        same = {name: getattr(self, name) for name in ("retriever", "reader", "encoder", "fusion", "k")}
        pipelines = {
            name: Pipeline.load(path, decoding=decoding, device=self.device or "cpu", **same)
            for name, path in paths.items()
        }
        for note in dict.fromkeys(note for pipeline in pipelines.values() for note in pipeline.notes):
            print_error(note)
        if self.in_ or self.tag or self.since:
            from ragqa.retrieval.filters import PassageFilter

            for pipeline in pipelines.values():
                pipeline.filter = PassageFilter(tuple(self.in_ or ()), tuple(self.tag or ()), self.since or "")
        return pipelines

    def refuse_filters(self) -> None:
        """Raise BadInput if ``--in``, ``--tag`` or ``--since`` is given.

        These options do not protect other documents: a client of a server can ask for them with its own filter.
        """
        if self.in_ or self.tag or self.since:
            raise BadInput("--in, --tag and --since do not protect documents of an index: make an index without them")


def add_pipeline_options(command: Callable[..., None], *, has_filters: bool = True) -> Callable[..., None]:
    """Return a command with one option for each field of ``PipelineOptions``.

    The options stand in place of the parameter ``pipeline_options``.

    Args:
        command: function with a keyword parameter ``pipeline_options``, a ``PipelineOptions``.
        has_filters: False to hide ``--in``, ``--tag`` and ``--since`` in the help of a command that refuses them.
    """

    @wraps(command)
    def run(**values: Any) -> None:
        shared = {field.name: values.pop(field.name) for field in fields(PipelineOptions)}
        command(pipeline_options=PipelineOptions(**shared), **values)

    # Typer reads the options from the signature.
    hints = get_type_hints(PipelineOptions, include_extras=True) | get_type_hints(command, include_extras=True)
    for name in () if has_filters else ("in_", "tag", "since"):
        type_, option = get_args(hints[name])
        hidden = copy(option)
        hidden.hidden = True
        hints[name] = Annotated[type_, hidden]
    defaults = {field.name: field.default for field in fields(PipelineOptions)}
    defaults |= {name: parameter.default for name, parameter in inspect.signature(command).parameters.items()}
    del defaults["pipeline_options"], hints["pipeline_options"]
    run.__annotations__ = hints
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
            for name, default in defaults.items()
        ]
    )
    return run


class DefaultCommandGroup(TyperGroup):
    """Group of commands that runs its first command if the arguments name no command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; put the first command in front if they name no command."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


class QuestionGroup(TyperGroup):
    """Group of all commands; a question in place of a command runs ``ask``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; put ``ask`` in front if the first argument has several words."""
        if args and args[0] not in self.commands and len(args[0].split()) > 1:
            args = ["ask", *args]
        return super().parse_args(ctx, args)


class MultiValueCommand(TyperCommand):
    """Command whose options can take several values (``--add a b c``); ``--sync`` needs none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, in which several values can follow an option.

        The option is repeated before each value, and an empty value is added after a bare ``--sync``.
        """
        repeatable = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        option, values = "", 0
        for argument, following in zip_longest(args, args[1:], fillvalue="-"):
            if argument.startswith("-"):
                option, values = (argument if argument in repeatable else ""), 0
            elif option and (values := values + 1) > 1:
                spread.append(option)
            spread.append(argument)
            if argument == _VALUE_IS_OPTIONAL and following.startswith("-"):
                spread.append("")
        return super().parse_args(ctx, spread)
