"""``ragqa ask``: answer one question, or questions from standard input or a prompt."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ragqa.cli.options import THRESHOLD_DEFAULT, PipelineOptions, add_pipeline_options
from ragqa.cli.output import ANSWERED, BAD, DECLINED, print_error, print_result
from ragqa.cli.render import render_answer, render_rest, split_items
from ragqa.errors import BadInput
from ragqa.terminal import escape_controls, print_note, print_text, to_json, to_one_line
from ragqa.types import Answer

if TYPE_CHECKING:
    from ragqa.conversation import Conversation
    from ragqa.pipeline import Pipeline

BATCH = 16
"""Number of questions from standard input that are answered together, to keep all cores busy."""
HELP = """Type a question and press Enter. The answer comes from your documents.
A question can refer to the one before: "When did he do it?", "Why?", "And in 2019?"

  help         show this help
  exit, quit   end; so does Ctrl-D

The arrow keys bring back earlier questions."""
MAX_LINE = 1_000_000
"""Maximum length of a line of standard input in characters; a longer line is not a question."""


@dataclass(frozen=True)
class Refusal:
    """Question that cannot be asked, and the message of the error."""

    question: str
    error: str


Formatter = Callable[[Answer | Refusal], str]


@add_pipeline_options
def ask(
    pipeline_options: PipelineOptions,
    question: Annotated[
        str | None, typer.Argument(help="Question to answer.  [default: each line of standard input, or a prompt]")
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"Decline answers below this confidence.{THRESHOLD_DEFAULT}")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Answer a question from an index; without --index, from the demo encyclopedia."""
    path = pipeline_options.find_index()
    if path is None:
        from ragqa.demo import demo_index
        from ragqa.progress import Bars

        path = demo_index(progress=Bars())
    pipeline = pipeline_options.load_pipeline(path)
    format_result = format_json if as_json else format_text
    if question is not None:
        answer = ask_one(pipeline, question, min_confidence, format_result)
        raise typer.Exit(DECLINED if answer.text is None else ANSWERED)
    if sys.stdin is None:
        raise BadInput("no question, and no standard input to read questions from")
    if sys.stdin.isatty():
        prompt(pipeline, min_confidence, format_result)
        return
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")  # removes a byte order mark
    questions = (line.rstrip("\r\n") for line in _iter_lines(sys.stdin) if line.strip())
    refused = 0
    for result in ask_many(pipeline, questions, min_confidence):
        print_result(format_result(result) if as_json else format_in_batch(result), is_styled=True)
        refused += isinstance(result, Refusal)
    if refused:
        print_error(f"{refused} of the questions could not be asked")
        raise typer.Exit(BAD)


def _iter_lines(stream: TextIO) -> Iterator[str]:
    while line := stream.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise BadInput(
                f"a line of standard input is longer than {MAX_LINE:,} characters: write one question a line"
            )
        yield line


def ask_one(
    pipeline: "Pipeline | Conversation", question: str, min_confidence: float | None, format_result: Formatter
) -> Answer:
    """Answer a question, and print and return the answer.

    With ``format_text``, a terminal shows the answer while it is generated.

    Args:
        pipeline: pipeline or conversation to ask.
        question: text of the question.
        min_confidence: confidence below which the answer is declined; None for the pipeline's threshold.
        format_result: ``format_text`` or ``format_json``.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, Mismatch, RemoteError: as for ``Pipeline.ask``.
        typer.Exit, OSError: as for ``print_result``.
    """
    written = ""
    for piece in pipeline.stream(question, min_confidence=min_confidence):
        if isinstance(piece, Answer):
            print_result(render_rest(piece, written) if written else format_result(piece), is_styled=True)
            return piece
        if format_result is format_text and sys.stdout.isatty():
            lines = ("".join(" " if c.isspace() else c for c in line) for line in split_items(piece))
            shown = escape_controls("\n".join(lines))
            print_text(shown, end="")
            written += shown
    raise AssertionError("a pipeline's stream ends with an answer")


def ask_many(
    pipeline: "Pipeline", questions: Iterable[str], min_confidence: float | None
) -> Iterator[Answer | Refusal]:
    """Yield the answer to each question, or its refusal if it is not usable text, in order.

    Args:
        pipeline: pipeline to ask.
        questions: texts of the questions.
        min_confidence: confidence below which an answer is declined; None for the pipeline's threshold.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, Mismatch, RemoteError: as for ``Pipeline.ask``.
    """
    rest = iter(questions)
    while batch := list(islice(rest, BATCH)):
        refusals = {n: Refusal(q, str(error)) for n, q in enumerate(batch) if (error := _find_error(q))}
        usable = [question for n, question in enumerate(batch) if n not in refusals]
        answers = iter(pipeline.ask(usable, min_confidence=min_confidence))
        yield from (refusals[n] if n in refusals else next(answers) for n in range(len(batch)))


def prompt(pipeline: "Pipeline", min_confidence: float | None, format_result: Formatter) -> None:
    """Read questions from a prompt and print the answers.

    The prompt ends with ``exit``, ``quit`` or the end of the input. A question can refer to the previous question. The
    prompt prints the message of a BadInput and continues.

    Args:
        pipeline: pipeline to ask.
        min_confidence: confidence below which an answer is declined; None for the pipeline's threshold.
        format_result: ``format_text`` or ``format_json``.

    Raises:
        ArtefactError, DamagedArtefact, Mismatch, RemoteError, typer.Exit, OSError: as for ``ask_one``.
    """
    import readline  # noqa: F401  line editing and history in input()

    from ragqa.conversation import Conversation

    conversation = Conversation(pipeline)
    print_note("Ask a question. Type 'help' for help, 'exit' to end.")
    while True:
        try:
            question = input("question> ")
        except EOFError:
            print_text("")
            return
        command = question.strip().lower()
        if command in ("exit", "quit"):
            return
        if command == "help":
            print_text(HELP)
        if command in ("help", ""):
            continue
        try:
            ask_one(conversation, question, min_confidence, format_result)
            print_text("")
        except BadInput as error:
            print_error(str(error))


def format_text(result: Answer | Refusal) -> str:
    """Return an answer, or a refused question and its error, as text for a terminal."""
    if isinstance(result, Refusal):
        return f"{to_one_line(result.question)}: {to_one_line(result.error)}"
    return render_answer(result)


def format_in_batch(result: Answer | Refusal) -> str:
    """Return a question with the text of its answer or error, followed by an empty line."""
    if isinstance(result, Refusal):
        return f"{format_text(result)}\n"
    return f"> {to_one_line(result.question)}\n{format_text(result)}\n"


def format_json(result: Answer | Refusal) -> str:
    """Return an answer, or a refused question and its error, as one line of JSON.

    An answer has the keys of ``Answer.to_dict``. A refused question has ``question``, ``error``, ``answer`` (None),
    ``confidence`` (0) and ``sources`` (empty).
    """
    if isinstance(result, Refusal):
        unanswered: dict[str, Any] = {"question": result.question, "answer": None, "confidence": 0.0, "sources": []}
        return to_json({**unanswered, "error": result.error})
    return to_json(result.to_dict())


def _find_error(question: str) -> BadInput | None:
    from ragqa.pipeline import clean_question

    try:
        if "\0" in question:  # in UTF-16, every second byte of English text is zero
            raise BadInput("the question holds zero bytes: convert the file to UTF-8")
        if any("\udc80" <= c <= "\udcff" for c in question):
            raise BadInput("the question is not in UTF-8: convert the file")
        clean_question(question)
    except BadInput as error:
        return error
    return None
