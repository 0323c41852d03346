"""Fit of a span reader's confidence, and choice of its threshold for declining.

Legend: N answers.
"""

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.calibrate.conditions import (
    ANSWERABLE,
    MISSED,
    OWN_PARAGRAPH,
    UNANSWERABLE,
    CalibrationSet,
    Judge,
    build_paragraph_index,
    classify_question,
    judge_by_agreement,
    judge_exactly,
    search_other_documents,
    search_passages,
)
from pipelines.calibrate.config import CalibrateConfig
from pipelines.calibrate.early_margin import choose_early_margin
from pipelines.calibrate.report import measure_refusals, plot_figures, summarise_answers
from pipelines.calibrate.threshold import choose_reader_threshold
from pipelines.common.examples.data_sets import make_gold_hits, read_held_out_questions, split_held_out
from pipelines.common.questions import drop_known, iterate_batches, make_question_keys, read_answerable
from pipelines.common.recipe_calibration import MIN_ANSWERS, CrossFit, cross_fit, install_calibration
from ragqa import artefacts
from ragqa.artefacts.machine import describe_hardware
from ragqa.errors import BadInput
from ragqa.progress import SILENT, Bars, Progress
from ragqa.question_files import read_questions, read_squad
from ragqa.reading.calibration import SPAN_FEATURES, Calibration, Evidence
from ragqa.reading.span import ExtractiveReader, SpanAnswer
from ragqa.reading.span_candidates import ScoredPassages
from ragqa.retrieval.live import open_retriever
from ragqa.runtime.scorer import SPREAD
from ragqa.types import Hit, Question

UNANSWERABLE_WEIGHT, FAR_WEIGHT = 0.1, 0.5
"""Weights in the fit of an answer to a question without its documents, and to a question far from own documents."""
SHALLOW_HITS, SHALLOW_WEIGHT = (3, 1), 0.25
"""Numbers of passages from which questions are answered again, and the factor on the weight of these answers."""
FAR_QUESTIONS = 200
"""Number of questions of each other file that are asked over own documents, which do not answer them."""
PRIOR_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Weights of retrieval scores to try."""
_MIN_PROBABILITY = 1e-4
"""Minimum probability of right answers, because they need not be among the candidates and log 0 is infinite."""


@dataclass(frozen=True)
class CalibrationRow:
    """Answer to a question, with one weight of retrieval scores."""

    file: Path
    """File that the question comes from."""
    name: str
    """Name of the question's set in reports."""
    number: int
    """Number of the question in its set."""
    kind: str
    """Kind of the question, as ``classify_question`` returns it."""
    evidence: Evidence
    """Evidence of the answer, from which confidence is computed."""
    right: float
    """Probability that the answer is right."""
    log_likelihood: float
    """Log of the probability that the reader gives to right answers, in nats."""
    weight: float = 1.0
    """Weight of the answer in the fit, relative to other answers of its file."""
    is_shallow: bool = False
    """True if only the first passages were read (``SHALLOW_HITS``)."""


def run_calibration(config: CalibrateConfig, command: str) -> Calibration:
    """Fit and save a reader's calibration, write its figures and plot, and return it.

    Args:
        config: settings of the calibration.
        command: command line to record with the figures.

    Raises:
        BadInput, BadLine: a file of questions cannot be used, no question is left or answerable, or too few answers are
            right.
        ArtefactError, DamagedArtefact, Mismatch: the reader or an index is missing, damaged or of another format.
        MissingExtra: a package for the index or for the plot is not installed.
    """
    if not (config.reader / artefacts.MANIFEST).is_file() and (config.reader / "model.safetensors").is_file():
        words = f"make an export of it with ragqa export {config.reader} --out DIR"
        raise BadInput(f"--reader {config.reader} has torch weights: {words}")
    identity = artefacts.read_manifest(config.reader, "reader").config["identity"]
    config.out.parent.mkdir(parents=True, exist_ok=True)
    reader = ExtractiveReader.load(config.reader)
    sets = make_sets(config)
    scored = [score_questions(reader, questions, Bars()) for questions in sets]
    margin, margins = choose_early_margin(reader, sets, scored) if reader.has_early_layer else (None, {})
    answers = [make_rows(reader, *of_set, margin) for of_set in zip(sets, scored, strict=True)]
    by_weight = {
        weight: [row for rows in answers for row in rows[number]] for number, weight in enumerate(PRIOR_WEIGHTS)
    }
    weight, likelihoods = choose_prior_weight(by_weight, reader.prior)
    description = "; ".join(f"{len(questions.questions)} of {questions}" for questions in sets)
    fitted_on = f"questions that training held out: {description}; k = {config.k}"
    calibration, figures = fit_rows(by_weight[weight], fitted_on, weight, reader.features)
    calibration = replace(calibration, early_margin=margin)
    report = {
        "date": datetime.date.today().isoformat(),
        "hardware": describe_hardware(),
        "weights": identity,
        "command": command,
        "log_likelihood_of_right_answers": {str(weight): round(value, 4) for weight, value in likelihoods.items()},
        **({"early_margin": margin, "early_margins": margins} if margins else {}),
        **figures,
    }
    install_calibration(calibration, config.reader)
    artefacts.write_text_whole(config.out, json.dumps(report, indent=1) + "\n")
    if config.plot:
        plot_figures(figures["by_a_fit_on_the_other_half"], config.plot)
    return calibration


def make_sets(config: CalibrateConfig) -> list[CalibrationSet]:
    """Return the sets of calibration questions that the settings name.

    SQuAD's paragraphs are indexed in the folder ``work``.

    Raises:
        BadInput, BadLine: a file of questions cannot be used, or no question of a file is left.
        RagqaError: as for ``build_paragraph_index`` and ``open_retriever``.
    """
    sets: list[CalibrationSet] = []
    by_file: list[list[Question]] = []
    if squad := config.squad:
        questions = select_questions(read_held_out_questions(squad, config.held_out), config, squad)
        index = build_paragraph_index(list(read_squad(squad)), config.work / "squad-train.index")
        by_file.append(questions)
        sets.append(CalibrationSet(squad, OWN_PARAGRAPH, questions, make_gold_hits, judge_by_agreement))
        sets += search_index(config, index, squad, "SQuAD, all paragraphs", questions, judge_by_agreement)
    if config.questions and config.index:
        questions = select_questions(read_answerable(config.questions), config, config.questions)
        by_file.append(questions)
        sets += search_index(config, config.index, config.questions, config.questions.stem, questions, judge_exactly)
    if config.own_questions and config.own_index:
        retriever, file = open_retriever(config.own_index), config.own_questions
        own = partial(CalibrationSet, file, "own documents", judge=judge_exactly)
        # An article among own documents may answer a question from elsewhere, so documents with an answer are left out.
        far = [question for others in by_file for question in others[:FAR_QUESTIONS]]
        sets.append(own(list(read_questions(file)), search_passages(retriever, config.k)))
        others = search_other_documents(retriever, config.k)
        sets.append(own(far, others, is_unanswerable=True, weight=FAR_WEIGHT))
    return sets


def search_index(
    config: CalibrateConfig, index: Path, file: Path, name: str, questions: Sequence[Question], judge: Judge
) -> list[CalibrationSet]:
    """Return two sets of questions that are answered from an index.

    The first set has all questions. The second set has half of them, and leaves out the documents with an answer.

    Args:
        config: settings of the calibration.
        index: index directory.
        file: file of the questions.
        name: name of the sets in reports.
        questions: questions of the file.
        judge: judge of the answers.

    Raises:
        RagqaError: as for ``open_retriever``.
    """
    retriever, half = open_retriever(index, config.retriever), questions[: len(questions) // 2]
    all_documents, other_documents = search_passages(retriever, config.k), search_other_documents(retriever, config.k)
    return [
        CalibrationSet(file, name, questions, all_documents, judge),
        CalibrationSet(file, name, half, other_documents, judge, is_unanswerable=True, weight=UNANSWERABLE_WEIGHT),
    ]


def select_questions(questions: Sequence[Question], config: CalibrateConfig, file: Path) -> list[Question]:
    """Return at most ``config.count`` questions that did not select the weights.

    Args:
        questions: held-out questions of a file.
        config: settings of the calibration; questions of ``exclude`` are left out.
        file: file of the questions, for the error.

    Raises:
        BadInput, BadLine: no question is left, or a file of ``config.exclude`` cannot be read.
    """
    others = split_held_out(questions, config.selection_sample, config.seed)[1]
    selected = drop_known(others, make_question_keys(config.exclude))[: config.count]
    if not selected:
        used = (
            f"{config.selection_sample} (--selection-sample) of {len(questions)} held-out questions chose the weights"
        )
        raise BadInput(f"{file}: {used}: none is left to calibrate on")
    return selected


def score_questions(
    reader: ExtractiveReader, questions: CalibrationSet, progress: Progress = SILENT
) -> list[ScoredPassages]:
    """Score the passages of each question of a set; all windows are read to the end.

    Args:
        reader: reader to calibrate.
        questions: set of questions.
        progress: shows the number of questions.

    Raises:
        RagqaError: as for ``ExtractiveReader.score`` and the retriever of the set.
    """
    scored: list[ScoredPassages] = []
    for batch in iterate_batches(list(questions.questions), progress, str(questions)):
        scored += reader.score([question.text for question in batch], questions.condition(batch), reads_all=True)
    return scored


def make_rows(
    reader: ExtractiveReader, questions: CalibrationSet, scored: Sequence[ScoredPassages], margin: float | None = None
) -> list[list[CalibrationRow]]:
    """Return the rows of a reader's best answers, in one list per weight of ``PRIOR_WEIGHTS``.

    A question has a row for its best answer from all passages, and another for the best answer from each smaller number
    of passages in ``SHALLOW_HITS``. Without an answer, there is no row.

    Args:
        reader: reader to calibrate.
        questions: set of questions.
        scored: scored passages of each question.
        margin: early margin in nats (``Calibration.early_margin``), or None to use all windows.
    """
    rows: list[list[CalibrationRow]] = [[] for _ in PRIOR_WEIGHTS]
    for number, (question, whole) in enumerate(zip(questions.questions, scored, strict=True)):
        # Spans are scored once; the weight of retrieval and the number of hits only change how they are merged.
        for part in (whole, *(whole.take(count) for count in SHALLOW_HITS if count < len(whole.hits))):
            # The margin counts from the best of the hits that are read, so it applies after ``take``.
            read = part if margin is None else part.read_on(margin)
            for weight, rows_of_weight in zip(PRIOR_WEIGHTS, rows, strict=True):
                if answers := reader.merge_spans(read, weight):
                    row = _make_row(questions, number, question, part.hits, answers)
                    rows_of_weight.append(row if part is whole else _mark_shallow(row, len(part.hits)))
    return rows


def _make_row(
    questions: CalibrationSet, number: int, question: Question, hits: list[Hit], answers: list[SpanAnswer]
) -> CalibrationRow:
    right = questions.judge(answers, question.answers)
    likelihood = sum(answer.evidence.weight * probability for answer, probability in zip(answers, right, strict=True))
    return CalibrationRow(
        file=questions.file,
        name=questions.name,
        number=number,
        kind=classify_question(hits, question, is_unanswerable=questions.is_unanswerable),
        evidence=answers[0].evidence,
        right=0.0 if questions.is_unanswerable else right[0],
        log_likelihood=float(np.log(max(likelihood, _MIN_PROBABILITY))),
        weight=questions.weight,
    )


def _mark_shallow(row: CalibrationRow, count: int) -> CalibrationRow:
    return replace(row, name=f"{row.name}, first {count}", weight=row.weight * SHALLOW_WEIGHT, is_shallow=True)


def balance_files(rows: Sequence[CalibrationRow]) -> np.ndarray:
    """Return the weight [N] of each answer in the fit.

    Answers to questions as asked, which are all but the unanswerable ones, have the same total weight in every file.
    """
    weight, file = np.array([row.weight for row in rows]), np.array([str(row.file) for row in rows])
    is_as_asked = np.array([row.kind != UNANSWERABLE for row in rows])
    for path in np.unique(file):
        weight[file == path] *= len(rows) / weight[(file == path) & is_as_asked].sum()
    return weight


def measure_likelihood(rows: Sequence[CalibrationRow]) -> float:
    """Return the weighted mean log-likelihood (nats) of right answers to answerable questions.

    Answers from a question's own paragraph count only if there are no others, because with a single paragraph the
    weight of retrieval scores makes no difference.

    Raises:
        BadInput: no question is answerable.
    """
    answerable_rows = [row for row in rows if row.kind == ANSWERABLE]
    if not answerable_rows:
        raise BadInput("no passage that was read holds an answer to any of the questions: there is nothing to fit")
    over_index = [row for row in answerable_rows if row.name != OWN_PARAGRAPH] or answerable_rows
    return float(np.average([row.log_likelihood for row in over_index], weights=[row.weight for row in over_index]))


def choose_prior_weight(by_weight: dict[float, list[CalibrationRow]], prior: str) -> tuple[float, dict[float, float]]:
    """Choose the weight of retrieval scores that makes right answers most probable.

    Args:
        by_weight: rows of answers by the weight of retrieval scores.
        prior: form of retrieval scores in the reader's prior; for forms other than ``SPREAD`` the weight is 1.

    Returns:
        The weight, and the mean log-likelihood of right answers with each weight, in nats.

    Raises:
        BadInput: no question is answerable.
    """
    likelihoods = {weight: measure_likelihood(rows) for weight, rows in by_weight.items()}
    best = max(likelihoods, key=lambda weight: likelihoods[weight])
    return best if prior == SPREAD else 1.0, likelihoods


def fit_rows(
    rows: list[CalibrationRow], fitted_on: str, prior_weight: float, features: Sequence[str] = SPAN_FEATURES
) -> tuple[Calibration, dict[str, Any]]:
    """Fit a calibration on answers, and measure its quality.

    Args:
        rows: answers of all sets.
        fitted_on: description of the questions, saved with the calibration.
        prior_weight: weight of retrieval scores.
        features: names of the features of the fit.

    Returns:
        The calibration with its threshold, and figures by name as JSON values.

    Raises:
        BadInput: too few answers are right.
    """
    right = sum(row.right for row in rows if not row.is_shallow)
    if right < MIN_ANSWERS:
        raise BadInput(f"{right:.0f} answers are right, and a fit needs {MIN_ANSWERS}: nothing is installed")
    pairs = [(row.evidence, row.right) for row in rows]
    fit = partial(cross_fit, pairs, fitted_on, features=features, weights=balance_files(rows))
    result = fit(parts=[row.number % 2 for row in rows])
    files = [str(row.file) for row in rows]
    unseen = fit(parts=files) if len(set(files)) > 1 else None
    threshold, declined = choose_decline_threshold(rows, result)
    calibration = replace(result.calibration, threshold=threshold, prior=prior_weight)
    full, kind = np.array([not row.is_shallow for row in rows]), np.array([row.kind for row in rows])
    return calibration, {
        "fitted_on": fitted_on,
        "coefficients": dict(zip(features, calibration.coefficients, strict=True)),
        "threshold": threshold,
        "right_answers_declined_below": declined,
        "retrieval_weight": prior_weight,
        "by_a_fit_on_the_other_half": summarise_sets(rows, result.confidence),
        "by_a_fit_on_the_other_files": summarise_sets(rows, unseen.confidence) if unseen else None,
        "refusals_of_all_sets": measure_refusals(result.confidence[full], result.right[full], kind[full]),
    }


def choose_decline_threshold(rows: Sequence[CalibrationRow], result: CrossFit) -> tuple[float, dict[str, float]]:
    """Choose the highest threshold that declines at most 5 % of right answers from an index.

    If there are sets in which retrieval finds an answer to most questions, only these sets count. Where most answers
    are missing, as in a small part of Wikipedia, right answers have a low confidence, and would lower the threshold.

    Args:
        rows: answers of all sets.
        result: fit with the confidence of each answer.

    Returns:
        The threshold, and the share of right answers below it in each set with right answers from an index.
    """
    name, kind = np.array([row.name for row in rows]), np.array([row.kind for row in rows])
    mask = np.array([row.name != OWN_PARAGRAPH and not row.is_shallow for row in rows])
    mask &= np.isin(kind, (ANSWERABLE, MISSED))
    dense = [part for part in set(name[mask]) if (kind[mask & (name == part)] == ANSWERABLE).mean() > 0.5]
    chosen = mask & np.isin(name, dense) if dense else mask
    threshold = choose_reader_threshold(result.confidence[chosen], result.right[chosen])
    declined = {}
    for set_name in dict.fromkeys(name[mask]):
        confidence = result.confidence[mask & (name == set_name) & (result.right == 1)]
        if len(confidence):
            declined[str(set_name)] = round(float((confidence < threshold).mean()), 4)
    return threshold, declined


def summarise_sets(rows: Sequence[CalibrationRow], confidence: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return the figures of ``summarise_answers`` for each set, by the set's name."""
    name, kind = np.array([row.name for row in rows]), np.array([row.kind for row in rows])
    right = np.array([row.right for row in rows])
    return {
        set_name: summarise_answers(*(values[name == set_name] for values in (confidence, right, kind)))
        for set_name in dict.fromkeys(name)
    }
