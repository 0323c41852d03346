r"""Evaluate span readers on held-out questions, from an index or from gold paragraphs.

    python -m pipelines.span_reader.reader_evaluation runs/mean runs/fourth/model --squad squad/train-v1.1.json.xz \
        --questions nq/dev.jsonl --index wiki.index --exclude nq/test-a.jsonl

Training selects the weights by the same evaluation. A fair comparison of readers needs other questions, so ``--skip``
leaves out as many questions of each file as selected the weights and calibrated the confidence. The command prints one
line of JSON per reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pipelines.common.examples.data_sets import HELD_OUT_SHARE, make_gold_hits, read_held_out_questions, split_held_out
from pipelines.common.questions import drop_known, iterate_batches, make_question_keys, read_answerable
from ragqa.errors import BadInput
from ragqa.metrics import exact_match, f1
from ragqa.progress import SILENT, Bars, Progress
from ragqa.reading.base import DEFAULT_PASSAGES
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.settings.checks import report_together, require_non_negative, require_positive, require_share_below_1
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.settings.groups import POSITIONAL
from ragqa.terminal import print_json
from ragqa.types import Hit, Question

_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class ReaderEvaluationConfig:
    """Settings of an evaluation of readers."""

    readers: Annotated[tuple[Path, ...], POSITIONAL]
    """Directories of readers: exports or torch weights."""
    squad: Path | None = None
    """SQuAD 1.1 train file, whose held-out questions are answered from their paragraphs."""
    questions: Path | None = None
    """File of other held-out questions, answered from ``index``."""
    index: Path | None = None
    """Index directory for ``questions``."""
    retriever: Annotated[str | None, RetrieverKind] = None
    """Kind of retriever; default: the retriever of the index."""
    exclude: tuple[Path, ...] = ()
    """Files of questions to leave out, such as test sets."""
    skip: int = 1700
    """Number of questions of each file to leave out, in the random order of ``seed``.
    By default, these are the questions that select (500) and calibrate (1,200) a reader with default settings."""
    count: int | None = None
    """Maximum number of questions of each file; default: all that are not left out."""
    seed: int = 0
    """Seed of the readers' training, which determines the questions that selected the weights."""
    held_out: float = HELD_OUT_SHARE
    """Share of SQuAD's articles that training held out."""
    k: int = DEFAULT_PASSAGES
    """Number of passages to read for each question."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for settings that cannot be used."""
        require_non_negative(self, "skip")
        require_positive(self, "count", "k")
        require_share_below_1(self, "held_out")
        if not self.readers:
            raise BadInput("no readers: name directories of readers")
        if bool(self.questions) != bool(self.index) or not (self.squad or self.questions):
            raise BadInput("--squad FILE, or --questions FILE with --index DIR, or all of them are needed")


@dataclass(frozen=True)
class EvaluationSet:
    """Held-out questions with the passages to read."""

    name: str
    """Name of the set, with which the names of its figures begin."""
    questions: Sequence[Question]
    """Questions with gold answers."""
    hits: Sequence[list[Hit]]
    """Passages to read for each question."""
    unicode: Literal["NFD"] | None
    """Unicode form of exact match (``metrics.exact_match``): NFD for NQ-open, None for SQuAD."""

    def evaluate(
        self, reader: ExtractiveReader, title: str = "asking", progress: Progress = SILENT
    ) -> dict[str, float]:
        """Return a reader's mean exact match and F1 as ``NAME_em`` and ``NAME_f1``, from 0 to 1.

        Args:
            reader: reader to evaluate.
            title: title of the progress bar.
            progress: shows the number of questions.

        Raises:
            BadInput, ArtefactError: as for ``ExtractiveReader.read``.
        """
        exact, overlap, count = 0.0, 0.0, len(self.questions)
        for batch in iterate_batches(list(zip(self.questions, self.hits, strict=True)), progress, title, _BATCH):
            answers = reader.read([question.text for question, _ in batch], [hits for _, hits in batch])
            for (question, _), answer in zip(batch, answers, strict=True):
                exact += exact_match(answer.text, question.answers, unicode=self.unicode)
                overlap += f1(answer.text, question.answers)
        return {f"{self.name}_em": exact / count, f"{self.name}_f1": overlap / count}


def make_open_set(questions: Sequence[Question], retriever: Retriever, k: int) -> EvaluationSet:
    """Return the evaluation set ``dev``: questions with retrieved passages.

    Args:
        questions: held-out questions.
        retriever: retriever that finds the passages.
        k: number of passages per question.

    Raises:
        RagqaError: as for ``Retriever.search``.
    """
    hits: list[list[Hit]] = []
    for batch in iterate_batches(questions, SILENT, "searching", _BATCH):
        hits += retriever.search([question.text for question in batch], k)
    return EvaluationSet("dev", questions, hits, "NFD")


def make_gold_set(questions: Sequence[Question]) -> EvaluationSet:
    """Return the evaluation set ``gold``: questions with their gold paragraphs (SQuAD's task)."""
    return EvaluationSet("gold", questions, make_gold_hits(questions), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; ``arguments`` replace the arguments of the process."""
    with report_errors("pipelines.span_reader.reader_evaluation"):
        config = parse_config(ReaderEvaluationConfig, __doc__, arguments)
        sets = make_evaluation_sets(config)
        for path in config.readers:
            reader = ExtractiveReader.load(path)
            scores = {name: value for part in sets for name, value in part.evaluate(reader, part.name, Bars()).items()}
            counts = {part.name: len(part.questions) for part in sets}
            print_json({"reader": str(path), "questions": counts, **{k: round(v, 4) for k, v in scores.items()}})


def make_evaluation_sets(config: ReaderEvaluationConfig) -> list[EvaluationSet]:
    """Return the evaluation sets that the settings name.

    Raises:
        BadInput, BadLine: a file cannot be read, or no question of a file is left.
        RagqaError: as for ``open_retriever``.
    """
    excluded = make_question_keys(config.exclude)

    def select(questions: Sequence[Question], file: Path) -> list[Question]:
        selected = drop_known(split_held_out(questions, config.skip, config.seed)[1], excluded)[: config.count]
        if not selected:
            raise BadInput(
                f"{file}: {config.skip} of {len(questions)} held-out questions are skipped, and no question is left"
            )
        return selected

    sets = []
    if config.squad:
        sets.append(make_gold_set(select(read_held_out_questions(config.squad, config.held_out), config.squad)))
    if config.questions and config.index:
        questions = select(read_answerable(config.questions), config.questions)
        sets.append(make_open_set(questions, open_retriever(config.index, config.retriever), config.k))
    return sets


if __name__ == "__main__":
    main()
