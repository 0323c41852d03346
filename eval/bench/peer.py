"""Run the same models through sentence-transformers and transformers: a script as one would write it.

    python eval/bench/peer.py DIR "question" …              # DIR made by eval.bench.latency
    python eval/bench/peer.py DIR --read FILE.json          # by eval.bench.reading

Runs in an environment of its own (sentence-transformers, transformers < 5 for its question-answering pipeline) and
imports nothing of ragqa. Encodes the question, finds 10 passages by inner product, reads each with the pipeline, and
prints the best answer.
"""

import argparse
import json
import resource
import time
from importlib import metadata
from pathlib import Path


def read(folder: Path, questions: list[dict], batch: int | None) -> None:
    """Read the contexts of each question, ``batch`` or all at once; print passages a second and the best answers."""
    from transformers import pipeline

    reader = pipeline("question-answering", str(folder), device="cpu")

    def best(row: dict) -> str:
        contexts = row["contexts"]
        answers = reader(
            question=[row["question"]] * len(contexts), context=contexts, batch_size=batch or len(contexts)
        )
        return max(answers if isinstance(answers, list) else [answers], key=lambda answer: answer["score"])["answer"]

    best(questions[0])
    began = time.perf_counter()
    answers = [best(row) for row in questions]
    seconds = time.perf_counter() - began
    count = sum(len(row["contexts"]) for row in questions)
    packages = {name: metadata.version(name) for name in ("torch", "transformers")}
    print(json.dumps({"passages_per_s": count / seconds, "answers": answers, "packages": packages}))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("question", nargs="*")
    parser.add_argument("--passages", type=Path, help="time embedding these instead: JSON list of texts")
    parser.add_argument("--read", type=Path, help="time reading instead: JSON list of questions, each with contexts")
    parser.add_argument("--batch", type=int, help="contexts that are read at once; default: all of a question")
    args = parser.parse_args()
    if args.read:
        read(args.folder / "reader", json.loads(args.read.read_text()), args.batch)
        return

    import numpy as np
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(args.folder / "encoder"), device="cpu")
    if args.passages:
        texts = json.loads(args.passages.read_text())
        encoder.encode(texts[:32])
        began = time.perf_counter()
        encoder.encode(texts, batch_size=32)
        print(json.dumps({"passages_per_s": len(texts) / (time.perf_counter() - began)}))
        return
    from transformers import pipeline

    reader = pipeline("question-answering", str(args.folder / "reader"), device="cpu")
    passages = json.loads((args.folder / "passages.json").read_text())
    vectors = np.load(args.folder / "vectors.npy")
    times = []
    for question in args.question:
        began = time.perf_counter()
        query = encoder.encode([question], normalize_embeddings=True)[0]
        best = np.argsort(-(vectors @ query))[:10]
        answers = reader(
            question=[question] * len(best),
            context=[passages[i] for i in best],
            batch_size=10,
            handle_impossible_answer=False,
        )
        answer = max(answers, key=lambda each: each["score"])
        times.append(time.perf_counter() - began)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"answer": answer["answer"], "seconds": times, "peak_rss_mb": rss}))


if __name__ == "__main__":
    main()
