"""Suites: data sets with their scoring rules, and the command that scores a pipeline.

One data set, one file: ``eval/nq.py``, ``webq.py``, ``curatedtrec.py``, ``squad.py``.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from eval.command import format_command_line, run_command
from eval.export_figures import check_place, export_figures
from eval.published import Published
from ragqa.errors import BadInput, MissingExtra
from ragqa.evaluation import EvaluationSettings, Report, evaluate
from ragqa.evaluation.evaluated_systems import GoldPassages
from ragqa.evaluation.question_set import QuestionSet
from ragqa.evaluation.report.summary import format_summary
from ragqa.evaluation.run import DEPTH
from ragqa.pipeline import Pipeline
from ragqa.progress import Bars
from ragqa.reading.base import Decoding, Reader
from ragqa.types import Question

_READER_ALONE = "Each question is read beside its own gold passage; nothing is retrieved."


class Split(NamedTuple):
    """A part of a data set: its file in --data, and the number of questions in the file."""

    file: str
    questions: int


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
    published: tuple[Published, ...] = ()
    """Scores from papers; see ``eval.published``."""
    caution: str = ""
    """Warning to readers of the scores."""

    def make_settings(self, questions: QuestionSet, **changes: Any) -> EvaluationSettings:
        """Return the settings by which a split is scored, with ``changes`` to their fields."""
        settings = EvaluationSettings(name=self.title, split=questions.split, regex=self.regex, unicode=self.unicode)
        return replace(settings, **changes)


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """Options of a suite's command."""

    pipeline: Path
    """Index or pipeline directory."""
    data: Path | None = None
    """Folder of the data set's files; without it, the hub (needs a network)."""
    split: str | None = None
    """Split to score; default: the test set, in files its part test-a or dev-a."""
    out: Path | None = None
    """Directory of the report; default: under runs/eval."""
    corpus: str | None = None
    """Name of the corpus in the report; default: the names of its files."""
    retriever: str | None = None
    """Retriever kind, as of ragqa index; default: the index's."""
    fusion: str | None = None
    """Fusion of scores by the hybrid retriever."""
    reader: Path | None = None
    """Another reader: a directory, one of the pipeline's by name, or KIND:MODEL."""
    beams: int | None = None
    """Beams of the search (generative readers); default: 1, greedy."""
    fast: bool = False
    """Decode fast instead of thoroughly (rag-sequence)."""
    max_answer: int | None = None
    """Maximum answer length in tokens (generative readers)."""
    min_answer: int | None = None
    """Minimum answer length in tokens (generative readers)."""
    trained: str | None = None
    """How the reader was trained, in words by which eval.table finds its closed book."""
    device: str = "cpu"
    """Device of index search and torch models."""
    k: int | None = None
    """Passages to read; default: as many as the reader was trained with, or 10."""
    depth: int = DEPTH
    """Number of hits to search for answers."""
    batch: int = 1
    """Questions to ask together; with 1 times are latencies."""
    limit: int | None = None
    """Ask only this many questions, drawn at random but always the same ones."""
    restart: bool = False
    """Discard the rows of an interrupted run."""
    gold: bool = False
    """Score the reader alone, on each question's gold passage."""
    no_read: bool = False
    """Score retrieval alone."""
    no_coverage: bool = False
    """Do not search the corpus for answers."""
    record: Path | None = None
    """JSON file for the figures; a table with a line per question goes next to it."""

    def __post_init__(self) -> None:
        """Raise BadInput for options that exclude each other, before anything is asked."""
        if self.record:
            check_place(self.record)
        if self.gold and (self.no_read or self.k or self.retriever or self.fusion):
            raise BadInput("--gold reads each question's own passage: leave --k, --retriever, --fusion, --no-read out")

    @property
    def decoding(self) -> dict[str, Any]:
        """Options of generative readers that were given, by their names in ``Decoding``."""
        options = {"beams": self.beams, "fast": self.fast or None}
        return {**options, "max_answer": self.max_answer, "min_answer": self.min_answer}


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


def score_suite(suite: Suite, config: SuiteConfig) -> Report:
    """Score a pipeline on a split of ``suite``, by default the test set."""
    uses_hub = suite.hub is not None and config.data is None
    split = config.split or (list(suite.hub.splits)[-1] if suite.hub and uses_hub else suite.default_split)
    questions = read_split(suite, split, config.data).sample(config.limit)
    pipeline = Pipeline.load(
        config.pipeline,
        retriever=config.retriever,
        reader=config.reader,
        fusion=config.fusion,
        k=config.k,
        decoding=Decoding.from_options(**config.decoding),
        device=config.device,
    )
    if pipeline.note:
        print(pipeline.note, file=sys.stderr)
    out = config.out or Path("runs", "eval", f"{name_report(suite, split, config, pipeline.reader)}.report")
    about = {
        "command": format_command_line(),
        "source": _READER_ALONE if config.gold else suite.about,
        "answer_type": suite.answer_type,
        "caution": suite.caution,
        **({"trained": config.trained} if config.trained else {}),
        # The published systems had to find the passage: a reader alone is not compared with them.
        "published": [] if config.gold else [asdict(row) for row in suite.published],
    }
    settings = suite.make_settings(
        questions,
        name=f"{suite.title}, reader on the gold passage" if config.gold else suite.title,
        corpus=config.corpus,
        depth=config.depth,
        batch=config.batch,
        read=not config.no_read,
        coverage=not config.no_coverage,
        resume=False if config.restart else None,
        about=about,
    )
    system = GoldPassages(pipeline.reader) if config.gold else pipeline
    return evaluate(system, questions, settings, out=out, progress=Bars())


def name_report(suite: Suite, split: str, config: SuiteConfig, reader: Reader) -> str:
    """Name a report by what is scored, so that no two different runs share a place.

    Args:
        suite: the data set.
        split: the split that is scored.
        config: options of the run.
        reader: the reader, which is named by kind and fingerprint: many recipes write a folder ``model``.
    """
    values = {"retriever": config.retriever, "fusion": config.fusion, **config.decoding, "k": config.k}
    values |= {"depth": None if config.depth == DEPTH else config.depth}
    values |= {"batch": None if config.batch == 1 else config.batch, "limit": config.limit}
    if config.reader is not None or (config.pipeline / "pipeline.json").is_file():
        values["reader"] = f"{reader.kind}-{reader.fingerprint[:8]}"
    parts = [f"{name.replace('_', '-')}-{value}" for name, value in values.items() if value is not None]
    flags = [flag for flag, is_given in (("gold", config.gold), ("no-read", config.no_read)) if is_given]
    return "-".join([suite.key, split, config.pipeline.resolve().name, *parts, *flags])


def main(suite: Suite) -> None:
    """Score a pipeline on a suite from the command line and print the figures."""
    run_command(partial(print_scores, suite), SuiteConfig, sys.modules["__main__"].__doc__)


def print_scores(suite: Suite, config: SuiteConfig) -> None:
    """Score a pipeline, print its figures and the published ones, and record them."""
    report = score_suite(suite, config)
    if config.record:
        export_figures(report, config.record)
    print(format_summary(report))
    if suite.published and not config.gold:
        print(f"\n{format_published(suite)}")
    print(f"\ncaution: {suite.caution}\n\nreport: {report.path / 'report.html'}")


def format_published(suite: Suite) -> str:
    """List the exact match of published systems, each with its own corpus and split."""
    rows = [f"  {row.em:5.1f}  {row.system}; {row.corpus}; {row.split} ({row.source})" for row in suite.published]
    return "\n".join(["published, each on the corpus and split that it names, not on this one:", *rows])
