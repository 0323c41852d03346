"""Runs with a refreshed index: a corpus of random words, a tower to train, and a builder that a test controls."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT

from index.refresh import IndexRefresher, RefreshSettings
from index.version_build import BuildSeconds, LocalEmbedder, VersionPlan, make_version, plan_versions
from index.versions import Versions
from ragqa.indexing.build import IndexConfig, build_index

PASSAGES, ROWS = 300, 40
SETTINGS = RefreshSettings(shard_rows=ROWS)


def write_corpus(folder: Path, seed: int = 0, passages: int = PASSAGES) -> Path:
    """Write an index without vectors over passages of random words."""
    folder.mkdir(exist_ok=True)
    words = np.random.default_rng(seed).integers(0, 1100, (passages, 12))
    with (folder / "c.jsonl").open("w") as file:
        for number, row in enumerate(words):
            text = " ".join(f"w{word}" for word in row)
            file.write(json.dumps({"id": str(number), "title": f"w{number}", "text": text}) + "\n")
    build_index([folder / "c.jsonl"], folder / "c.index", IndexConfig(retriever="bm25"))
    return folder / "c.index"


class Tower:
    """A passage tower whose weights change with ``seed``."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        from transformers import BertModel

        self.folder, self.model = folder, BertModel.from_pretrained(folder)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        shutil.copy(self.folder / "tokenizer.json", folder)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeBuilder:
    """Builds a version when a test says so, in place of the actors."""

    attempts = 3

    def __init__(self, plan: VersionPlan) -> None:
        self.plan, self.embedder = plan, LocalEmbedder(plan.open_passages(), "cpu")
        self.started: list[int] = []
        self.result: BuildSeconds | str | None = None
        self.on_wait: Callable[[], None] = lambda: pytest.fail("training waits for a version that nobody builds")

    def start(self, step: int) -> None:
        self.started.append(step)

    def finish(self, embedding: float = 0.0, building: float = 0.0) -> None:
        make_version(self.plan, self.started[-1], self.embedder)
        self.result = BuildSeconds(embedding, building)

    def wait_for_result(self, timeout: float) -> BuildSeconds | str | None:
        if timeout and self.result is None:
            self.on_wait()
        result, self.result = self.result, None
        return result

    def close(self) -> None:
        pass


class Run:
    """A training run with a fake builder and a fake clock."""

    def __init__(self, corpus: Path, work: Path, max_staleness: int | None = None) -> None:
        plan = plan_versions(corpus, work, replace(SETTINGS, max_staleness=max_staleness))
        self.builder, self.clock, self.work = FakeBuilder(plan), Clock(), work
        self.refresher = IndexRefresher(Versions(plan), lambda: self.builder, version=None, step=None, clock=self.clock)
        self.refresh, self.poll = self.refresher.refresh, self.refresher.poll

    def train(self, first: int, last: int, seconds: float) -> None:
        """Poll and take a step of ``seconds``, from ``first`` up to but without ``last``."""
        for step in range(first, last):
            self.poll(step)
            self.clock.now += seconds


def read_vectors(work: Path, step: int) -> bytes:
    """Return the file of vectors of a version."""
    return (work / f"index-{step:08d}" / "vectors.npy").read_bytes()


def list_names(work: Path) -> list[str]:
    """Return the names in a directory of versions."""
    return sorted(path.name for path in work.iterdir() if path.name != ".lock")


SCRIPT = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from index import refresh
from index.refresh import {function} as open_refresher
from tests.helpers.refresh import Tower
if "{address}":
    import ray
    ray.init(address="{address}", log_to_driver=False, configure_logging=False)
refresher = open_refresher(Path(sys.argv[1]), Path(sys.argv[2]), refresh.RefreshSettings(shard_rows=40))
refresher.refresh(Tower(Path(sys.argv[3]), 0), 5)
while not (Path(sys.argv[2]) / "index-00000005").exists():
    pass
os.kill(os.getpid(), signal.SIGKILL)  # after the rename, before the poll that swaps
"""


def kill_before_the_swap(corpus: Path, work: Path, small: Path, **names: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", SCRIPT.format(**names), str(corpus), str(work), str(small)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == -signal.SIGKILL, done.stderr
