"""EM and F1 of published SQuAD predictions by ragqa and by another's code, on dev-a's questions.

    pip install torchmetrics
    python -m eval.bench.squad_official --squad DIR --out docs/measurements/squad_official.json

The other is ``torchmetrics``, which follows the official SQuAD 1.1 script. Every question is compared, not only the
totals.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from torchmetrics.functional.text import squad as torchmetrics_squad

from eval.bench.record import record
from ragqa.metrics import exact_match, f1
from ragqa.questions import read_questions
from ragqa.types import Question


def torchmetrics_scores(prediction: str, question: Question) -> tuple[float, float]:
    """EM and F1 of one answer, each 0 to 1."""
    target = {"answers": {"text": list(question.answers), "answer_start": [0] * len(question.answers)}, "id": "0"}
    scores = torchmetrics_squad([{"prediction_text": prediction, "id": "0"}], [target])
    return float(scores["exact_match"]) / 100, float(scores["f1"]) / 100


def compared(predictions: dict[str, str], questions: list[Question]) -> dict[str, Any]:
    """Totals by each, and how many questions they score differently by more than rounding."""
    ours, theirs = [], []
    for question in questions:
        said = predictions.get(question.id)
        ours.append((float(exact_match(said, question.answers, unicode=None)), f1(said, question.answers)))
        theirs.append((0.0, 0.0) if said is None else torchmetrics_scores(said, question))

    def totals(scores: list[tuple[float, float]]) -> dict[str, float]:
        em, overlap = zip(*scores, strict=True)
        return {"EM": round(100 * sum(em) / len(em), 2), "F1": round(100 * sum(overlap) / len(overlap), 2)}

    return {
        "ragqa": totals(ours),
        "torchmetrics": totals(theirs),
        "questions": len(questions),
        "without_a_prediction": sum(question.id not in predictions for question in questions),
        "questions_that_differ": sum(not np.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True, help="folder with dev-a-v1.1.json.xz and predictions/")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    questions = list(read_questions(args.squad / "dev-a-v1.1.json.xz"))
    figures = {
        file.stem: compared(json.loads(file.read_text()), questions)
        for file in sorted((args.squad / "predictions").glob("*.json"))
    }
    record(args.out, figures, corpus="none: published predictions", questions="SQuAD 1.1 dev-a, 3,482 questions")


if __name__ == "__main__":
    main()
