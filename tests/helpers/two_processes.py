"""Runs in one process and in two, for comparison."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file

from pipelines.dpr.config import DprConfig
from pipelines.orqa.config import FineTuneConfig
from ragqa.models.dual_encoder import DualEncoder
from ragqa.settings.groups import make_config
from tests.helpers import tiny

ROOT = Path(__file__).parents[2]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def start_script(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def wait_for_success(processes: list[subprocess.Popen[str]]) -> None:
    """Wait for all processes; end those that remain, and fail unless all succeeded."""
    try:
        for process in processes:
            process.communicate(timeout=500)
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes)


def make_supervised_configs(
    world: tiny.TinyWorld, small: Path, retriever: Path, out: Path
) -> tuple[DprConfig, FineTuneConfig]:
    """Return settings of a few steps of DPR and of fine-tuning."""
    few = {"dev": world.dev, "dropout": 0.0, "lr": 1e-3, "eval_every": 2, "device": "cpu"}
    dpr_config = DprConfig(
        corpus=world.corpus,
        encoder=small,
        questions=(world.train,),
        out=out / "dpr",
        steps=4,
        batch=12,
        chunk=5,
        rounds=2,
        continue_weights=True,
        depth=10,
        pool=5,
        no_export=True,
        **few,
    )
    fine_tune_config = make_config(
        FineTuneConfig,
        corpus=world.corpus,
        retriever=retriever,
        encoder=small,
        questions=world.train,
        out=out / "tuned",
        steps=4,
        batch=4,
        beam=20,
        read=3,
        max_input=64,
        max_span=3,
        hidden=16,
        warmup=1,
        **few,
    )
    return dpr_config, fine_tune_config


def save_spread_retriever(small: Path, out: Path) -> Path:
    """Save a retriever with larger weights, so that its vectors differ more than those of random weights."""
    torch.manual_seed(3)
    dual = DualEncoder.from_encoder(small, width=8)
    with torch.no_grad():
        for tower in dual.towers:
            tower.project.weight.mul_(30)
    dual.save(out)
    return out


def read_weights(folder: Path) -> list[torch.Tensor]:
    return [tensor for file in sorted(folder.rglob("*.safetensors")) for tensor in load_file(file).values()]


def measure_distance(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """Return the Euclidean distance between the weights of two models."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return sum((a - b).detach().square().sum().item() for a, b in pairs) ** 0.5


class RecordedProgress:
    """Progress that records the last position of each step of work."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self._open: list[str] = []

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator["RecordedProgress"]:
        self._open.append(name)
        yield self
        assert self._open.pop() == name

    def advance_to(self, done: int, status: str = "") -> None:
        self.last[self._open[-1]] = done
