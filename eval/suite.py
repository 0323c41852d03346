"""Declaration of a suite (a data set and how it is scored), and the command that scores a pipeline on it.

One data set, one file: ``eval/nq.py``, ``webq.py``, ``curatedtrec.py``, ``squad.py``.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from eval.command import command_line, report_errors
from eval.export_figures import check_place, export_figures
from ragqa.errors import BadInput, MissingExtra
from ragqa.evaluation import EvaluationSettings, Report, evaluate
from ragqa.evaluation.question_set import QuestionSet
from ragqa.evaluation.report.summary import format_summary
from ragqa.evaluation.systems import GoldPassages
from ragqa.pipeline import Pipeline
from ragqa.progress import Bars
from ragqa.reading.base import Decoding, Reader
from ragqa.retrieval.registry import Fusion, RetrieverKind
from ragqa.types import Question


@dataclass(frozen=True, kw_only=True)
class Split:
    """A part of a data set, in a file."""

    file: str
    """Name of the file in the folder given as --data."""
    questions: int
    """Number of questions that the file must hold."""


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A data set on the Hugging Face hub."""

    name: str
    revision: str
    question: str
    """Column of the question."""
    answers: str
    """Column of the answers; ``a.b`` is the list b in the column a."""
    passage: str | None = None
    """Column of the gold passage, if there is one."""
    splits: dict[str, tuple[str, int]]
    """The hub's name and the number of questions of each split, by our name."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """Exact match of another system, on its own corpus and split."""

    system: str
    em: float
    """In percent, as papers print it."""
    source: str
    corpus: str
    split: str


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A data set and how it is scored."""

    key: str
    title: str
    about: str
    """Content, origin and licence."""
    splits: dict[str, Split]
    default_split: str
    hub: Hub | None
    regex: bool = False
    """True if gold answers are regular expressions."""
    unicode: Literal["NFD"] | None = "NFD"
    answer_type: str
    published: tuple[Published, ...]
    caution: str = ""
    """Warning to readers of the scores."""


DECODING = ("beams", "fast", "max_answer", "min_answer")
"""Options of generative readers: fields of ``Decoding``."""
_READER_ALONE = "Each question is read beside its own gold passage; nothing is retrieved."
_FINGERPRINT_DIGITS = 8
"""Digits of a reader's fingerprint that distinguish it in the name of a report."""


def choose_split(suite: Suite, data: Path | None) -> str:
    """Return the split that is scored by default: of the hub, its test questions."""
    return suite.default_split if data or not suite.hub else list(suite.hub.splits)[-1]


def read_split(suite: Suite, split: str, data: Path | None) -> QuestionSet:
    """Open the questions of a split.

    Args:
        suite: the data set.
        split: one of its splits.
        data: folder of its files; None to load it from the hub.

    Raises:
        BadInput: there is no such split or file, or it holds another number of questions.
        MissingExtra: the hub is needed, but not the package ``datasets`` installed.
    """
    known = list(suite.splits) if data else list(suite.hub.splits) if suite.hub else []
    if not known:
        raise BadInput(f"{suite.title} is not on the hub: give the folder of its files as --data")
    if split not in known:
        where = "in files" if data else "on the hub"
        raise BadInput(f"{suite.title} has no split '{split}' {where}: choose one of {', '.join(known)}")
    if data is None:
        assert suite.hub is not None
        questions, expected = _load_from_hub(suite.hub, split), suite.hub.splits[split][1]
        question_set, where = QuestionSet(lambda: questions, len(questions)), f"{suite.hub.name}, {split}"
    else:
        file, expected = data / suite.splits[split].file, suite.splits[split].questions
        if not file.is_file():
            raise BadInput(f"{file} does not exist: --data must be the folder of {suite.title}")
        question_set, where = QuestionSet.from_file(file), str(file)
    if len(question_set) != expected:
        raise BadInput(f"{where} holds {len(question_set)} questions, not the {expected} of the split")
    return replace(question_set, name=suite.title, split=split)


def _load_from_hub(hub: Hub, split: str) -> Sequence[Question]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtra(f"loading {hub.name} from the hub", "torch") from error
    try:
        rows = load_dataset(hub.name, revision=hub.revision, split=hub.splits[split][0])
    except Exception as error:  # of any kind, a dozen packages deep
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{hub.name} cannot be loaded ({reason}): give the folder of its files as --data") from error
    column, _, inner = hub.answers.partition(".")
    return [
        Question(
            row[hub.question],
            tuple(row[column][inner] if inner else row[column]),
            str(row.get("id", number)),
            passages=(row[hub.passage],) if hub.passage else (),
        )
        for number, row in enumerate(rows, 1)
    ]


def run(suite: Suite, args: argparse.Namespace) -> Report:
    """Score a pipeline on a split of ``suite``."""
    if args.record:
        check_place(args.record)
    if args.gold and (args.no_read or args.k or args.retriever or args.fusion):
        raise BadInput("--gold reads each question's own passage: leave -k, --retriever, --fusion and --no-read out")
    split = args.split or choose_split(suite, args.data)
    questions = read_split(suite, split, args.data).sample(args.limit)
    pipeline = Pipeline.load(
        args.pipeline,
        retriever=args.retriever,
        reader=args.reader,
        fusion=args.fusion,
        k=args.k,
        decoding=Decoding.from_options(**{name: getattr(args, name) for name in DECODING}),
        device=args.device,
    )
    if pipeline.note:
        print(pipeline.note, file=sys.stderr)
    out = args.out or Path("runs", "eval", f"{report_name(suite, split, args, pipeline.reader)}.report")
    system = GoldPassages(pipeline.reader) if args.gold else pipeline
    return evaluate(system, questions, make_settings(suite, questions, args), out=out, progress=Bars())


def make_settings(suite: Suite, questions: QuestionSet, args: argparse.Namespace) -> EvaluationSettings:
    """Return the settings of a run of the suite's command."""
    about = {
        "command": command_line(),
        "source": _READER_ALONE if args.gold else suite.about,
        "answer_type": suite.answer_type,
        "caution": suite.caution,
        **({"trained": args.trained} if args.trained else {}),
        # The published systems had to find the passage: a reader alone is not compared with them.
        "published": [] if args.gold else [asdict(row) for row in suite.published],
    }
    return EvaluationSettings(
        name=f"{suite.title}, reader on the gold passage" if args.gold else suite.title,
        split=questions.split,
        corpus=args.corpus,
        regex=suite.regex,
        unicode=suite.unicode,
        depth=args.depth,
        batch=args.batch,
        read=not args.no_read,
        coverage=not args.no_coverage,
        resume=False if args.restart else None,
        about=about,
    )


def report_name(suite: Suite, split: str, args: argparse.Namespace, reader: Reader) -> str:
    """Name a report by what is scored, so that no two different runs share a place.

    The reader stands there by kind and fingerprint: many recipes write a folder ``model``, which says nothing.
    """
    names = ("retriever", "fusion", *DECODING, "k", "depth", "batch", "limit")
    values = {name.replace("_", "-"): getattr(args, name) for name in names}
    if args.reader is not None or (args.pipeline / "pipeline.json").is_file():
        values["reader"] = f"{reader.kind}-{reader.fingerprint[:_FINGERPRINT_DIGITS]}"
    defaults = {"depth": 100, "batch": 1}
    parts = [f"{name}-{value}" for name, value in values.items() if value not in (None, defaults.get(name))]
    flags = [name.replace("_", "-") for name in ("gold", "no_read") if getattr(args, name)]
    return "-".join([suite.key, split, args.pipeline.resolve().name, *parts, *flags])


def make_parser(suite: Suite, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a suite's command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m eval.{suite.key}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--pipeline", type=Path, required=True, help="index or pipeline directory")
    add("--data", type=Path, help="folder of the data set's files; without it, the hub (needs a network)")
    add("--split", help=f"{', '.join(suite.splits)}; default: {suite.default_split}, from the hub the test questions")
    add("--out", type=Path, help="directory of the report; default: under runs/eval")
    add("--corpus", help="name of the corpus in the report; default: the names of its files")
    add("--retriever", help=f"{', '.join(RetrieverKind)}; default: the index's")
    add("--fusion", help=f"fusion of scores (hybrid retriever): {', '.join(Fusion)}")
    add("--reader", type=Path, help="another reader: a directory, one of the pipeline's by name, or KIND:MODEL")
    add("--beams", type=int, help="beams of the search (generative readers); default: 1, greedy")
    add("--fast", action="store_true", default=None, help="decode fast instead of thoroughly (rag-sequence)")
    add("--max-answer", type=int, help="maximum answer length in tokens (generative readers)")
    add("--min-answer", type=int, help="minimum answer length in tokens (generative readers)")
    add("--trained", help="how the reader was trained, in words by which eval.table finds its closed book")
    add("--device", default="cpu", help="device of index search and torch models; default: cpu")
    add("-k", type=int, help="passages to read; default: as many as the reader was trained with, or 10")
    add("--depth", type=int, default=100, help="number of hits to search for answers; default: 100")
    add("--batch", type=int, default=1, help="questions to ask together; with 1, the default, times are latencies")
    add("--limit", type=int, help="ask only this many questions, drawn at random but always the same ones")
    add("--restart", action="store_true", help="discard the rows of an interrupted run")
    add("--gold", action="store_true", help="score the reader alone, on each question's gold passage")
    add("--no-read", action="store_true", help="score retrieval alone")
    add("--no-coverage", action="store_true", help="do not search the corpus for answers")
    add("--record", type=Path, help="JSON file for the figures; a table with a line per question goes beside it")
    return parser


def main(suite: Suite) -> None:
    """Run the command line of a suite."""
    args = make_parser(suite, sys.modules["__main__"].__doc__).parse_args()
    with report_errors():
        report = run(suite, args)
        if args.record:
            export_figures(report, args.record)
    print(format_summary(report))
    if not args.gold:
        print(f"\n{format_published(suite)}")
    print(f"\ncaution: {suite.caution}\n\nreport: {report.path / 'report.html'}")


def format_published(suite: Suite) -> str:
    """List the exact match of published systems, each with its own corpus and split."""
    rows = [f"  {row.em:5.1f}  {row.system}; {row.corpus}; {row.split} ({row.source})" for row in suite.published]
    return "\n".join(["published, each on the corpus and split that it names, not on this one:", *rows])
