"""How well span readers answer held-out questions: beside what an index finds, or beside their own paragraph.

    python -m pipelines.span_reader.exam runs/mean runs/fourth/model --squad squad/train-v1.1.json.xz \\
        --questions nq/dev.jsonl --index wiki.index --refuse nq/test-a.jsonl

In training such exams choose the weights; so whoever chooses among readers asks others: of each file's held-out
questions, ``--skip`` are left to those who chose the weights and to the calibration. A line of JSON for each reader.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from pipelines.calibrate.conditions import gold, over
from pipelines.common.data_sets import HELD_OUT_SHARE, read_held_out_questions, split_held_out
from pipelines.common.questions import answerable, asked_in, batches, unasked
from ragqa.errors import BadInput
from ragqa.metrics import exact_match, f1
from ragqa.progress import SILENT, Bars, Progress
from ragqa.reading.base import DEFAULT_PASSAGES
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.types import Hit, Question

SKIP = 1700
"""Held-out questions of a file that chose the shipped reader's weights (500), and that calibrate it (1,200)."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    from ragqa.cli.config import report_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("readers", type=Path, nargs="+", help="exports or torch directories")
    add("--squad", type=Path, help="SQuAD 1.1 train file")
    add("--questions", type=Path, help="other held-out questions, asked over --index")
    add("--index", type=Path, help="index directory for these")
    add("--retriever", help=f"{', '.join(RetrieverKind)}; default: all that an index can do")
    add("--refuse", type=Path, nargs="+", default=[], help="files whose questions are not asked: those of the tests")
    add("--skip", type=int, default=SKIP, help="questions of each file that others are asked")
    add("--count", type=int, help="questions of each file; default: all that are left")
    add("--seed", type=int, default=0, help="of the training")
    add("--held-out", type=float, default=HELD_OUT_SHARE, help="share of SQuAD's articles that the training held out")
    add("-k", type=int, default=DEFAULT_PASSAGES)
    args = parser.parse_args(arguments)
    with report_errors("pipelines.span_reader.exam"):
        exams = exams_of(args)
        for path in args.readers:
            reader = ExtractiveReader.load(path)
            found = {name: value for exam in exams for name, value in exam.taken(reader, exam.name, Bars()).items()}
            counts = {exam.name: len(exam.questions) for exam in exams}
            print(json.dumps({"reader": str(path), "questions": counts, **{k: round(v, 4) for k, v in found.items()}}))


def exams_of(args: argparse.Namespace) -> list[Exam]:
    """The exams that are asked for; raises BadInput where nothing is left to ask."""
    if bool(args.questions) != bool(args.index) or not (args.squad or args.questions):
        raise BadInput("--squad FILE, or --questions FILE with --index DIR, or all of them are needed")
    refused = asked_in(args.refuse)

    def left(questions: Sequence[Question], file: Path) -> list[Question]:
        found = unasked(split_held_out(questions, args.skip, args.seed)[1], refused)[: args.count]
        if not found:
            raise BadInput(f"{file}: of {len(questions)} held-out questions {args.skip} are skipped: none is left")
        return found

    exams = []
    if args.squad:
        exams.append(gold_exam(left(read_held_out_questions(args.squad, args.held_out), args.squad)))
    if args.questions:
        asked = left(answerable(args.questions), args.questions)
        exams.append(open_exam(asked, open_retriever(args.index, args.retriever), args.k))
    return exams


if __name__ == "__main__":
    main()
