"""What the suites share: how a data set is declared, read and checked, and the command that scores a pipeline on it.

One data set, one file: ``eval/nq.py``, ``webq.py``, ``curatedtrec.py``, ``squad.py``.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from eval.command import command, one_line
from eval.publish import check_place, publish
from ragqa.errors import BadInput, MissingExtra
from ragqa.evaluation import Report, evaluate
from ragqa.evaluation.report.summary import format_summary
from ragqa.evaluation.systems import GoldPassages
from ragqa.pipeline import Pipeline
from ragqa.progress import Bars
from ragqa.questions import read_questions, sample_questions
from ragqa.reading.base import Decoding
from ragqa.reading.registry import ReaderKind
from ragqa.retrieval.registry import Fusion, RetrieverKind
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
    passage: str | None = None
    """Column of the gold passage, where there is one."""
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


DECODING = ("beams", "fast", "max_answer", "min_answer")
"""Options of readers that write their answers, and fields of ``Decoding``."""


def usual_split(suite: Suite, data: Path | None) -> str:
    """The split that is scored unless another is asked for: of the hub its test questions."""
    return suite.default_split if data or not suite.hub else list(suite.hub.splits)[-1]


def read_split(suite: Suite, split: str, data: Path | None) -> tuple[Iterable[Question], int]:
    """The questions of a split, one by one, and how many they are.

    Args:
        suite: the data set.
        split: one of its splits.
        data: folder of its files; None to load it from the hub.

    Raises:
        BadInput: there is no such split or file, or it holds another number of questions.
        MissingExtra: the hub is asked for without the package ``datasets``.
    """
    known = list(suite.splits) if data else list(suite.hub.splits) if suite.hub else []
    if not known:
        raise BadInput(f"{suite.title} is not on the hub: give the folder of its files as --data")
    if split not in known:
        where = "in files" if data else "on the hub"
        raise BadInput(f"{suite.title} has no split '{split}' {where}: choose one of {', '.join(known)}")
    if data is None:
        assert suite.hub is not None
        asked, expected = _from_hub(suite.hub, split), suite.hub.splits[split][1]
        return _checked(asked, len(asked), expected, f"{suite.hub.name}, {split}"), expected
    file, expected = data / suite.splits[split].file, suite.splits[split].questions
    if not file.is_file():
        raise BadInput(f"{file} does not exist: --data must be the folder of {suite.title}")
    count = sum(1 for _ in read_questions(file))  # before anything is asked
    return _checked(read_questions(file), count, expected, str(file)), expected


def _checked(questions: Iterable[Question], count: int, expected: int, where: str) -> Iterable[Question]:
    if count != expected:
        raise BadInput(f"{where} holds {count} questions, not the {expected} of the split")
    return questions


def _from_hub(hub: Hub, split: str) -> Sequence[Question]:
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
    split = args.split or usual_split(suite, args.data)
    questions, total = read_split(suite, split, args.data)
    part = split
    if args.limit is not None and args.limit < 1:
        raise BadInput(f"limit = {args.limit}: at least one question must be asked")
    if args.limit is not None and args.limit < total:
        part = f"{args.limit} of {split}, drawn by chance"
        questions, total = sample_questions(questions, total, args.limit), args.limit
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
    return evaluate(
        GoldPassages(pipeline.reader) if args.gold else pipeline,
        questions,
        out=args.out or Path("runs", "eval", f"{default_name(suite, split, args, pipeline.reader.fingerprint)}.report"),
        name=f"{suite.title}, reader on the gold passage" if args.gold else suite.title,
        split=part,
        corpus=args.corpus,
        regex=suite.regex,
        unicode=suite.unicode,
        depth=args.depth,
        batch=args.batch,
        read=not args.no_read,
        coverage=not args.no_coverage,
        resume=False if args.restart else None,
        about={
            "command": command(),
            "source": _READ_ALONE if args.gold else suite.about,
            "answer_type": suite.answer_type,
            "caution": suite.caution,
            **({"trained": args.trained} if args.trained else {}),
            # Of other systems that had to find the passage: not what a reader alone is set beside.
            "published": [] if args.gold else [asdict(row) for row in suite.published],
        },
        total=total,
        progress=Bars(),
    )


_READ_ALONE = "Each question is read beside its own gold passage; nothing is retrieved."


def default_name(suite: Suite, split: str, args: argparse.Namespace, reader: str) -> str:
    """What a report is called by what was scored, so that no two different runs share a place.

    ``reader`` is the fingerprint: many recipes call what they write ``model``, so its folder tells it from no other.
    """
    names = ("retriever", "fusion", *DECODING, "k", "depth", "batch", "limit")
    valued = {name.replace("_", "-"): getattr(args, name) for name in names}
    if args.reader is not None or (args.pipeline / "pipeline.json").is_file():
        valued["reader"] = f"{reader_kind(reader)}-{reader[:_TOLD]}"
    usual = {"depth": 100, "batch": 1}
    named = [f"{name}-{value}" for name, value in valued.items() if value is not None and value != usual.get(name)]
    flags = [name.replace("_", "-") for name in ("gold", "no_read") if getattr(args, name)]
    return "-".join([suite.key, split, args.pipeline.resolve().name, *named, *flags])


_TOLD = 8
"""Digits of a reader's fingerprint that tell it from others."""


def reader_kind(fingerprint: str) -> str:
    """span, or the kind of a generator, which stands in its fingerprint."""
    return fingerprint.partition("-")[2] or ReaderKind.SPAN


def parser(suite: Suite, doc: str | None) -> argparse.ArgumentParser:
    """The command line of a suite."""
    made = argparse.ArgumentParser(
        prog=f"python -m eval.{suite.key}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--pipeline", type=Path, required=True, help="index or pipeline directory")
    add("--data", type=Path, help="folder of the data set's files; without it, the hub (needs a network)")
    add("--split", help=f"default: {suite.default_split}; of the hub the test questions")
    add("--out", type=Path, help="directory of the report; default: under runs/eval")
    add("--corpus", help="what to call the corpus; default: the names of its files")
    add("--retriever", help=f"{', '.join(RetrieverKind)}; default: all that the index can do")
    add("--fusion", help=f"for hybrid: {', '.join(Fusion)}")
    add("--reader", type=Path, help="another reader: a directory, one of the pipeline's by name, or KIND:MODEL")
    add("--beams", type=int, help="of a reader that writes: beams; 1, the default, is greedy")
    add("--fast", action="store_true", default=None, help="of rag-sequence: fast decoding, not thorough")
    add("--max-answer", type=int, help="of a reader that writes: tokens of an answer; default: as it was trained")
    add("--min-answer", type=int, help="of a reader that writes: tokens before an answer may end")
    add("--trained", help="how the reader was trained: eval.table sets a closed book beside readers of the same words")
    add("--device", default="cpu")
    add("-k", type=int, help="passages to read; default: what the reader was trained with, or 10")
    add("--depth", type=int, default=100, help="hits to look for answers in")
    add("--batch", type=int, default=1, help="questions asked together; with 1 the times are latencies")
    add("--limit", type=int, help="so many of the questions only, drawn by chance, the same ones each time")
    add("--restart", action="store_true", help="drop the rows of a run that did not end")
    add("--gold", action="store_true", help="score the reader alone, on each question's gold passage")
    add("--no-read", action="store_true", help="score retrieval alone")
    add("--no-coverage", action="store_true", help="do not look for the answers in the whole corpus")
    add("--record", type=Path, help="write the figures to this JSON file, and a line a question beside it")
    return made


def main(suite: Suite) -> None:
    """Score a pipeline, print what comes out, write the report."""
    doc = sys.modules["__main__"].__doc__
    args = parser(suite, doc).parse_args()
    with one_line():
        report = run(suite, args)
        if args.record:
            publish(report, args.record)
    print(format_summary(report))
    if not args.gold:
        print(f"\n{published(suite)}")
    print(f"\ncaution: {suite.caution}\n\nreport: {report.path / 'report.html'}")


def published(suite: Suite) -> str:
    """Exact match that others reached, on corpora and splits of their own."""
    rows = [f"  {row.em:5.1f}  {row.system}; {row.corpus}; {row.split} ({row.source})" for row in suite.published]
    return "\n".join(["published, each on the corpus and split that it names, not on this one:", *rows])
