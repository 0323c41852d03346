"""What the suites share: how a data set is declared, read and checked, and the command that scores a pipeline on it.

One data set, one file: ``eval/nq.py``, ``webq.py``, ``curatedtrec.py``, ``squad.py``.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from eval.bench.record import command
from eval.publish import publish
from ragqa.errors import BadInput, MissingExtra, RagqaError
from ragqa.evaluation import Report, evaluate
from ragqa.evaluation.summary import summary
from ragqa.evaluation.systems import GoldPassages
from ragqa.pipeline import Pipeline
from ragqa.progress import Bars
from ragqa.questions import read_questions
from ragqa.types import Question


@dataclass(frozen=True, kw_only=True)
class Split:
    """A part of a data set, in a file."""

    file: str
    """Its name in the folder given as --data."""
    questions: int
    """As many it must hold."""


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A data set on the Hugging Face hub, for those with a network."""

    name: str
    revision: str
    question: str
    """Column of the question."""
    answers: str
    """Column of the answers; ``a.b`` is the list b in the column a."""
    splits: dict[str, tuple[str, int]]
    """Our name of a split: the hub's, and how many questions it must hold."""


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
    """What it is, where it comes from, its licence."""
    splits: dict[str, Split]
    default_split: str
    hub: Hub | None
    regex: bool = False
    """Gold answers are patterns."""
    unicode: Literal["NFD"] | None = "NFD"
    answer_type: str
    published: tuple[Published, ...]
    caution: str = ""
    """What a reader of scores must know."""


def read_split(suite: Suite, split: str, data: Path | None) -> tuple[Iterator[Question], int]:
    """The questions of a split, one by one, and how many they are.

    Args:
        suite: the data set.
        split: one of its splits.
        data: folder of its files; None to load it from the hub.

    Raises:
        BadInput: there is no such split or file. While it is read: it holds another number of questions.
        MissingExtra: the hub is asked for without the package ``datasets``.
    """
    known: Iterable[str] = suite.splits if data else suite.hub.splits if suite.hub else ()
    if split not in known:
        raise BadInput(
            f"{suite.title} has no split '{split}' {'in files' if data else 'on the hub'}: "
            + (f"choose one of {', '.join(known)}" if known else "give the folder of its files as --data")
        )
    if data is None:
        assert suite.hub is not None
        expected = suite.hub.splits[split][1]
        return _counted(_from_hub(suite.hub, split), expected, f"{suite.hub.name}, {split}"), expected
    file = data / suite.splits[split].file
    if not file.is_file():
        raise BadInput(f"{file} does not exist: --data must be the folder of {suite.title}")
    expected = suite.splits[split].questions
    return _counted(read_questions(file), expected, str(file)), expected


def _counted(questions: Iterable[Question], expected: int, where: str) -> Iterator[Question]:
    """The questions as they come; wrong at their end, or at the first too many, if they are not as many as expected."""
    count = 0
    for count, question in enumerate(questions, 1):
        if count > expected:
            break
        yield question
    if count != expected:
        raise BadInput(
            f"{where} holds more than the {expected} questions of the split"
            if count > expected
            else f"{where} holds {count} questions, not the {expected} of the split"
        )


def _from_hub(hub: Hub, split: str) -> Iterator[Question]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtra(f"loading {hub.name} from the hub", "torch") from error
    rows = load_dataset(hub.name, revision=hub.revision, split=hub.splits[split][0])
    column, _, inner = hub.answers.partition(".")
    return (
        Question(row[hub.question], tuple(row[column][inner] if inner else row[column]), str(row.get("id", number)))
        for number, row in enumerate(rows, 1)
    )


def run(suite: Suite, args: argparse.Namespace) -> Report:
    """Score a pipeline on a split of ``suite``."""
    questions, total = read_split(suite, args.split, args.data)
    part = args.split
    if args.limit is not None and args.limit < 1:
        raise BadInput(f"limit = {args.limit}: at least one question must be asked")
    if args.limit is not None and args.limit < total:
        questions, total, part = islice(questions, args.limit), args.limit, f"first {args.limit} of {args.split}"
    pipeline = Pipeline.load(
        args.pipeline, retriever=args.retriever, reader=args.reader, fusion=args.fusion, k=args.k, device=args.device
    )
    name = "-".join(filter(None, (suite.key, args.split, args.pipeline.name, args.retriever)))
    return evaluate(
        GoldPassages(pipeline.reader) if args.gold else pipeline,
        questions,
        out=args.out or Path("runs", "eval", f"{name}.report"),
        name=suite.title,
        split=part,
        corpus=args.corpus,
        regex=suite.regex,
        unicode=suite.unicode,
        depth=args.depth,
        batch=args.batch,
        read=not args.no_read,
        coverage=not args.no_coverage,
        about={
            "command": command(),
            "source": suite.about,
            "answer_type": suite.answer_type,
            "caution": suite.caution,
            "published": [asdict(row) for row in suite.published],
        },
        total=total,
        progress=Bars(),
    )


def parser(suite: Suite, doc: str | None) -> argparse.ArgumentParser:
    """The command line of a suite."""
    made = argparse.ArgumentParser(
        prog=f"python -m eval.{suite.key}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--pipeline", type=Path, required=True, help="index or pipeline directory")
    add("--data", type=Path, help="folder of the data set's files; without it, the hub (needs a network)")
    add("--split", default=suite.default_split, help=f"default: {suite.default_split}")
    add("--out", type=Path, help="directory of the report; default: under runs/eval")
    add("--corpus", help="what to call the corpus; default: the names of its files")
    add("--retriever", help="dense, bm25 or hybrid; default: all that the index can do")
    add("--fusion", help="of hybrid: weighted or rrf")
    add("--reader", type=Path, help="another reader")
    add("--device", default="cpu")
    add("-k", type=int, help="passages to read")
    add("--depth", type=int, default=100, help="hits to look for answers in")
    add("--batch", type=int, default=1, help="questions asked together; with 1 the times are latencies")
    add("--limit", type=int, help="the first N questions only")
    add("--gold", action="store_true", help="score the reader alone, on each question's gold passage")
    add("--no-read", action="store_true", help="score retrieval alone")
    add("--no-coverage", action="store_true", help="do not look for the answers in the whole corpus")
    add("--record", type=Path, help="write the figures to this JSON file, and a line a question beside it")
    return made


def main(suite: Suite) -> None:
    """Score a pipeline, print what comes out, write the report."""
    doc = sys.modules["__main__"].__doc__
    args = parser(suite, doc).parse_args()
    try:
        report = run(suite, args)
        if args.record:
            publish(report, args.record)
    except (RagqaError, OSError) as error:
        raise SystemExit(f"eval.{suite.key}: {' '.join(str(error).split())}") from None
    print(summary(report))
    print(f"\n{published(suite)}\n\ncaution: {suite.caution}\n\nreport: {report.path / 'report.html'}")


def published(suite: Suite) -> str:
    """Exact match that others reached, on corpora and splits of their own."""
    rows = [f"  {row.em:5.1f}  {row.system}; {row.corpus}; {row.split} ({row.source})" for row in suite.published]
    return "\n".join(["published, each on the corpus and split that it names, not on this one:", *rows])
