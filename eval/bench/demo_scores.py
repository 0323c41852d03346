"""The demo questions over the demo encyclopedia, asked as ``ragqa ask`` does.

python -m eval.bench.demo_scores --out docs/measurements/demo.json
"""

import argparse
import json
from pathlib import Path

import numpy as np

from eval.bench.record import record
from ragqa.asking import decline
from ragqa.demo import demo_index
from ragqa.metrics import exact_match, f1
from ragqa.paths import demo_dir
from ragqa.pipeline import Pipeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--min-confidence", type=float, default=0.2)
    parser.add_argument("--retriever")
    parser.add_argument("--wrong", action="store_true", help="print the questions that went wrong")
    args = parser.parse_args()
    rows = [json.loads(line) for line in (demo_dir() / "questions.jsonl").read_text().splitlines()]
    pipeline = Pipeline.load(demo_index(), retriever=args.retriever)
    answers = pipeline.ask([row["question"] for row in rows])
    said = [decline(answer, args.min_confidence) for answer in answers]
    known = [n for n, row in enumerate(rows) if row["answers"]]
    unknown = [n for n, row in enumerate(rows) if not row["answers"]]

    def em(texts: list[str | None]) -> float:
        return round(100 * float(np.mean([exact_match(texts[n], rows[n]["answers"]) for n in known])), 1)

    if args.wrong:
        for n in known:
            if not exact_match(said[n].text, rows[n]["answers"]):
                print(
                    rows[n]["question"],
                    "|",
                    rows[n]["answers"][0],
                    "|",
                    answers[n].text,
                    round(answers[n].confidence, 2),
                )
        for n in unknown:
            if said[n].text is not None:
                print("UNANSWERABLE", rows[n]["question"], "|", answers[n].text, round(answers[n].confidence, 2))
    figures = {
        "min_confidence": args.min_confidence,
        "answerable": {
            "questions": len(known),
            "EM": em([a.text for a in said]),
            "F1": round(100 * float(np.mean([f1(said[n].text, rows[n]["answers"]) for n in known])), 1),
            "declined_percent": round(100 * float(np.mean([said[n].text is None for n in known])), 1),
            "EM_if_never_declined": em([a.text for a in answers]),
        },
        "unanswerable": {
            "questions": len(unknown),
            "declined_percent": round(100 * float(np.mean([said[n].text is None for n in unknown])), 1),
        },
    }
    record(args.out, figures, corpus="demo encyclopedia, 168 articles", questions="ragqa/demo/questions.jsonl")


if __name__ == "__main__":
    main()
