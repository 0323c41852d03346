"""Fit the confidence of an exported reader on questions it was not trained on, answerable and not.

    python -m pipelines.calibrate --reader DIR --squad train-v1.1.json.xz --questions nq/dev.jsonl --index wiki.index \\
        --work DIR --out FILE.json --plot FILE.png

Of SQuAD those of the articles are asked that ``pipelines.span_reader`` holds out, over all paragraphs of the file; of
``--questions`` those that did not choose its weights, over ``--index``. A half of each is asked once more with the
documents taken out that the question names or that hold an answer, so that whatever is answered is wrong. Writes
``calibration.json`` into the reader; the figures are of the half of the answers that was not fitted.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipelines.confidence import Fitted, fitted, install, judged, unseen
from pipelines.reader_examples import SHARE, held_out
from ragqa import artefact
from ragqa.errors import BadInput, MissingExtra
from ragqa.evaluation.statistics import accuracy_at_coverage, calibration_error, refusals, reliability, risk_coverage
from ragqa.indexing import IndexConfig, build_index
from ragqa.metrics import exact_match, has_answer
from ragqa.progress import SILENT, Bars, Progress
from ragqa.questions import SquadParagraph, read_questions, read_squad, write_documents
from ragqa.reading.base import PASSAGES
from ragqa.reading.confidence import FEATURES, Evidence
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.open import open_retriever
from ragqa.types import Hit, Question

Row = tuple[Evidence, bool]
"""What speaks for an answer, and whether it is right."""
FURTHER = 10
"""Times as many hits as are read are looked for where some are taken out."""
REFUSED, COVERED = 0.05, 0.5
"""Share of answerable questions that may be refused, and that are answered, where single figures are given."""
_POINTS = 100
"""Of the curve that are written."""


def index_of(paragraphs: list[SquadParagraph], out: Path) -> Path:
    """A hybrid index of the paragraphs, a passage each; made unless it is there."""
    if not (out / artefact.MANIFEST).is_file():
        out.parent.mkdir(parents=True, exist_ok=True)
        corpus = out.with_suffix(".jsonl")
        write_documents(((each.title, each.text) for each in paragraphs), corpus)
        build_index([corpus], out, IndexConfig(block_size=10_000), progress=Bars())
    return out


@dataclass(frozen=True)
class Without:
    """A retriever that never finds the documents of a question: those it names, and those found to hold an answer."""

    retriever: Retriever
    questions: Sequence[Question]

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        """The first ``k`` hits of other documents."""
        known = {question.text: question for question in self.questions}
        found = self.retriever.search(questions, FURTHER * k)
        return [_elsewhere(hits, known[text])[:k] for text, hits in zip(questions, found, strict=True)]


def _elsewhere(hits: list[Hit], question: Question) -> list[Hit]:
    own = {_document(hit) for hit in hits if has_answer(hit.passage.text, question.answers)}.union(question.titles)
    return [hit for hit in hits if _document(hit) not in own]


def _document(hit: Hit) -> str:
    """Its title: the paragraphs of an article of SQuAD's are documents of their own."""
    return hit.passage.title or hit.passage.document


@dataclass(frozen=True)
class Held:
    """Questions that a reader was not trained on, and where they are asked."""

    name: str
    questions: Sequence[Question]
    retriever: Retriever
    unicode: Literal["NFD"] | None
    """Rule of exact match: that of NQ-open, or SQuAD's."""

    def judged(self, reader: ExtractiveReader, k: int, progress: Progress = SILENT) -> tuple[list[Row], list[Row]]:
        """Answers to all questions, and to a half of them without their documents."""
        half = self.questions[: len(self.questions) // 2]
        right = partial(exact_match, unicode=self.unicode)
        without = Without(self.retriever, half)
        return (
            judged(reader, self.retriever, self.questions, k, right, progress=progress),
            judged(reader, without, half, k, right, progress=progress),
        )


def squad(file: Path, work: Path, count: int, judged_by: int) -> Held:
    """Questions of the held-out articles, over the paragraphs of all."""
    asked = [question for question in read_questions(file) if held_out(question.titles[0], SHARE)]
    order = np.random.default_rng(0).permutation(len(asked))[judged_by:][:count]  # training asks the first ones
    retriever = open_retriever(index_of(list(read_squad(file)), work / "squad-train.index"))
    return Held("articles of SQuAD 1.1 train that were held out", [asked[row] for row in order], retriever, None)


def others(file: Path, index: Path, retriever: str | None, count: int, judged_by: int) -> Held:
    """Questions of a file, over an index."""
    asked = unseen(file, None, judged_by, 0)
    order = np.random.default_rng(0).permutation(len(asked))[:count]
    return Held(file.name, [asked[row] for row in order], open_retriever(index, retriever), "NFD")


def figures(found: Fitted, answerable: np.ndarray) -> dict[str, Any]:
    """What the half of the answers that was not fitted shows; ``answerable``: which of them are to such questions.

    Shares in [0, 1]. ``curve`` has a row a threshold: it, the share of answerable questions refused below it, of right
    answers refused, and of unanswerable questions declined.
    """
    said, right = found.said, found.right
    known, unknown, sure = said[answerable], said[~answerable], said[answerable & (right == 1)]
    coverage, risk = risk_coverage(known, right[answerable])
    em, half = float(right[answerable].mean()), accuracy_at_coverage(coverage, risk, COVERED)
    thresholds, declined = refusals(said, unknown)
    refused, lost = (refusals(said, each)[1] for each in (known, sure))
    thresholds[-1] = 1.0  # above all of them
    kept = np.unique(np.linspace(0, len(thresholds) - 1, _POINTS).astype(int))
    return {
        "answers": {"answerable": len(known), "unanswerable": len(unknown)},
        "expected_calibration_error": round(found.error, 4),
        "expected_calibration_error_answerable": round(calibration_error(known, right[answerable]), 4),
        "reliability": [asdict(part) for part in reliability(said, right)],
        "em_answerable": round(em, 4),
        "em_at_half_coverage": half and round(half, 4),
        "times_em": half and em and round(half / em, 3),
        "declined_unanswerable_at_5_percent_of": {
            "answerable_refused": round(float(declined[refused <= REFUSED].max(initial=0)), 4),
            "right_answers_refused": round(float(declined[lost <= REFUSED].max(initial=0)), 4),
        },
        "curve": np.round(np.stack([thresholds, refused, lost, declined], -1)[kept], 4).tolist(),
        "answered_and_right_by_threshold": by_threshold(said, right),
    }


def by_threshold(said: np.ndarray, right: np.ndarray) -> dict[str, dict[str, float]]:
    """What declining below a confidence would do: share answered, share right of those, of the wrong ones declined."""
    return {
        str(t): {
            "answered": round(float((said >= t).mean()), 3),
            "right_of_answered": round(float(right[said >= t].mean()), 3) if (said >= t).any() else 0.0,
            "wrong_declined": round(float((said < t)[right == 0].mean()), 3),
            "right_declined": round(float((said < t)[right == 1].mean()), 3),
        }
        for t in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
    }


def plot(found: dict[str, Any], file: Path) -> None:
    """Draw the curve of refusals beside the reliability; raises MissingExtra without matplotlib."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("a plot", "eval") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    _, refused, lost, declined = (100 * np.array(found["curve"])).T
    left.plot(refused, declined, color="C0", label="of all answerable questions")
    left.plot(lost, declined, "--", color="C1", label="of those that are answered right")
    left.axvline(100 * REFUSED, color="grey", lw=0.6, ls=":")
    left.set(xlabel="% refused, answerable", ylabel="% declined, unanswerable", xlim=(0, 100), ylim=(0, 101))
    left.legend(fontsize=8)
    right.plot([0, 1], [0, 1], color="grey", lw=0.6, ls=":")
    bins = found["reliability"]
    right.plot([each["confidence"] for each in bins], [each["right"] for each in bins], "o-", color="C0")
    right.set(xlabel="mean confidence", ylabel="share right", title=f"ECE {found['expected_calibration_error']:.3f}")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    from index.command import one_line

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--reader", type=Path, required=True, help="exported reader to calibrate")
    add("--squad", type=Path, help="SQuAD 1.1 train file")
    add("--questions", type=Path, help="other held-out questions, asked over --index")
    add("--index", type=Path, help="index directory for these")
    add("--retriever", help="dense, bm25 or hybrid; default: all that the index can do")
    add("--work", type=Path, required=True, help="where the index of SQuAD's paragraphs is kept")
    add("--count", type=int, default=1200, help="questions of each file")
    add("--judged-by", type=int, default=500, help="of each file, so many chose the weights (--sample of training)")
    add("--out", type=Path, required=True, help="JSON file of figures")
    add("--plot", type=Path, help="picture of them")
    add("-k", type=int, default=PASSAGES)
    args = parser.parse_args(arguments)
    with one_line("pipelines.calibrate"):
        go(args, arguments)


def go(args: argparse.Namespace, arguments: Sequence[str] | None) -> None:
    """Ask, fit, install, and write what is wanted."""
    if bool(args.questions) != bool(args.index) or not (args.squad or args.questions):
        raise BadInput("--squad FILE, or --questions FILE with --index DIR, or all of them are needed")
    sets = [squad(args.squad, args.work, args.count, args.judged_by)] if args.squad else []
    if args.questions:
        sets.append(others(args.questions, args.index, args.retriever, args.count, args.judged_by))
    reader = ExtractiveReader.load(args.reader)
    rows: list[Row] = []
    kinds: list[bool] = []
    for each in sets:
        answers, vain = each.judged(reader, args.k, Bars())
        rows += [*answers, *vain]
        kinds += [True] * len(answers) + [False] * len(vain)
    asked = ", ".join(f"{len(each.questions)} questions of {each.name}" for each in sets)
    where = f"{asked}, k = {args.k}, and a half of them again without their documents"
    found = fitted(rows, where)
    install(found.calibration, args.reader)
    told = figures(found, np.array(kinds[1::2]))
    row = {
        "command": "python -m pipelines.calibrate " + " ".join(sys.argv[1:] if arguments is None else arguments),
        "fitted_on": where,
        "coefficients": dict(zip(FEATURES, found.calibration.coefficients, strict=True)),
        "on_the_half_not_fitted": told,
    }
    args.out.write_text(json.dumps(row, indent=1) + "\n")
    if args.plot:
        plot(told, args.plot)
    print(args.out.read_text())


if __name__ == "__main__":
    main()
