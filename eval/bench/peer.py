"""Answer questions with sentence-transformers and transformers, for comparison with ragqa.

    python eval/bench/peer.py DIR "question" …              # eval.bench.latency makes DIR
    python eval/bench/peer.py DIR --passages TEXTS.json

The script does not import ragqa. It runs in a separate environment with sentence-transformers and transformers < 5,
which has a question-answering pipeline. For each question, it finds 10 passages by inner product and reads them with
this pipeline. It prints a JSON object: the best answer to the last question and the seconds of each question, or the
number of passages that it embeds per second.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Answer questions, or measure the speed of embedding; print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="directory that eval.bench.latency wrote")
    parser.add_argument("question", nargs="*", help="questions to answer one after the other")
    parser.add_argument("--passages", type=Path, help="JSON file of a list of texts: measure only their embedding")
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
    from transformers import pipeline  # imported here, because embedding does not need it

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
