"""How far the installed confidence can be trusted on test questions: nothing is fitted here.

    python -m eval.bench.squad_index --squad squad/ --out squad.index
    python -m eval.bench.confidence --data DIR --paragraphs squad.index --index wiki.index \\
        --out docs/measurements/confidence.json --plot docs/confidence.png

SQuAD dev-a beside its own paragraphs and over ``--paragraphs``, NQ test-a over ``--index``; the last two once more with
the documents taken out that a question names or that hold an answer. Right is exact match by each suite's rule. What
each figure is: ``pipelines.calibrate.report``.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.record import record
from eval.command import check, one_line
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Suite, read_split
from pipelines.calibrate.conditions import Condition, gold, kind_of, over, without
from pipelines.calibrate.report import figures, plot
from pipelines.common.plot import check_plot
from pipelines.common.questions import batches
from ragqa.metrics import exact_match
from ragqa.progress import Bars, Progress
from ragqa.questions import drawn
from ragqa.reading.base import PASSAGES
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.registry import open_retriever
from ragqa.types import Question

SUITES = {"squad": SQUAD, "nq": NQ}


def asked(
    name: str,
    reader: ExtractiveReader,
    questions: Sequence[Question],
    condition: Condition,
    suite: Suite,
    progress: Progress,
    *,
    vain: bool = False,
) -> tuple[list[float], list[bool], list[str]]:
    """Confidence, whether the answer is right, and kind, of each question; confidence 0 where there is no answer."""
    said: list[float] = []
    right: list[bool] = []
    kinds: list[str] = []
    for some in batches(questions, progress, name):
        hits = condition(some)
        for question, found, answer in zip(some, hits, reader.read([each.text for each in some], hits), strict=True):
            said.append(answer.confidence)
            right.append(not vain and exact_match(answer.text, question.answers, unicode=suite.unicode))
            kinds.append(kind_of(found, question, vain=vain))
    return said, right, kinds


def measured(
    name: str,
    reader: ExtractiveReader,
    questions: Sequence[Question],
    conditions: Sequence[Condition],
    suite: Suite,
    progress: Progress,
) -> dict[str, Any]:
    """Figures of a set; its second condition, if there is one, is that in which it is asked in vain."""
    parts = [
        asked(f"{name}, in vain" if vain else name, reader, questions, condition, suite, progress, vain=bool(vain))
        for vain, condition in enumerate(conditions)
    ]
    said, right, kind = (np.array([each for part in column for each in part]) for column in zip(*parts, strict=True))
    return figures(said, right.astype(float), kind)


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--reader", type=Path, help="exported reader; default: ragqa's own")
    add("--data", type=Path, required=True, help="folder of squad and nq")
    add("--paragraphs", type=Path, required=True, help="index of SQuAD's paragraphs (eval.bench.squad_index)")
    add("--index", type=Path, required=True, help="index that NQ is asked over")
    add("--retriever", help="dense, bm25 or hybrid; default: all that an index can do")
    add("-k", type=int, default=PASSAGES, help="passages that are read")
    add("--limit", type=int, help="so many questions of each set only, drawn by chance")
    add("--out", type=Path, required=True, help="JSON file of figures")
    add("--plot", type=Path, help="picture of them")
    args = parser.parse_args(arguments)
    with one_line():
        go(args)


def go(args: argparse.Namespace) -> None:
    """Ask, and write what came of it."""
    check(args, "limit", "k")
    if args.plot:
        check_plot(args.plot)
    progress = Bars()
    reader = ExtractiveReader.load(args.reader)
    retrievers = {key: open_retriever(index, args.retriever) for key, index in _indexes(args).items()}
    questions = {key: questions_of(suite, args.data / key, args.limit) for key, suite in SUITES.items()}
    found = {
        "SQuAD dev-a, own paragraph": measured("own paragraph", reader, questions["squad"], [gold], SQUAD, progress)
    }
    for name, key in {"SQuAD dev-a": "squad", "NQ test-a": "nq"}.items():
        ways = [each(retrievers[key], args.k) for each in (over, without)]
        found[name] = measured(name, reader, questions[key], ways, SUITES[key], progress)
    counts = ", ".join(f"{len(each)} of {key}" for key, each in questions.items())
    about = {"reader": reader.fingerprint, "threshold": reader.threshold, "k": args.k, "sets": found}
    record(args.out, about, corpus=", ".join(each.name for each in _indexes(args).values()), questions=counts)
    if args.plot:
        plot(found, args.plot)


def questions_of(suite: Suite, data: Path, limit: int | None) -> list[Question]:
    """Those of a suite, or ``limit`` of them."""
    questions, total = read_split(suite, suite.default_split, data)
    return list(questions if limit is None else drawn(questions, total, limit))


def _indexes(args: argparse.Namespace) -> dict[str, Path]:
    return {"squad": args.paragraphs, "nq": args.index}


if __name__ == "__main__":
    main()
