"""Suites (data sets with their scoring rules), and the command that scores a pipeline.

Each data set has its own file, such as ``eval/webq.py``; ``eval/registry.py`` lists them.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

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
from ragqa.retrieval.registry import Fusion, RetrieverKind
from ragqa.terminal import print_note, print_text
from ragqa.types import Question

_READER_ALONE = "The reader reads the gold passage of each question; nothing is retrieved."


class Split(NamedTuple):
    """Split of a data set: its file in --data, and the number of questions in this file."""

    file: str
    questions: int


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Data set on the Hugging Face hub."""

    name: str
    revision: str
    """Commit of the data set."""
    question: str
    """Column of the question."""
    answers: str
    """Column of the answers; ``a.b`` means the list b in the column a."""
    passage: str | None = None
    """Column of the gold passage, if there is one."""
    splits: dict[str, tuple[str, int]]
    """Name on the hub and number of questions of each split, by the split's name in the suite."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Data set with its scoring rule."""

    key: str
    """Name in commands, file names and ``SUITES``."""
    title: str
    """Name in reports."""
    about: str
    """Content, source and licence of the data set."""
    splits: dict[str, Split]
    """Splits in files, by name."""
    default_split: str
    """Split in files that is scored by default."""
    hub: Hub | None
    """Data set on the hub; None if it cannot be loaded from there."""
    regex: bool = False
    """True if gold answers are regular expressions."""
    unicode: Literal["NFD"] | None = "NFD"
    """Unicode form to which answers are converted before they are compared; None converts nothing."""
    answer_type: str
    """Description of the gold answers."""
    published: tuple[Published, ...] = ()
    """Scores that papers report."""
    caution: str = ""
    """Warning for readers of the scores."""

    def make_settings(self, questions: QuestionSet, **changes: Any) -> EvaluationSettings:
        """Return the settings to evaluate ``questions`` of a split, with ``changes`` of fields."""
        settings = EvaluationSettings(name=self.title, split=questions.split, regex=self.regex, unicode=self.unicode)
        return replace(settings, **changes)


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """Options of the command of a suite."""

    pipeline: Path
    """Index or pipeline directory."""
    data: Path | None = None
    """Folder with the files of the data set; default: load them from the Hugging Face hub."""
    split: str | None = None
    """Split to score; default: test-a or dev-a with --data, the papers' test set from the hub."""
    out: Path | None = None
    """Directory of the report; default: a directory under runs/eval."""
    corpus: str | None = None
    """Name of the corpus in the report; default: the names of the indexed files."""
    retriever: Annotated[str | None, RetrieverKind] = None
    """Kind of retriever; default: the kind of the index."""
    fusion: Annotated[str | None, Fusion] = None
    """Fusion of the scores in hybrid search; default: weighted."""
    reader: Path | None = None
    """Another reader: a directory, the name of a reader in the pipeline, or KIND:MODEL."""
    beams: int | None = None
    """Width of the beam search (generative readers); default: 1."""
    fast: bool = False
    """Use fast decoding instead of thorough decoding (rag-sequence)."""
    max_answer: int | None = None
    """Maximum answer length in tokens (generative readers); default: the length of the reader's training."""
    min_answer: int | None = None
    """Minimum answer length in tokens (generative readers); default: 0."""
    trained: str | None = None
    """Description of the reader's training; eval.table compares readers with the closed book of this description."""
    device: str = "cpu"
    """Device of the index search and of torch models."""
    k: int | None = None
    """Number of passages to read; default: the default of the reader."""
    depth: int = DEPTH
    """Number of passages to retrieve for the retrieval scores."""
    batch: int = 1
    """Number of questions in a batch; only with 1, times of single questions are measured."""
    limit: int | None = None
    """Size of a random sample of questions, always the same sample; default: all questions."""
    restart: bool = False
    """Delete the rows of an interrupted run and start again, instead of continuing."""
    gold: bool = False
    """Score the reader alone, on the gold passage of each question."""
    no_read: bool = False
    """Score retrieval alone."""
    no_coverage: bool = False
    """Do not measure the corpus coverage, which reads the whole corpus."""
    record: Path | None = None
    """JSON file to write the figures to; a table of the questions (.tsv) is written next to it."""

    def __post_init__(self) -> None:
        """Raise BadInput for options that exclude each other, or a record that is not .json."""
        if self.record:
            check_place(self.record)
        if self.gold and (self.no_read or self.k or self.retriever or self.fusion):
            raise BadInput("--gold retrieves nothing: leave out --k, --retriever, --fusion and --no-read")

    @property
    def decoding(self) -> dict[str, Any]:
        """Options of generative readers, by their names in ``Decoding``; None if not given."""
        options = {"beams": self.beams, "fast": self.fast or None}
        return {**options, "max_answer": self.max_answer, "min_answer": self.min_answer}


def read_split(suite: Suite, split: str, data: Path | None) -> QuestionSet:
    """Load the questions of a split from files or from the hub.

    Args:
        suite: the data set.
        split: name of the split.
        data: folder with the files of the data set; None loads the split from the hub.

    Raises:
        BadInput: the split or its file does not exist or cannot be read, or the number of questions is wrong.
        BadLine: a line of the file is not a question.
        MissingExtra: the package ``datasets``, which loads from the hub, is not installed.
    """
    known = list(suite.splits) if data else list(suite.hub.splits) if suite.hub else []
    if not known:
        raise BadInput(f"{suite.title} is not on the hub: name the folder of its files with --data")
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
        raise BadInput(f"{where} has {len(question_set)} questions, but the split has {expected}")
    return replace(question_set, name=suite.title, split=split)


def _load_from_hub(hub: Hub, split: str) -> Sequence[Question]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtra(f"loading {hub.name} from the hub", "torch") from error
    try:
        rows = load_dataset(hub.name, revision=hub.revision, split=hub.splits[split][0])
    except Exception as error:  # datasets raises errors of many packages
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{hub.name} cannot be loaded ({reason}): name the folder of its files with --data") from error
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
    """Score a pipeline on a split of a suite; return the report.

    Args:
        suite: the data set.
        config: options of the command.

    Raises:
        RagqaError: as for ``read_split``, ``Pipeline.load`` and ``evaluate``.
    """
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
    for note in pipeline.notes:
        print_note(note)
    out = config.out or Path("runs", "eval", f"{name_report(suite, split, config, pipeline.reader)}.report")
    about = {
        "command": format_command_line(),
        "source": _READER_ALONE if config.gold else suite.about,
        "answer_type": suite.answer_type,
        "caution": suite.caution,
        **({"trained": config.trained} if config.trained else {}),
        # Published systems had to find the passage, so a reader that gets it is not compared with them.
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
    """Return the default name of a report, with all options that change the scores.

    Args:
        suite: the data set.
        split: name of the split.
        config: options of the run.
        reader: reader of the pipeline. The name has its kind and fingerprint, because folders of different readers can
            have the same name.
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
    """Run the command of a suite, with the docstring of the main module as its help."""
    run_command(partial(print_scores, suite), SuiteConfig, sys.modules["__main__"].__doc__)


def print_scores(suite: Suite, config: SuiteConfig) -> None:
    """Score a pipeline on a suite; print and record its figures; print the published scores.

    Args:
        suite: the data set.
        config: options of the command.

    Raises:
        RagqaError: as for ``score_suite`` and ``export_figures``.
    """
    report = score_suite(suite, config)
    if config.record:
        export_figures(report, config.record)
    print_text(format_summary(report))
    if suite.published and not config.gold:
        print_text(f"\n{format_published(suite)}")
    print_text(f"\ncaution: {suite.caution}\n\nreport: {report.path / 'report.html'}")


def format_published(suite: Suite) -> str:
    """Return a list of the published scores of a suite, each with its corpus and split."""
    rows = [f"  {row.em:5.1f}  {row.system}; {row.corpus}; {row.split} ({row.source})" for row in suite.published]
    return "\n".join(["published scores, each on its own corpus and split (not comparable):", *rows])
