"""Answer questions with sentence-transformers and transformers, as a user would write it.

    python eval/bench/peer.py DIR "question" …              # DIR made by eval.bench.latency
    python eval/bench/peer.py DIR --passages TEXTS.json

Runs in an environment of its own (sentence-transformers, transformers < 5 for its question-answering pipeline) and
imports nothing of ragqa. Encodes each question, finds 10 passages by inner product, reads them with the pipeline, and
prints the best answer.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Answer questions, or time the embedding of passages, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("question", nargs="*")
    parser.add_argument("--passages", type=Path, help="time embedding these instead: JSON list of texts")
    args = parser.parse_args()
    encoder = SentenceTransformer(str(args.folder / "encoder"), device="cpu")
    if args.passages:
        texts = json.loads(args.passages.read_text())
        encoder.encode(texts[:32])
        began = time.perf_counter()
        encoder.encode(texts, batch_size=32)
        print(json.dumps({"passages_per_s": len(texts) / (time.perf_counter() - began)}))
    else:
        print(json.dumps(_answer_questions(encoder, args.folder, args.question)))


def _answer_questions(encoder: SentenceTransformer, folder: Path, questions: list[str]) -> dict:
    """Return the answer to the last question, and the seconds that each question took."""
    from transformers import pipeline  # embedding does without

    reader = pipeline("question-answering", str(folder / "reader"), device="cpu")
    passages, vectors = json.loads((folder / "passages.json").read_text()), np.load(folder / "vectors.npy")
    seconds, best = [], {}
    for question in questions:
        began = time.perf_counter()
        query = encoder.encode([question], normalize_embeddings=True)[0]
        contexts = [passages[row] for row in np.argsort(-(vectors @ query))[:10]]
        answers = reader(
            question=[question] * len(contexts), context=contexts, batch_size=10, handle_impossible_answer=False
        )
        best = max(answers, key=lambda answer: answer["score"])
        seconds.append(time.perf_counter() - began)
    return {"answer": best["answer"], "question_seconds": seconds}


if __name__ == "__main__":
    main()
