"""Scores of a pipeline on a set of questions: a row a question, and a report that can be trusted and looked at."""

from ragqa.evaluation.report.store import Report, renew
from ragqa.evaluation.run import evaluate

__all__ = ["Report", "evaluate", "renew"]
