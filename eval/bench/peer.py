"""The same models through sentence-transformers and transformers: a script as one would write it.

    python eval/bench/peer.py DIR "question" [--repeat N]   # DIR made by eval.bench.latency

Runs in an environment of its own (sentence-transformers, transformers < 5 for its
question-answering pipeline) and imports nothing of ragqa. Encodes the question, finds 10
passages by inner product, reads each with the pipeline, prints the best answer.
"""

import argparse
import json
import resource
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("question", nargs="+")
    parser.add_argument("--passages", type=Path, help="time embedding these instead: JSON list of texts")
    args = parser.parse_args()

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
        found = reader(
            question=[question] * len(best),
            context=[passages[i] for i in best],
            batch_size=10,
            handle_impossible_answer=False,
        )
        answer = max(found, key=lambda f: f["score"])
        times.append(time.perf_counter() - began)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"answer": answer["answer"], "seconds": times, "peak_rss_mb": rss}))


if __name__ == "__main__":
    main()
