"""Fit the confidence of an exported reader on questions it was not trained on.

    python -m pipelines.calibrate --squad train-v1.1.json.xz --reader DIR --work runs/calibration

The questions are those of the articles that ``pipelines.span_reader`` holds out. They are asked
over all paragraphs, and a half of them once more with those articles taken out of what is found, so
that whatever is answered is wrong. Writes ``calibration.json`` into the reader.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.progress import track

from pipelines.span_reader import held_out
from ragqa import artefact
from ragqa.indexing import IndexConfig, build_index
from ragqa.metrics import exact_match
from ragqa.pipeline import PASSAGES, open_retriever
from ragqa.progress import Bars
from ragqa.questions import SquadParagraph, SquadQuestion, read_squad, write_squad_corpus
from ragqa.reading.confidence import Calibration, Evidence, fit
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Retriever
from ragqa.types import Hit

SHARE = 0.05
"""Share of the articles that training holds out; ``ReaderConfig.held_out``."""


def index_of(paragraphs: list[SquadParagraph], out: Path) -> Path:
    """A hybrid index of the paragraphs, a passage each; made unless it is there."""
    if not (out / artefact.MANIFEST).is_file():
        out.parent.mkdir(parents=True, exist_ok=True)
        corpus = out.with_suffix(".jsonl")
        write_squad_corpus(paragraphs, corpus)
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


def judged(
    reader: ExtractiveReader, retriever: Retriever, questions: list[SquadQuestion], k: int
) -> list[tuple[Evidence, bool]]:
    """Of every question that found an answer: what speaks for it, and whether it is right."""
    rows = []
    for at in track(range(0, len(questions), 16), description="asking"):
        asked = questions[at : at + 16]
        texts = [question.text for question in asked]
        found = reader.find(texts, retriever.search(texts, k))
        for question, answers in zip(asked, found, strict=True):
            if answers:
                right = exact_match(answers[0].text, question.answers, unicode=None)
                rows.append((answers[0].evidence, right))
    return rows


def calibration_error(confidence: np.ndarray, right: np.ndarray, *, bins: int = 10) -> float:
    """Expected calibration error over bins of equal width (Guo et al. 2017)."""
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(confidence[place == b].mean() - right[place == b].mean()) * np.mean(place == b) for b in set(place)]
    return float(sum(gaps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True, help="SQuAD 1.1 train file")
    parser.add_argument("--reader", type=Path, required=True, help="exported reader to calibrate")
    parser.add_argument("--work", type=Path, required=True, help="where the index is kept")
    parser.add_argument("--questions", type=int, default=1200)
    parser.add_argument("-k", type=int, default=PASSAGES)
    args = parser.parse_args()
    paragraphs = list(read_squad(args.squad))
    asked = [q for p in paragraphs if held_out(p.title, SHARE) for q in p.questions]
    order = np.random.default_rng(0).permutation(len(asked))[: args.questions]
    questions = [asked[row] for row in order]
    reader = ExtractiveReader.load(args.reader)
    retriever = open_retriever(index_of(paragraphs, args.work / "squad-train.index"))
    half = questions[: len(questions) // 2]
    rows = judged(reader, retriever, questions, args.k) + judged(reader, Without(retriever), half, args.k)

    evidence, right = [e for e, _ in rows], [r for _, r in rows]
    where = (
        f"{len(questions)} questions of articles of SQuAD 1.1 train that were held out of training, k = {args.k}, "
        f"and {len(half)} of them again without their articles"
    )
    # Judged on the half that was not fitted, then fitted on all.
    first = fit(evidence[::2], right[::2], where)
    said = np.array([first.confidence(e) for e in evidence[1::2]])
    calibration = fit(evidence, right, where)
    install(calibration, args.reader)
    print(json.dumps({
        "coefficients": calibration.coefficients,
        "right_percent": 100 * float(np.mean(right)),
        "calibration_error_on_the_other_half": calibration_error(said, np.array(right[1::2], dtype=float)),
    }, indent=1))  # fmt: skip


def install(calibration: Calibration, reader: Path) -> None:
    """Put the calibration into an exported reader and seal it again."""
    manifest = artefact.read(reader, "reader")
    calibration.save(reader)
    artefact.seal(reader, "reader", manifest.config, manifest.parents)


if __name__ == "__main__":
    main()
