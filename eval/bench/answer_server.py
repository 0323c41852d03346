"""Measure ``ragqa serve`` under load, and its memory, beside a server of sentence-transformers and transformers.

    python -m eval.bench.answer_server --work runs/server --out answer_server.json \\
        --peer-python VENV/bin/python --peer-encoder DIR

``--peer-encoder`` has the torch weights of the shipped encoder (sentence-transformers). The peer's reader has the same
shape as ragqa's reader and random weights: its answers are wrong, but it takes the same time. The environment of the
peer has sentence-transformers, transformers < 5, FastAPI and uvicorn. The servers run one after the other.

One question keeps all cores busy. So C clients at once must wait C times as long as one client, if nothing is lost.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.record import report
from eval.command import run_command
from ragqa.artefacts.paths import get_demo_dir
from ragqa.demo import demo_index
from ragqa.errors import BadInput
from ragqa.question_files import read_questions
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import VECTORS_FOLDER

START_SECONDS = 120.0
"""Seconds that a server has to start."""


@dataclass(frozen=True, kw_only=True)
class AnswerServerConfig:
    """Settings of the measurement: load, programs and files."""

    work: Path
    """Directory for the files of the peer."""
    out: Path
    """JSON file to write the figures to."""
    peer_python: str | None = None
    """Python program of the peer's environment; None to measure ragqa only."""
    peer_encoder: Path | None = None
    """Folder of the peer's encoder."""
    clients: int = 100
    """Number of clients at once."""
    per_client: int = 5
    """Number of questions of each of these clients."""
    alone: int = 100
    """Number of questions of the client that is alone."""
    requests: int = 10_000
    """Number of requests during which the memory is measured; each reads two passages."""
    port: int = 8001


def main(config: AnswerServerConfig) -> None:
    """Measure ragqa, then the peer; write the figures."""
    questions = [question.text for question in read_questions(get_demo_dir() / "questions.jsonl")]
    index = demo_index()
    command = [sys.executable, "-m", "ragqa", "serve", "--index", str(index), "--port", str(config.port)]
    with run_server(command, config.port) as process:
        figures: dict[str, Any] = {"ragqa": measure_load(config, questions)}
        figures["ragqa"]["memory_mb"] = measure_memory_curve(config, questions, process)
    if config.peer_python and config.peer_encoder:
        prepare_peer(config, index)
        line = [config.peer_python, "-m", "uvicorn", "--app-dir", str(Path(__file__).parent), "peer_server:app"]
        with run_server([*line, "--port", str(config.port)], config.port, PEER_FOLDER=str(config.work)) as process:
            figures["peer"] = {**measure_load(config, questions), "rss_mb": read_memory(process.pid)}
    report(config.out, figures, corpus="demo encyclopedia", questions=f"{len(questions)} demo questions")


@contextmanager
def run_server(command: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server while the block runs.

    Raises:
        BadInput: the server does not start.
    """
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **environment}) as process:
        try:
            end = time.monotonic() + START_SECONDS
            while not _is_up(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise BadInput(f"{' '.join(command)} does not start a server on port {port}")
                time.sleep(0.1)
            yield process
        finally:
            process.terminate()


def _is_up(port: int) -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False


def ask_in_turn(port: int, questions: list[str], seconds: list[float], **options: Any) -> None:
    """Ask questions one after the other on one connection, and append the seconds of each.

    Raises:
        BadInput: the server refused a question.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    for question in questions:
        start = time.perf_counter()
        body = json.dumps({"question": question, **options})
        connection.request("POST", "/ask", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise BadInput(f"the server answers {reply.status}: {text[:200]!r}")
        seconds.append(time.perf_counter() - start)
    connection.close()


def ask_at_once(port: int, questions: list[str], clients: int, each: int, **options: Any) -> list[float]:
    """Ask as several clients at once; return the seconds of all questions that were answered."""
    seconds: list[float] = []
    endless = itertools.cycle(questions)
    parts = [list(itertools.islice(endless, each)) for _ in range(clients)]
    threads = [
        threading.Thread(target=ask_in_turn, args=(port, part, seconds), kwargs=options, daemon=True) for part in parts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def measure_load(config: AnswerServerConfig, questions: list[str]) -> dict[str, Any]:
    """Return the waiting times of a client that is alone, and of many clients at once."""
    alone: list[float] = []
    ask_in_turn(config.port, questions[:3], [])
    ask_in_turn(config.port, questions[: config.alone], alone)
    start = time.perf_counter()
    together = ask_at_once(config.port, questions, config.clients, config.per_client)
    wall = time.perf_counter() - start
    p99 = float(np.percentile(together, 99))
    return {
        "one_client": summarize(alone),
        f"{config.clients}_clients": {
            **summarize(together),
            "answered": len(together),
            "asked": config.clients * config.per_client,
            "questions_per_s": round(len(together) / wall, 1),
            "p99_by_the_wait_of_one_client_times_clients": round(p99 / (config.clients * float(np.median(alone))), 2),
        },
    }


def summarize(seconds: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of some times, in milliseconds."""
    return {f"p{share}_ms": round(1000 * float(np.percentile(seconds, share)), 1) for share in (50, 99)}


def measure_memory_curve(
    config: AnswerServerConfig, questions: list[str], process: subprocess.Popen[bytes]
) -> dict[str, float]:
    """Return the resident memory of a server in MB after tenths of the requests."""
    curve = {"0": read_memory(process.pid)}
    part = max(1, config.requests // 10)
    for done in range(part, config.requests + 1, part):
        ask_at_once(config.port, questions, 10, part // 10, k=2)
        curve[str(done)] = read_memory(process.pid)
    return curve


def read_memory(process: int) -> float:
    """Return the resident memory of a process in MB, without mapped files."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return round(int(fields["RssAnon"].split()[0]) / 1024, 1)


def prepare_peer(config: AnswerServerConfig, index: Path) -> None:
    """Write passages, vectors and models in the form that the peer loads."""
    from transformers import BertConfig, BertForQuestionAnswering

    assert config.peer_encoder is not None
    config.work.mkdir(parents=True, exist_ok=True)
    texts = [passage.text for batch in open_retriever(index).passages.iter_batches() for passage in batch]
    (config.work / "passages.json").write_text(json.dumps(texts))
    np.save(config.work / "vectors.npy", np.load(index / VECTORS_FOLDER / "vectors.npy").astype(np.float32))
    shutil.copytree(config.peer_encoder, config.work / "encoder", dirs_exist_ok=True)
    reader = config.work / "reader"
    BertForQuestionAnswering(BertConfig.from_pretrained(config.peer_encoder)).save_pretrained(reader)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copyfile(config.peer_encoder / name, reader / name)


if __name__ == "__main__":
    run_command(main, AnswerServerConfig, __doc__)
