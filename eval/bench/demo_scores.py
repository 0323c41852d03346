"""The demo questions over the demo encyclopedia, asked as ``ragqa ask`` does.

python -m eval.bench.demo_scores --out docs/measurements/demo.json
"""

import argparse
from pathlib import Path

import numpy as np

from eval.bench.record import record
from ragqa.demo import demo_index
from ragqa.metrics import exact_match, f1
from ragqa.paths import demo_dir
from ragqa.pipeline import Pipeline
from ragqa.questions import read_questions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--min-confidence", type=float, default=0.2)
    parser.add_argument("--retriever")
    parser.add_argument("--wrong", action="store_true", help="print the questions that went wrong")
    args = parser.parse_args()
    rows = list(read_questions(demo_dir() / "questions.jsonl"))
    pipeline = Pipeline.load(demo_index(), retriever=args.retriever)
    answers = pipeline.ask([row.text for row in rows])
    said = [answer.text if answer.confidence >= args.min_confidence else None for answer in answers]
    gold = [row.answers for row in rows]
    known = [n for n, answers_of in enumerate(gold) if answers_of]
    unknown = [n for n, answers_of in enumerate(gold) if not answers_of]

    def percent(values: list[float]) -> float:
        return round(100 * float(np.mean(values)), 1)

    if args.wrong:
        for n, row in enumerate(rows):
            if not exact_match(said[n], gold[n]) and (gold[n] or said[n]):
                print(row.text, "|", gold[n][:1], "|", answers[n].text, f"{answers[n].confidence:.2f}")
    figures = {
        "min_confidence": args.min_confidence,
        "answerable": {
            "questions": len(known),
            "EM": percent([exact_match(said[n], gold[n]) for n in known]),
            "F1": percent([f1(said[n], gold[n]) for n in known]),
            "declined_percent": percent([said[n] is None for n in known]),
            "EM_if_never_declined": percent([exact_match(answers[n].text, gold[n]) for n in known]),
            "F1_if_never_declined": percent([f1(answers[n].text, gold[n]) for n in known]),
        },
        "unanswerable": {
            "questions": len(unknown),
            "declined_percent": percent([said[n] is None for n in unknown]),
        },
    }
    record(args.out, figures, corpus="demo encyclopedia, 168 articles", questions="ragqa/demo/questions.jsonl")


if __name__ == "__main__":
    main()
