"""Measure ``ragqa serve`` under load, compared with a server of other libraries.

    python -m eval.bench.answer_server --work runs/server --out answer_server.json \\
        --peer-python VENV/bin/python --peer-encoder DIR

``--peer-encoder`` has the torch weights of the shipped encoder (sentence-transformers). The peer's reader has the same
shape as ragqa's reader and random weights: its answers are wrong, but it takes the same time. The environment of the
peer has sentence-transformers, transformers < 5, FastAPI and uvicorn. The servers run one after the other.

One question keeps all cores busy. So with C clients at once, a server that wastes no time makes each client wait about
C times as long as a single client.
"""

import itertools
import json
import os
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

from eval.bench.latency import copy_tokenizer, write_peer_files
from eval.bench.process import measure_memory
from eval.bench.record import report, summarize_latency
from eval.command import run_command
from ragqa.artefacts.paths import get_demo_dir
from ragqa.demo import demo_index
from ragqa.errors import BadInput
from ragqa.question_files import read_questions

START_SECONDS = 120.0
"""Time limit in seconds for the start of a server."""


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
    """Number of questions of each client."""
    alone: int = 100
    """Maximum number of questions of a single client, which is measured first."""
    requests: int = 10_000
    """Number of requests during which the memory of ragqa is measured; each reads two passages."""
    port: int = 8001
    """TCP port of the servers."""


def main(config: AnswerServerConfig) -> None:
    """Measure ragqa, then the peer; write the figures.

    Raises:
        BadInput: as for ``run_server`` and ``measure_load``.
    """
    questions = [question.text for question in read_questions(get_demo_dir() / "questions.jsonl")]
    command = [sys.executable, "-m", "ragqa", "serve", "--index", str(demo_index()), "--port", str(config.port)]
    with run_server(command, config.port) as process:
        figures: dict[str, Any] = {"ragqa": measure_load(config, questions)}
        figures["ragqa"]["memory_mb"] = measure_memory_curve(config, questions, process)
    if config.peer_python and config.peer_encoder:
        prepare_peer(config.work, config.peer_encoder)
        line = [config.peer_python, "-m", "uvicorn", "--app-dir", str(Path(__file__).parent), "peer_server:app"]
        with run_server([*line, "--port", str(config.port)], config.port, PEER_FOLDER=str(config.work)) as process:
            figures["peer"] = {**measure_load(config, questions), "rss_mb": measure_memory(process.pid)["own_mb"]}
    report(config.out, figures, corpus="demo encyclopedia", questions=f"{len(questions)} demo questions")


@contextmanager
def run_server(command: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server while the block runs; wait until it answers ``/healthz``.

    Args:
        command: program and arguments of the server.
        port: port on which the server listens.
        environment: variables to add to the environment.

    Raises:
        BadInput: the server exits, or does not answer within ``START_SECONDS``.
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
    """Ask questions one after the other on one connection, and time each question.

    Args:
        port: port of the server.
        questions: questions to ask.
        seconds: list to which the seconds of each answer are appended.
        options: further keys of the requests, such as ``k``.

    Raises:
        BadInput: the server refused a question.
        OSError: the connection failed.
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
    """Ask questions as several clients at once; return the seconds of each answer.

    A client stops at the first question that fails, so that fewer times are returned.

    Args:
        port: port of the server.
        questions: questions, which are repeated as often as needed.
        clients: number of clients.
        each: number of questions of each client.
        options: further keys of the requests, such as ``k``.
    """
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
    """Return the waiting times of a single client, and of ``config.clients`` clients at once.

    Raises:
        BadInput, OSError: as for ``ask_in_turn``, for a question of the single client.
    """
    alone: list[float] = []
    ask_in_turn(config.port, questions[:3], [])
    ask_in_turn(config.port, questions[: config.alone], alone)
    start = time.perf_counter()
    together = ask_at_once(config.port, questions, config.clients, config.per_client)
    wall = time.perf_counter() - start
    p99 = float(np.percentile(together, 99))
    return {
        "one_client": summarize_latency(alone, 99),
        f"{config.clients}_clients": {
            **summarize_latency(together, 99),
            "answered": len(together),
            "asked": config.clients * config.per_client,
            "questions_per_s": round(len(together) / wall, 1),
            "p99_by_the_wait_of_one_client_times_clients": round(p99 / (config.clients * float(np.median(alone))), 2),
        },
    }


def measure_memory_curve(
    config: AnswerServerConfig, questions: list[str], process: subprocess.Popen[bytes]
) -> dict[str, int]:
    """Return a server's memory in MB (without mapped files) by the number of requests so far."""
    curve = {"0": measure_memory(process.pid)["own_mb"]}
    part = max(1, config.requests // 10)
    for done in range(part, config.requests + 1, part):
        ask_at_once(config.port, questions, 10, part // 10, k=2)
        curve[str(done)] = measure_memory(process.pid)["own_mb"]
    return curve


def prepare_peer(work: Path, encoder: Path) -> None:
    """Write the files of ``write_peer_files``, and a reader with random weights, into ``work``."""
    from transformers import BertConfig, BertForQuestionAnswering

    write_peer_files(work, encoder)
    BertForQuestionAnswering(BertConfig.from_pretrained(encoder)).save_pretrained(work / "reader")
    copy_tokenizer(encoder, work / "reader")


if __name__ == "__main__":
    run_command(main, AnswerServerConfig, __doc__)
