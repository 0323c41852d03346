"""Fit the confidence of an exported reader on questions it was not trained on.

    python -m pipelines.calibrate --squad train-v1.1.json.xz --reader DIR --work DIR --out FILE.json

The questions are those of the articles that ``pipelines.span_reader`` holds out. They are asked
over all paragraphs, and a half of them once more with those articles taken out of what is found, so
that whatever is answered is wrong. Writes ``calibration.json`` into the reader.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pipelines.confidence import fitted, install, judged
from pipelines.reader_examples import SHARE, held_out
from ragqa import artefact
from ragqa.evaluation.statistics import reliability
from ragqa.indexing import IndexConfig, build_index
from ragqa.metrics import exact_match
from ragqa.progress import Bars
from ragqa.questions import SquadParagraph, read_squad, write_documents
from ragqa.reading.base import PASSAGES
from ragqa.reading.confidence import FEATURES
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.open import open_retriever
from ragqa.types import Hit


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
    """A retriever that never finds the articles held out of training."""

    retriever: Retriever

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        """The first ``k`` hits of other articles, past those of one article (43 paragraphs on average)."""
        found = self.retriever.search(questions, k + 80)
        return [[h for h in hits if not held_out(h.passage.title, SHARE)][:k] for hits in found]


def right(said: str, answers: Sequence[str]) -> bool:
    """By the rule of SQuAD."""
    return exact_match(said, answers, unicode=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True, help="SQuAD 1.1 train file")
    parser.add_argument("--reader", type=Path, required=True, help="exported reader to calibrate")
    parser.add_argument("--work", type=Path, required=True, help="where the index is kept")
    parser.add_argument("--questions", type=int, default=1200)
    parser.add_argument("--out", type=Path, required=True, help="JSON file of figures")
    parser.add_argument("-k", type=int, default=PASSAGES)
    args = parser.parse_args()
    paragraphs = list(read_squad(args.squad))
    asked = [q for p in paragraphs if held_out(p.title, SHARE) for q in p.questions]
    order = np.random.default_rng(0).permutation(len(asked))[: args.questions]
    questions = [asked[row] for row in order]
    reader = ExtractiveReader.load(args.reader)
    retriever = open_retriever(index_of(paragraphs, args.work / "squad-train.index"))
    half = questions[: len(questions) // 2]
    rows = judged(reader, retriever, questions, args.k, right, progress=Bars())
    rows += judged(reader, Without(retriever), half, args.k, right, progress=Bars())
    where = (
        f"{len(questions)} questions of articles of SQuAD 1.1 train that were held out of training, k = {args.k}, "
        f"and {len(half)} of them again without their articles"
    )
    found = fitted(rows, where)
    install(found.calibration, args.reader)
    figures = {
        "command": "python -m pipelines.calibrate " + " ".join(sys.argv[1:]),
        "fitted_on": where,
        "coefficients": dict(zip(FEATURES, found.calibration.coefficients, strict=True)),
        "right_percent": round(100 * float(np.mean([is_right for _, is_right in rows])), 1),
        "expected_calibration_error_on_the_half_not_fitted": round(found.error, 4),
        "reliability_on_the_half_not_fitted": [asdict(part) for part in reliability(found.said, found.right)],
        "answered_and_right_by_threshold": thresholds(found.said, found.right),
    }
    args.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(args.out.read_text())


def thresholds(said: np.ndarray, right: np.ndarray) -> dict[str, dict[str, float]]:
    """What declining below a confidence would do: share answered, share right of those, of the wrong ones declined."""
    return {
        str(t): {
            "answered": round(float((said >= t).mean()), 3),
            "right_of_answered": round(float(right[said >= t].mean()), 3),
            "wrong_declined": round(float((said < t)[right == 0].mean()), 3),
            "right_declined": round(float((said < t)[right == 1].mean()), 3),
        }
        for t in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
    }


if __name__ == "__main__":
    main()
