"""Embedding on a Ray cluster of several nodes on one machine, and what goes wrong there.

Whatever is killed, the vectors are those of the build on one machine, byte for byte.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from ragqa import artefact
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.indexing import IndexConfig, build_index
from ragqa.progress import SILENT

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
PASSAGES, ROWS = 600, 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with both passages and their vectors, made on one machine."""
    folder = tmp_path_factory.mktemp("corpus")
    words = np.random.default_rng(0).choice(["stone", "river", "light", "king", "city", "tower"], (PASSAGES, 60))
    with (folder / "c.jsonl").open("w") as file:
        for number, text in enumerate(words):
            file.write(json.dumps({"id": str(number), "title": f"t{number}", "text": " ".join(text)}) + "\n")
    build_index([folder / "c.jsonl"], folder / "c.index", IndexConfig(retriever="dense"))
    return folder / "c.index"


@pytest.fixture
def cluster() -> Iterator["ray.cluster_utils.Cluster"]:
    """A head and two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    ray.init(
        address=made.address,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def whole(out: Path, corpus: Path) -> bool:
    """Whether ``out`` is an artefact with the vectors that the build on one machine made."""
    artefact.read(out, "vectors")
    made = np.concatenate([np.load(file) for file in sorted(out.glob("*.npy"))])
    left = [file.name for file in out.iterdir() if file.suffix not in (".npy", ".json")]
    return not left and made.tobytes() == np.load(corpus / "dense" / "vectors.npy").tobytes()


def job(corpus: Path, out: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "index.embed", "--corpus", str(corpus), "--out", str(out)]
    return [*command, "--shard-rows", str(ROWS), *options]


def finished(out: Path) -> int:
    return len(list(out.glob("0*.json")))


def wait_for(out: Path, shards: int) -> None:
    deadline = time.monotonic() + 120
    while finished(out) < shards:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def embed(corpus: Path, out: Path, **options: bool) -> None:
    from index.embed import embed as run

    run(corpus, out, shard_rows=ROWS, progress=SILENT, **options)


def meanwhile(out: Path, shards: int, act) -> threading.Thread:
    """Do ``act`` once so many shards are finished."""

    def run() -> None:
        wait_for(out, shards)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_an_actor_killed_and_a_node_removed_in_the_middle(cluster, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "v"

    def kill_an_actor() -> None:
        pids = subprocess.run(["pgrep", "-f", "ray::MapWorker"], capture_output=True, text=True).stdout.split()
        assert pids
        os.kill(int(pids[0]), signal.SIGKILL)

    threads = [
        meanwhile(out, 2, kill_an_actor),
        meanwhile(out, 5, lambda: cluster.remove_node(cluster.workers[0], allow_graceful=False)),
    ]
    embed(corpus, out)
    for thread in threads:
        thread.join()
    assert whole(out, corpus)


def driver_killed(corpus: Path, out: Path, times: int) -> None:
    for number in range(times):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        driver = subprocess.Popen(job(corpus, out), cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        done = finished(out) if out.exists() else 0
        target = min(done + 1 + number % 3, PASSAGES // ROWS - 1)
        deadline = time.monotonic() + 120
        while driver.poll() is None and time.monotonic() < deadline and (not out.exists() or finished(out) < target):
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        subprocess.run(["pkill", "-9", "-f", "ray::MapWorker"], check=False)


def test_the_driver_killed_and_run_again(cluster, corpus: Path, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "v"
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    driver_killed(corpus, out, 2)
    before = {file.name: file.stat().st_mtime_ns for file in out.glob("0*.npy")}
    assert len(before) > 0
    embed(corpus, out)
    assert whole(out, corpus)
    assert all((out / name).stat().st_mtime_ns == at for name, at in before.items() if (out / name).exists())


@pytest.mark.slow
def test_the_driver_killed_twenty_times(cluster, corpus: Path, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "v"
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    driver_killed(corpus, out, 20)
    embed(corpus, out)
    assert whole(out, corpus)


def test_damaged_shards_are_named_and_made_again_on_request(cluster, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "v"
    embed(corpus, out)
    cut, flipped = out / "0000000040.npy", out / "0000000080.npy"
    cut.write_bytes(cut.read_bytes()[:-1])
    data = bytearray(flipped.read_bytes())
    data[1000] ^= 1
    flipped.write_bytes(data)
    with pytest.raises(DamagedArtefact, match=r"2 shards are not as they were written: .*0000000"):
        embed(corpus, out, verify=True)
    embed(corpus, out, repair=True)
    assert whole(out, corpus)
    with pytest.raises(BadInput, match="another corpus, encoder or size of shards"):
        from index.embed import embed as run

        run(corpus, out, shard_rows=ROWS + 1, progress=SILENT)
