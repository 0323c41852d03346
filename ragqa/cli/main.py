"""The ``ragqa`` command: parse, one library call, print. Results on stdout, all else on stderr."""

import io
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ragqa.errors import BadInput, RagqaError
from ragqa.retrieval.registry import DEFAULT_ENGINE, DEFAULT_RETRIEVER, Fusion, RetrieverKind, TermEngine
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND, IndexKind


class WithDefault(TyperGroup):
    """A group of commands, the first of which is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, the default command before them if they name none."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


class ManyValues(TyperCommand):
    """A command whose options that can be given often also take several values in a row: ``--add a b c``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, such an option repeated before each of its values."""
        often = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        current, values = "", 0
        for argument in args:
            if argument.startswith("-"):
                current, values = (argument if argument in often else ""), 0
            elif current and (values := values + 1) > 1:
                spread.append(current)
            spread.append(argument)
        return super().parse_args(ctx, spread)


_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(**_SETTINGS)
ANSWERED, DECLINED, BAD = 0, 1, 2
BUG = 70
"""EX_SOFTWARE of sysexits.h."""
INTERRUPTED, PIPE = 130, 141
"""As a shell reports a process ended by SIGINT or SIGPIPE."""
_READER = "Directory of a reader; or span, rag-token, rag-sequence, fid, closed-book: the pipeline's, or KIND:MODEL."
_INDEX = "Index or pipeline directory; or http://HOST:PORT of a served index."
_K = "Passages to read; by default what the reader was trained with, or 10."
_OWN = "  [default: the reader's own]"
_Beams = Annotated[int | None, typer.Option(min=1, help="Of a reader that writes: beams; 1 is greedy.")]
_Fast = Annotated[bool | None, typer.Option("--fast", help="Of rag-sequence: fast decoding, not thorough.")]
_MaxAnswer = Annotated[
    int | None, typer.Option(help="Of a reader that writes: tokens of an answer at most, 2 or more.")
]
_MinAnswer = Annotated[int | None, typer.Option(min=0, help="Of a reader that writes: tokens before it may end.")]


_Index = Annotated[list[Path] | None, typer.Option("--index", "--pipeline", metavar="PATH", help=_INDEX)]


def _only(places: list[Path] | None) -> Path | None:
    """The one index or pipeline that was named; raises BadInput where there are several, as none is over another."""
    if places and len(places) > 1:
        raise BadInput(
            f"{' and '.join(map(str, places))}: --index and --pipeline name the same thing, give one of them"
        )
    return places[0] if places else None


def _version(wanted: bool) -> None:
    if wanted:
        from ragqa import __version__

        say(f"ragqa {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it.")] = False,
) -> None:
    """Answers from your own documents, with their sources."""


@app.command(epilog='Example: ragqa ask "Who built the first reflecting telescope?"')
def ask(
    question: Annotated[str | None, typer.Argument(help="Without one: a line each from stdin, or a prompt.")] = None,
    index: _Index = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help=_K)] = None,
    retriever: Annotated[str | None, typer.Option(help=f"{', '.join(RetrieverKind)}.")] = None,
    reader: Annotated[str | None, typer.Option(help=_READER)] = None,
    beams: _Beams = None,
    fast: _Fast = None,
    max_answer: _MaxAnswer = None,
    min_answer: _MinAnswer = None,
    fusion: Annotated[str | None, typer.Option(help=f"Of hybrid: {' or '.join(Fusion)}.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Another form of the encoder the index was made with.")] = None,
    device: Annotated[str, typer.Option(help="Where the index is searched and torch models run.")] = "cpu",
    min_confidence: Annotated[float | None, typer.Option(min=0, max=1, help=f"Decline below this.{_OWN}")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Answer a question from an index; without --index, from the demo encyclopedia."""
    from ragqa.cli import ask as asking
    from ragqa.pipeline import Pipeline
    from ragqa.reading.base import Decoding

    place = _only(index)
    if place is None:
        from ragqa.demo import demo_index
        from ragqa.progress import Bars

        place = demo_index(progress=Bars())
    pipeline = Pipeline.load(
        place,
        retriever=retriever,
        reader=reader,
        encoder=encoder,
        fusion=fusion,
        k=k,
        decoding=Decoding.from_options(beams=beams, fast=fast, max_answer=max_answer, min_answer=min_answer),
        device=device,
    )
    if pipeline.note:
        _complain(pipeline.note)
    asker = asking.Asker(pipeline, pipeline.reader.threshold if min_confidence is None else min_confidence)
    show = asking.as_json if as_json else asking.as_text
    if question is not None:
        answer = asking.tell(asker, question, show, say)
        raise typer.Exit(DECLINED if answer.text is None else ANSWERED)
    if sys.stdin is None:
        raise BadInput("no question, and no standard input to read questions from")
    if sys.stdin.isatty():
        asking.converse(asker, show)
        return
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")  # with a byte order mark, or without
    refused = 0
    for each in asker.stream(asking.lines(sys.stdin)):
        say(show(each))
        refused += isinstance(each, asking.Refusal)
    if refused:
        _complain(f"{refused} of the questions could not be asked")
        raise typer.Exit(BAD)


@app.command(epilog="Example: ragqa index notes/ --out notes.index")
def index(
    paths: Annotated[
        list[Path], typer.Argument(help="Folders or files: text, PDF, tables, a Wikipedia dump …; or hf:NAME.")
    ],
    out: Annotated[Path, typer.Option(help="Index directory to make, or to make again.")],
    retriever: Annotated[str, typer.Option(help="hybrid (both), dense or bm25.")] = DEFAULT_RETRIEVER,
    kind: Annotated[str, typer.Option(help=f"Of the vectors: {', '.join(IndexKind)}.")] = DEFAULT_KIND,
    recall: Annotated[float, typer.Option(help="Share of the 20 nearest that kinds other than flat find.")] = 0.95,
    questions: Annotated[Path | None, typer.Option(help="Sample questions to try that on; else made up.")] = None,
    encoder: Annotated[str, typer.Option(help="Export, Hugging Face directory or hub name.")] = "default",
    engine: Annotated[str, typer.Option(help=f"Of BM25: {' or '.join(TermEngine)}.")] = DEFAULT_ENGINE,
    blocks: Annotated[str, typer.Option(help="What a passage is: words, sentences or wordpieces.")] = "words",
    block_size: Annotated[int | None, typer.Option(min=1, help="100 words or 288 wordpieces.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count malformed records.")] = False,
    device: Annotated[str, typer.Option(help="Where torch encoders and FAISS run: cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="The counts as one JSON object.")] = False,
) -> None:
    """Make an index of documents; a run that was killed goes on where it was."""
    from ragqa.indexing.build import IndexConfig, build_index, format_summary
    from ragqa.progress import Bars

    config = IndexConfig(
        retriever=retriever,
        kind=kind,
        recall=recall,
        questions=str(questions) if questions else None,
        encoder=encoder,
        engine=engine,
        blocks=blocks,
        block_size=block_size,
        skip_bad=skip_bad,
        device=device,
    )
    report = build_index(paths, out, config, progress=Bars())
    say(format_summary(report, out, as_json=as_json))


@app.command(cls=ManyValues, epilog="Example: ragqa update notes.index --add notes/new.md --delete notes/old.md")
def update(
    index: Annotated[Path, typer.Argument(help="Index directory; searches that are under way go on.")],
    add: Annotated[list[Path] | None, typer.Option(help="Folders or files; known documents are replaced.")] = None,
    delete: Annotated[list[str] | None, typer.Option(help="Ids of documents, as cited; of files, the path.")] = None,
    compact: Annotated[bool, typer.Option("--compact", help="Write the index anew without what was deleted.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count malformed records.")] = False,
    device: Annotated[str, typer.Option(help="Where torch encoders and FAISS run: cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="The counts as one JSON object.")] = False,
) -> None:
    """Add, delete and replace documents in an index, which is searched on meanwhile."""
    from ragqa.indexing.update import format_summary, update_index
    from ragqa.progress import Bars

    report = update_index(
        index,
        add=add or [],
        delete=delete or [],
        compact=compact or None,
        skip_bad=skip_bad,
        device=device,
        progress=Bars(),
    )
    say(format_summary(report, index, as_json=as_json))


evaluation = typer.Typer(
    **_SETTINGS,
    cls=WithDefault,
    help="Score a pipeline on questions with known answers; `ragqa eval questions --help` lists the options.",
    epilog="Example: ragqa eval questions.jsonl --index notes.index --out notes.report",
)
app.add_typer(evaluation, name="eval")


@evaluation.command("questions", epilog="Example: ragqa eval questions.jsonl --index notes.index --out notes.report")
def evaluate_questions(
    questions: Annotated[Path, typer.Argument(help="JSON lines, DPR's TSV, or a SQuAD file; 'demo' for the demo's.")],
    index: _Index = None,
    predictions: Annotated[Path | None, typer.Option(help="Score these answers of another system instead.")] = None,
    out: Annotated[Path | None, typer.Option(help="Report to make.  [default: QUESTIONS-INDEX.report]")] = None,
    rule: Annotated[str | None, typer.Option(help="nq (Unicode NFD), squad or regex.  [default: by the file]")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help=_K)] = None,
    depth: Annotated[int, typer.Option(min=1, help="Hits to look for answers in.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Questions asked together.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask so many only, drawn by chance.")] = None,
    retriever: Annotated[str | None, typer.Option(help=f"{', '.join(RetrieverKind)}.")] = None,
    reader: Annotated[str | None, typer.Option(help=_READER)] = None,
    beams: _Beams = None,
    fast: _Fast = None,
    max_answer: _MaxAnswer = None,
    min_answer: _MinAnswer = None,
    fusion: Annotated[str | None, typer.Option(help=f"Of hybrid: {' or '.join(Fusion)}.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Another form of the encoder the index was made with.")] = None,
    device: Annotated[str | None, typer.Option(help="Where the index is searched: cpu (default) or cuda.")] = None,
    corpus: Annotated[str | None, typer.Option(help="What to call the corpus in the report.")] = None,
    split: Annotated[str, typer.Option(help="What part of a data set the questions are.")] = "",
    min_confidence: Annotated[float | None, typer.Option(min=0, max=1, help=f"Report declining below.{_OWN}")] = None,
    no_read: Annotated[bool, typer.Option("--no-read", help="Score retrieval alone.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Drop the rows of a run that did not end.")] = False,
    no_coverage: Annotated[bool, typer.Option("--no-coverage", help="Do not search the corpus for answers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as one JSON object.")] = False,
) -> None:
    """Ask every question and score the answers (the default command); a killed run goes on where it was."""
    from ragqa.cli import evaluate

    report = evaluate.score_file(
        questions,
        _only(index),
        predictions=predictions,
        out=out,
        rule=rule,
        limit=limit,
        pipeline={"retriever": retriever, "reader": reader, "fusion": fusion, "encoder": encoder, "device": device},
        decoding={"beams": beams, "fast": fast, "max_answer": max_answer, "min_answer": min_answer},
        k=k,
        depth=depth,
        batch=batch,
        corpus=corpus,
        split=split,
        min_confidence=min_confidence,
        read=not no_read,
        restart=restart,
        coverage=not no_coverage,
    )
    say(evaluate.shown(report, as_json=as_json))


@evaluation.command(epilog="Example: ragqa eval compare bm25.report hybrid.report --html both.html")
def compare(
    a: Annotated[Path, typer.Argument(help="A report.")],
    b: Annotated[Path, typer.Argument(help="A report on the same questions.")],
    html: Annotated[Path | None, typer.Option(help="Write both side by side as a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as one JSON object.")] = False,
) -> None:
    """Two reports side by side: differences, their intervals, and whether chance explains them."""
    from ragqa.cli import evaluate

    say(evaluate.compared(a, b, html, as_json=as_json))


@evaluation.command(epilog="Example: ragqa eval page notes.report")
def page(
    report: Annotated[Path, typer.Argument(help="A report.")],
) -> None:
    """Make figures and page of a report anew from its rows, as after installing the extra 'eval' for the plots."""
    from ragqa.cli import evaluate
    from ragqa.evaluation import renew

    say(evaluate.shown(renew(report)))


@app.command(epilog="Example: ragqa export runs/reader/model --out my-reader")
def export(
    source: Annotated[str, typer.Argument(help="Directory of a trained encoder or reader, or a hub name.")],
    out: Annotated[Path, typer.Option(help="Directory to write.")],
    share: Annotated[Path | None, typer.Option(help="Export with the same word embeddings, to use its file.")] = None,
    card: Annotated[Path | None, typer.Option(help="Model card (Markdown) to put beside the weights.")] = None,
) -> None:
    """Export a trained encoder or reader to 8-bit ONNX, which answers without torch."""
    from ragqa.runtime.export import export as run

    manifest = run(source, out, share=share, card=card)
    size = sum(file["size"] for file in manifest.files.values()) / 1e6
    say(f"{manifest.kind} {manifest.fingerprint} in {out}: {size:.1f} MB")


@app.command(epilog="Example: ragqa demo --rebuild")
def demo(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the index again.")] = False,
) -> None:
    """Make the index of the demo encyclopedia and say where it is."""
    from ragqa.artefacts.paths import demo_dir
    from ragqa.demo import demo_index
    from ragqa.progress import Bars

    target = demo_index(rebuild=rebuild, progress=Bars())
    say(f"index      {target}")
    say(f"articles   {demo_dir() / 'articles'}")
    say(f"questions  {demo_dir() / 'questions.jsonl'}")


def say(line: str) -> None:
    """Print a result now, so that a full disk or a closed pipe is noticed while it can be said."""
    try:
        print(line.encode("utf-8", "replace").decode("utf-8"), flush=True)  # a file's name need not be valid text
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody listens: nothing more is to be flushed
        raise typer.Exit(PIPE) from None


def main() -> None:
    """Entry point: whatever is not ours to mend is one line on stderr and an exit status."""
    if sys.stdout is None:
        _complain("standard output is closed: there is nowhere to answer to")
        raise SystemExit(BAD)
    try:
        app()
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            goes_on = {"index", "eval"} & set(sys.argv[1:2])
            _complain("interrupted" + "; the same command goes on where it was" * bool(goes_on))
        raise
    except (RagqaError, OSError, UnicodeError) as error:
        _complain(str(error))
        raise SystemExit(BAD) from None
    except Exception:  # a bug of ours: Python's own status for it, 1, would read as declined
        traceback.print_exc()
        raise SystemExit(BUG) from None


def _complain(message: str) -> None:
    print(f"ragqa: {' '.join(message.split())}", file=sys.stderr)
