"""How well a span reader in training answers held-out questions: beside what an index finds, or its own paragraph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pipelines.asked import batches
from pipelines.conditions import gold, over
from ragqa.metrics import exact_match, f1
from ragqa.progress import SILENT, Progress
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Retriever
from ragqa.types import Hit, Question

_ASKED = 64
"""Questions that are asked at a time."""


@dataclass(frozen=True)
class Exam:
    """Questions with the passages that are read for them."""

    name: str
    questions: Sequence[Question]
    hits: Sequence[list[Hit]]
    unicode: Literal["NFD"] | None
    """Rule of exact match: that of NQ-open, or SQuAD's."""

    @torch.no_grad()
    def taken(self, reader: ExtractiveReader, title: str = "asking", progress: Progress = SILENT) -> dict[str, float]:
        """``NAME_em`` and ``NAME_f1``."""
        right, overlap, count = 0.0, 0.0, len(self.questions)
        for some in batches(list(zip(self.questions, self.hits, strict=True)), progress, title, _ASKED):
            answers = reader.read([question.text for question, _ in some], [hits for _, hits in some])
            for (question, _), answer in zip(some, answers, strict=True):
                right += exact_match(answer.text, question.answers, unicode=self.unicode)
                overlap += f1(answer.text, question.answers)
        return {f"{self.name}_em": right / count, f"{self.name}_f1": overlap / count}


def open_exam(questions: Sequence[Question], retriever: Retriever, read: int) -> Exam:
    """Questions beside the ``read`` passages that are found for them."""
    search = over(retriever, read)
    hits = [each for some in batches(questions, SILENT, "searching", _ASKED) for each in search(some)]
    return Exam("dev", questions, hits, "NFD")


def gold_exam(questions: Sequence[Question]) -> Exam:
    """Questions beside their own paragraph, without its title: SQuAD's task, as the suites ask it with ``--gold``."""
    return Exam("gold", questions, gold(questions), None)
