r"""Calibrate the confidence of a language model's answers on held-out questions.

    python -m pipelines.calibrate.chat --reader chat:http://localhost:11434/v1#llama3.2 \
        --questions questions.jsonl --index notes.index

The model answers the questions from the index. Some of the questions are asked again without the documents that contain
an answer, so that every answer is wrong. An answer counts as right if it contains a gold answer. A regression is fitted
on the evidence of each answer (``CHAT_FEATURES``). The threshold of confidence is the highest threshold that declines
at most 5 % of right answers. Regression and threshold are saved for this model in the user's folder of settings, from
which ``--reader chat:…`` loads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.calibrate.conditions import Condition, search_other_documents, search_passages
from pipelines.calibrate.fit import UNANSWERABLE_WEIGHT
from pipelines.calibrate.threshold import choose_reader_threshold
from pipelines.common.questions import iterate_batches, sample_questions
from pipelines.common.recipe_calibration import MIN_ANSWERS, CrossFit, cross_fit
from ragqa.errors import BadInput
from ragqa.metrics import has_answer
from ragqa.progress import SILENT, Bars, Progress
from ragqa.question_files import read_questions
from ragqa.reading import registry
from ragqa.reading.calibration import Calibration
from ragqa.reading.chat.confidence import CHAT_FEATURES, ChatEvidence, get_calibration_dir
from ragqa.reading.chat.reader import PASSAGES, ChatReader, open_model
from ragqa.retrieval.live import open_retriever
from ragqa.settings.checks import report_together, require_non_negative, require_positive
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.terminal import print_note
from ragqa.types import Question


@dataclass(frozen=True, kw_only=True)
class ChatCalibrateConfig:
    """Settings of the calibration of a language model."""

    reader: str
    """Language model: ``chat:URL#MODEL`` or ``chat:FILE.gguf``."""
    questions: Path
    """File of questions with gold answers; questions that the index does not answer have an empty list."""
    index: Path
    """Index directory."""
    k: int = PASSAGES
    """Number of passages to read for each question."""
    count: int = 300
    """Maximum number of questions to ask; a larger file is sampled at random."""
    without: int = 100
    """Maximum number of these questions to ask again without the documents that contain an answer."""
    seed: int = 0
    """Seed of the sample."""
    out: Path | None = None
    """Directory to save the calibration in; default: the user's folder of settings."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for settings that cannot be used."""
        require_positive(self, "k", "count")
        require_non_negative(self, "without")
        kind, source = registry.split_setting(self.reader)
        if kind != registry.CHAT or not source:
            raise BadInput(f"--reader {self.reader}: chat:URL#MODEL or chat:FILE.gguf is needed")


def collect_evidence(
    reader: ChatReader, condition: Condition, questions: Sequence[Question], progress: Progress = SILENT
) -> list[tuple[ChatEvidence, bool]]:
    """Answer questions, and collect the evidence of the answers.

    Args:
        reader: language model.
        condition: function that returns the passages to read.
        questions: questions with gold answers.
        progress: shows the number of questions.

    Returns:
        The evidence of each answer, and True if the answer contains a gold answer. A question that the model does not
        answer is left out.

    Raises:
        RagqaError: as for ``Reader.read`` and ``condition``.
    """
    rows = []
    for batch in iterate_batches(questions, progress, "asking"):
        answers = reader.find_answers([question.text for question in batch], condition(batch))
        rows += [
            (own[0].evidence, has_answer(own[0].text, question.answers))
            for question, own in zip(batch, answers, strict=True)
            if own
        ]
    return rows


def fit_chat(
    answered: list[tuple[ChatEvidence, bool]], unanswerable: list[tuple[ChatEvidence, bool]], name: str
) -> CrossFit:
    """Fit a language model's calibration and threshold; return them in a ``CrossFit``.

    Args:
        answered: evidence of answers from all documents, each with True if the answer is right.
        unanswerable: evidence of answers without the documents that contain an answer; all of them count as wrong.
        name: description of the questions, saved with the calibration.

    Raises:
        BadInput: too few answers are right, or too few are wrong.
    """
    rows = [*answered, *((evidence, False) for evidence, _ in unanswerable)]
    right = sum(is_right for _, is_right in rows)
    if min(right, len(rows) - right) < MIN_ANSWERS:
        raise BadInput(
            f"{right} answers are right and {len(rows) - right} are wrong, but a calibration needs {MIN_ANSWERS} of "
            "each: give more --questions"
        )
    weights = [1.0] * len(answered) + [UNANSWERABLE_WEIGHT] * len(unanswerable)
    result = cross_fit(rows, name, features=CHAT_FEATURES, weights=weights)
    count = len(answered)
    threshold = choose_reader_threshold(result.confidence[:count], result.right[:count])
    return replace(result, calibration=replace(result.calibration, threshold=threshold))


def run_chat_calibration(config: ChatCalibrateConfig, progress: Progress = SILENT) -> tuple[Calibration, str]:
    """Ask the questions, fit the calibration, and save it.

    Args:
        config: settings of the calibration.
        progress: shows the number of questions.

    Returns:
        The calibration, and a line about it for the user.

    Raises:
        BadInput, BadLine: a setting or a file cannot be used, or too few answers are right or wrong.
        ArtefactError, DamagedArtefact, Mismatch, MissingExtra: the index or the file of the model cannot be used.
        RemoteError: the server of the model fails.
    """
    _, source = registry.split_setting(config.reader)
    assert source is not None
    reader, identity = ChatReader.load(source), open_model(source).identity
    retriever = open_retriever(config.index)
    questions = sample_questions(list(read_questions(config.questions)), config.count, config.seed)
    answered = collect_evidence(reader, search_passages(retriever, config.k), questions, progress)
    repeated = [question for question in questions if question.answers][: config.without]
    unanswerable = collect_evidence(reader, search_other_documents(retriever, config.k), repeated, progress)
    repeated_part = f"{len(repeated)} of them again, documents with an answer left out"
    name = f"{len(questions)} questions of {config.questions.name} and {repeated_part}, k = {config.k}"
    result = fit_chat(answered, unanswerable, f"{identity}: {name}")
    folder = config.out or get_calibration_dir(identity)
    folder.mkdir(parents=True, exist_ok=True)
    result.calibration.save(folder)
    right = sum(is_right for _, is_right in answered)
    line = (
        f"confidence calibrated on {len(answered) + len(unanswerable)} answers, {right} of them right; calibration "
        f"error {result.error:.3f}; questions are declined below {result.calibration.threshold}; saved in {folder}"
    )
    return result.calibration, line


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; ``arguments`` replace the arguments of the process."""
    with report_errors("pipelines.calibrate.chat"):
        config = parse_config(ChatCalibrateConfig, __doc__, arguments)
        print_note(run_chat_calibration(config, Bars())[1])


if __name__ == "__main__":
    main()
