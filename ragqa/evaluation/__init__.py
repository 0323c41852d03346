"""Evaluation of a pipeline on a set of questions, with scores and a row for each question."""

from ragqa.evaluation.report.store import Report
from ragqa.evaluation.report.write import rebuild_report
from ragqa.evaluation.run import EvaluationSettings, evaluate

__all__ = ["EvaluationSettings", "Report", "evaluate", "rebuild_report"]
