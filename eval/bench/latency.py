"""Shell to answer, latency, memory and embedding speed, beside the same models in the usual stack.

    python -m eval.bench.latency --models DIR --peer-python VENV/bin/python --work DIR --out FILE.json

``DIR`` holds the torch weights: ``encoder/`` (sentence-transformers) and ``reader/`` (SpanReader).
Both sides answer the same demo questions over the same passages, in turn, in one run.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.process import timed
from eval.bench.record import report
from ragqa.artefacts.paths import demo_dir
from ragqa.demo import demo_index
from ragqa.pipeline import Pipeline
from ragqa.questions import read_questions
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import VECTORS_FOLDER
from ragqa.runtime.encoder import load_encoder

RUNS = 7


def as_peers_reader(reader: Path, tokenizer: Path, out: Path) -> None:
    """Write a SpanReader as transformers has one, without its relevance; ``tokenizer`` holds a BERT's own files."""
    from safetensors.torch import load_file, save_file

    out.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copyfile(tokenizer / name, out / name)
    config = json.loads((reader / "config.json").read_text())
    config.update(architectures=["BertForQuestionAnswering"], num_labels=2)
    (out / "config.json").write_text(json.dumps(config))
    weights = load_file(reader / "model.safetensors")
    renamed = {k.replace("encoder.", "bert.", 1): v for k, v in weights.items() if k.startswith("encoder.")}
    renamed["qa_outputs.weight"] = weights["head.weight"][:2].contiguous()
    renamed["qa_outputs.bias"] = weights["head.bias"][:2].contiguous()
    save_file(renamed, out / "model.safetensors", metadata={"format": "pt"})


def prepare_peer(models: Path, work: Path) -> None:
    """The passages, their vectors and the reader in the format the transformers pipeline loads."""
    work.mkdir(parents=True, exist_ok=True)
    store = open_retriever(demo_index()).passages
    passages = [p.text for batch in store.iter_batches() for p in batch]
    (work / "passages.json").write_text(json.dumps(passages))
    np.save(work / "vectors.npy", np.load(demo_index() / VECTORS_FOLDER / "vectors.npy").astype(np.float32))
    shutil.copytree(models / "encoder", work / "encoder", dirs_exist_ok=True)
    as_peers_reader(models / "reader", models / "encoder", work / "reader")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    prepare_peer(args.models, args.work)
    questions = [question.text for question in read_questions(demo_dir() / "questions.jsonl")][:100]
    ragqa = [str(Path(sys.executable).parent / "ragqa"), "ask", questions[0]]
    peer = [args.peer_python, str(Path(__file__).with_name("peer.py")), str(args.work)]

    fresh = args.work / "cache"
    shutil.rmtree(fresh, ignore_errors=True)
    first = timed(ragqa, XDG_CACHE_HOME=str(fresh))
    timed([*peer, questions[0]])
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(timed(ragqa))
        theirs.append(timed([*peer, questions[0]]))

    pipeline = Pipeline.load(demo_index())
    pipeline.ask(questions[0], min_confidence=0)
    seconds = []
    for question in questions:
        began = time.perf_counter()
        pipeline.ask(question, min_confidence=0)
        seconds.append(time.perf_counter() - began)
    peer_seconds = json.loads(timed([*peer, *questions])["out"])["seconds"][1:]

    texts = [p.titled for batch in open_retriever(demo_index()).passages.iter_batches() for p in batch]
    encoder = load_encoder()
    encoder.encode(texts[:32])
    began = time.perf_counter()
    encoder.encode(texts)
    speed = len(texts) / (time.perf_counter() - began)
    (args.work / "texts.json").write_text(json.dumps(texts))
    peer_speed = json.loads(timed([*peer, "x", "--passages", str(args.work / "texts.json")])["out"])["passages_per_s"]

    def later(runs: list[dict[str, Any]]) -> dict[str, float]:
        return {
            "shell_to_answer_s": round(float(np.median([r["seconds"] for r in runs])), 3),
            "shell_to_answer_worst_s": round(max(r["seconds"] for r in runs), 3),
            "peak_rss_mb": round(max(r["rss_mb"] for r in runs)),
        }

    def spread(values: list[float]) -> dict[str, float]:
        return {f"p{p}_ms": round(1000 * float(np.percentile(values, p)), 1) for p in (50, 95)}

    mine, other = later(ours), later(theirs)
    figures = {
        "ragqa": {
            "first_ask_with_the_index_built_s": round(first["seconds"], 2),
            **mine,
            "in_one_process": spread(seconds),
            "embedding_passages_per_s": round(speed),
        },
        "peer": {
            **other,
            "in_one_process": spread(peer_seconds),
            "embedding_passages_per_s": round(peer_speed),
        },
        "peer_stack": "sentence-transformers and transformers' question-answering pipeline, same weights, 10 passages",
        "ratio_shell_to_answer": round(mine["shell_to_answer_s"] / other["shell_to_answer_s"], 3),
        "runs": RUNS,
    }
    report(args.out, figures, corpus=f"demo encyclopedia, {len(texts)} passages", questions="100 demo questions")


if __name__ == "__main__":
    main()
