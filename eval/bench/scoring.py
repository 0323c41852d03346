"""How long scoring takes, has-answer included, and what memory it needs.

    python -m eval.bench.scoring --index DIR --questions FILE.jsonl … --work DIR --out docs/measurements/scoring.json

The first 10,000 questions of the files, each with the 100 passages that BM25 finds in the index, are written as the
predictions of another system; ``ragqa eval`` then scores the first 1,000, 3,000 and all of them, each time in a
process of its own.
"""

import argparse
import json
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rich.progress import track

from eval.bench.process import timed
from eval.bench.record import record
from ragqa import artefacts
from ragqa.questions import read_questions
from ragqa.retrieval.registry import open_retriever

QUESTIONS, PASSAGES = 10_000, 100
SIZES = (1_000, 3_000, QUESTIONS)
RAGQA = str(Path(sys.executable).parent / "ragqa")


def prepare(index: Path, files: list[Path], questions: Path, predictions: Path) -> None:
    """Write the questions, and what BM25 finds for them; a prediction is the title of the first passage."""
    retriever = open_retriever(index, "bm25")
    asked = list(islice(chain.from_iterable(read_questions(file) for file in files), QUESTIONS))
    if len(asked) < QUESTIONS:
        raise SystemExit(f"{len(asked)} questions: {QUESTIONS} are needed")
    with questions.open("w") as question_file, predictions.open("w") as prediction_file:
        for at in track(range(0, len(asked), 100), description="retrieving"):
            batch = asked[at : at + 100]
            for question, hits in zip(batch, retriever.search([q.text for q in batch], PASSAGES), strict=True):
                question_file.write(json.dumps({"question": question.text, "answers": question.answers}) + "\n")
                ctxs = [{"title": h.passage.title, "text": h.passage.text, "score": h.score} for h in hits]
                title = hits[0].passage.title if hits else ""
                prediction_file.write(json.dumps({"prediction": title, "ctxs": ctxs}) + "\n")


def scored(questions: Path, predictions: Path, count: int, work: Path) -> dict[str, Any]:
    """Time and memory of scoring the first ``count``, process and page included."""
    out = work / f"{count}.report"
    command = [RAGQA, "eval", str(questions), "--predictions", str(predictions), "--limit", str(count)]
    run = timed([*command, "--out", str(out), "--json"])
    figures = json.loads(run["out"])
    return {
        "questions": figures["about"]["questions"],
        "answer_recall_100": round(figures["answer_recall"]["100"]["value"], 4),
        "seconds": round(run["seconds"], 1),
        "peak_rss_mb": round(run["rss_mb"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--questions", type=Path, nargs="+", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    questions, predictions = args.work / "questions.jsonl", args.work / "predictions.jsonl"
    prepare(args.index, args.questions, questions, predictions)
    figures = {
        "passages_a_question": PASSAGES,
        "predictions_mb": round(predictions.stat().st_size / 1e6),
        "runs": [scored(questions, predictions, count, args.work) for count in SIZES],
    }
    passages = artefacts.peek(args.index).config["passages"]
    record(
        args.out,
        figures,
        corpus=f"{args.index.name}, {passages:,} passages",
        questions=f"the first {QUESTIONS:,} of {', '.join('/'.join(f.parts[-2:]) for f in args.questions)}",
    )


if __name__ == "__main__":
    main()
