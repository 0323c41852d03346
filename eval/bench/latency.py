"""Measure latency, memory and speed, compared with sentence-transformers and transformers.

    python -m eval.bench.latency --models DIR --peer-python VENV/bin/python --work runs/latency --out latency.json

``--models`` has the torch weights in two folders: ``encoder/`` (sentence-transformers) and ``reader/`` (SpanReader).
ragqa and its peer answer the same demo questions over the same documents. ragqa reads its default number of passages,
the peer 10. The speed of reading is measured with the same passages for both. From the shell, they run alternately, so
that other work on the machine slows both.
"""

import json
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.process import run_peer, run_timed, time_call
from eval.bench.record import report, summarize_latency
from eval.command import run_command
from ragqa.artefacts.paths import get_demo_dir
from ragqa.demo import demo_index
from ragqa.pipeline import Pipeline
from ragqa.question_files import read_questions
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import VECTORS_FOLDER
from ragqa.runtime.encoder import load_encoder
from ragqa.types import Hit, Passage

RUNS, QUESTIONS = 7, 100
"""Number of runs from the shell, and number of questions in one process."""
READ_QUESTIONS, READ_PASSAGES, READ_RUNS = 20, 30, 3
"""Numbers of questions, of passages for each question, and of runs, in which the speed of reading is measured."""
PEER_STACK = "sentence-transformers and transformers' question-answering pipeline, same weights, 10 passages to answer"


@dataclass(frozen=True, kw_only=True)
class LatencyConfig:
    """Settings of the measurement: models, programs and files."""

    models: Path
    """Folder with encoder/ and reader/, the torch weights of the shipped models."""
    peer_python: str
    """Python program with sentence-transformers and transformers < 5."""
    work: Path
    """Directory for the files of the peer."""
    out: Path
    """JSON file to write the figures to."""


def main(config: LatencyConfig) -> None:
    """Measure ragqa and its peer; write the figures.

    Raises:
        BadInput, OSError: a run of ragqa or of the peer failed, or a file of ``config.models`` is missing.
    """
    passages = write_peer_files(config.work, config.models / "encoder")
    convert_reader(config.models / "reader", config.models / "encoder", config.work / "reader")
    texts = [passage.titled_text for passage in passages]
    (config.work / "texts.json").write_text(json.dumps(texts))
    questions = [question.text for question in read_questions(get_demo_dir() / "questions.jsonl")][:QUESTIONS]
    hits = open_retriever(demo_index()).search(questions[:READ_QUESTIONS], READ_PASSAGES)
    contexts = [[hit.passage.text for hit in hits_of_one] for hits_of_one in hits]
    (config.work / "contexts.json").write_text(json.dumps(list(zip(questions, contexts, strict=False))))
    run_ours = partial(run_timed, [str(Path(sys.executable).parent / "ragqa"), "ask", questions[0]])
    run_theirs = partial(run_peer, config.peer_python, config.work)
    fresh = config.work / "cache"
    shutil.rmtree(fresh, ignore_errors=True)
    first = run_ours(XDG_CACHE_HOME=str(fresh))
    run_theirs(questions[0])  # not measured, because the first run reads the models from the disk
    pairs = [(run_ours(), run_theirs(questions[0])) for _ in range(RUNS)]
    ours, theirs = (summarize_runs([pair[side] for pair in pairs]) for side in (0, 1))
    run_peer_reading = partial(run_theirs, "--contexts", str(config.work / "contexts.json"))
    reading = [(measure_reading(questions, hits), run_peer_reading()["passages_per_s"]) for _ in range(READ_RUNS)]
    our_speed, their_speed = (float(np.median([pair[side] for pair in reading])) for side in (0, 1))
    figures = {
        "ragqa": {
            "first_ask_with_the_index_built_s": round(first["seconds"], 2),
            **ours,
            "in_one_process": summarize_latency(ask_all(questions)),
            "embedding_passages_per_s": round(measure_embedding(texts)),
            "reading_passages_per_s": round(our_speed, 1),
        },
        "peer": {
            **theirs,
            "in_one_process": summarize_latency(run_theirs(*questions)["question_seconds"][1:]),
            "embedding_passages_per_s": round(
                run_theirs("--passages", str(config.work / "texts.json"))["passages_per_s"]
            ),
            "reading_passages_per_s": round(their_speed, 1),
        },
        "peer_stack": PEER_STACK,
        "ratio_shell_to_answer": round(ours["shell_to_answer_s"] / theirs["shell_to_answer_s"], 3),
        "ratio_reading_passages_per_s": round(our_speed / their_speed, 2),
        "runs": RUNS,
    }
    report(config.out, figures, corpus=f"demo encyclopedia, {len(passages)} passages", questions="100 demo questions")


def write_peer_files(work: Path, encoder: Path) -> list[Passage]:
    """Write the demo's passages and vectors, and the encoder, in the form that the peer loads.

    Args:
        work: directory to write.
        encoder: folder of the encoder (sentence-transformers).

    Returns:
        The demo's passages.
    """
    store = open_retriever(demo_index()).passages
    passages = [passage for batch in store.iter_batches() for passage in batch]
    work.mkdir(parents=True, exist_ok=True)
    (work / "passages.json").write_text(json.dumps([passage.text for passage in passages]))
    np.save(work / "vectors.npy", np.load(demo_index() / VECTORS_FOLDER / "vectors.npy").astype(np.float32))
    shutil.copytree(encoder, work / "encoder", dirs_exist_ok=True)
    return passages


def copy_tokenizer(folder: Path, out: Path) -> None:
    """Copy the files of BERT's tokenizer from ``folder`` into the directory ``out``."""
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copyfile(folder / name, out / name)


def convert_reader(reader: Path, tokenizer: Path, out: Path) -> None:
    """Write a SpanReader as a BertForQuestionAnswering of transformers, which has no relevance.

    Args:
        reader: directory of the SpanReader.
        tokenizer: folder with BERT's tokenizer files.
        out: directory to write.
    """
    from safetensors.torch import load_file, save_file

    out.mkdir(exist_ok=True)
    copy_tokenizer(tokenizer, out)
    config = json.loads((reader / "config.json").read_text())
    config = {name: value for name, value in config.items() if name not in ("id2label", "label2id")}
    config.update(architectures=["BertForQuestionAnswering"], num_labels=2)
    (out / "config.json").write_text(json.dumps(config))
    weights = load_file(reader / "model.safetensors")
    renamed = {k.replace("encoder.", "bert.", 1): v for k, v in weights.items() if k.startswith("encoder.")}
    renamed["qa_outputs.weight"] = weights["head.weight"][:2].contiguous()
    renamed["qa_outputs.bias"] = weights["head.bias"][:2].contiguous()
    save_file(renamed, out / "model.safetensors", metadata={"format": "pt"})


def ask_all(questions: list[str]) -> list[float]:
    """Return the seconds of each question in this process, after a warm-up with the first one."""
    ask = partial(Pipeline.load(demo_index()).ask, min_confidence=0)
    return [time_call(ask, question)[0] for question in (questions[0], *questions)][1:]


def measure_embedding(texts: list[str]) -> float:
    """Return the number of texts per second that ragqa's encoder embeds."""
    encoder = load_encoder()
    encoder.encode(texts[:32])
    return len(texts) / time_call(encoder.encode, texts)[0]


def measure_reading(questions: list[str], hits: list[list[Hit]]) -> float:
    """Return the number of passages that ragqa's reader reads per second.

    Each call reads the passages of one question. A passage that the early layer rejects counts as read.

    Args:
        questions: at least as many questions as ``hits`` has lists.
        hits: passages of each of the first questions.
    """
    reader = ExtractiveReader.load()
    reader.read(questions[:1], hits[:1])
    pairs = list(zip(questions, hits, strict=False))
    seconds = sum(time_call(reader.read, [question], [hits_of_one])[0] for question, hits_of_one in pairs)
    return sum(map(len, hits)) / seconds


def summarize_runs(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return median and maximum time (s) and maximum memory (MB) of results of ``run_timed``."""
    seconds = [run["seconds"] for run in runs]
    return {
        "shell_to_answer_s": round(float(np.median(seconds)), 3),
        "shell_to_answer_worst_s": round(max(seconds), 3),
        "peak_rss_mb": round(max(run["rss_mb"] for run in runs)),
    }


if __name__ == "__main__":
    run_command(main, LatencyConfig, __doc__)
