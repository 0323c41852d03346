"""Answer questions with sentence-transformers and transformers, for comparison with ragqa.

    python eval/bench/peer.py DIR "question" …              # eval.bench.latency makes DIR
    python eval/bench/peer.py DIR --passages TEXTS.json
    python eval/bench/peer.py DIR --contexts CONTEXTS.json

The script does not import ragqa. It runs in a separate environment with sentence-transformers and transformers < 5,
which has a question-answering pipeline. For each question, it finds 10 passages by inner product and reads them with
this pipeline. It prints a JSON object: the best answer to the last question and the seconds of each question, or the
number of passages that it embeds or reads per second.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Answer questions, or measure the speed of embedding or reading; print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="directory that eval.bench.latency wrote")
    parser.add_argument("question", nargs="*", help="questions to answer one after the other")
    parser.add_argument("--passages", type=Path, help="JSON file of a list of texts: measure only their embedding")
    parser.add_argument("--contexts", type=Path, help="JSON file of questions, each with a list of texts to read")
    args = parser.parse_args()
    if args.contexts:
        print(json.dumps({"passages_per_s": _measure_reading(args.folder, json.loads(args.contexts.read_text()))}))
        return
    encoder = SentenceTransformer(str(args.folder / "encoder"), device="cpu")
    if args.passages:
        texts = json.loads(args.passages.read_text())
        encoder.encode(texts[:32])
        began = time.perf_counter()
        encoder.encode(texts, batch_size=32)
        print(json.dumps({"passages_per_s": len(texts) / (time.perf_counter() - began)}))
    else:
        print(json.dumps(_answer_questions(encoder, args.folder, args.question)))


def _load_reader(folder: Path) -> Callable:
    from transformers import pipeline  # imported here, because embedding does not need it

    return partial(pipeline("question-answering", str(folder / "reader"), device="cpu"), handle_impossible_answer=False)


def _measure_reading(folder: Path, rows: list[tuple[str, list[str]]]) -> float:
    """Return the passages read per second, by the faster of two ways: in batches or singly."""
    reader, speeds = _load_reader(folder), []
    for batch_size in (10, 1):
        reader(question=rows[0][0], context=rows[0][1][0])
        began = time.perf_counter()
        for question, contexts in rows:
            reader(question=[question] * len(contexts), context=contexts, batch_size=batch_size)
        speeds.append(sum(len(contexts) for _, contexts in rows) / (time.perf_counter() - began))
    return max(speeds)


def _answer_questions(encoder: SentenceTransformer, folder: Path, questions: list[str]) -> dict:
    reader = _load_reader(folder)
    passages, vectors = json.loads((folder / "passages.json").read_text()), np.load(folder / "vectors.npy")
    seconds, best = [], {}
    for question in questions:
        began = time.perf_counter()
        query = encoder.encode([question], normalize_embeddings=True)[0]
        contexts = [passages[row] for row in np.argsort(-(vectors @ query))[:10]]
        answers = reader(question=[question] * len(contexts), context=contexts, batch_size=10)
        best = max(answers, key=lambda answer: answer["score"])
        seconds.append(time.perf_counter() - began)
    return {"answer": best["answer"], "question_seconds": seconds}


if __name__ == "__main__":
    main()
