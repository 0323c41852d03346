"""Vectors embedded on a Ray cluster equal those embedded on one machine, whatever is killed meanwhile."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, make_index, wait_for

from index import embed as job
from index.embed import EmbedConfig, embed
from index.embed_actors import ATTEMPTS, EmbedTask, ShardEmbedder
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.indexing import embed as embedding
from ragqa.indexing.embed import EmbeddingShard
from ragqa.runtime.encoder import load_encoder

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning")
PASSAGES, ROWS = 400, 20
SHARDS = PASSAGES // ROWS


def make_config(corpus: Path, out: Path, **options: Any) -> EmbedConfig:
    return EmbedConfig(**{"corpus": corpus, "out": out, "shard_rows": ROWS, **options})


def make_command(corpus: Path, out: Path, *options: str) -> list[str]:
    places = ["--corpus", str(corpus), "--out", str(out), "--shard-rows", str(ROWS)]
    return [sys.executable, "-m", "index.embed", *places, *options]


def read_vectors(out: Path) -> bytes:
    """Return all vectors of an artefact after checking that no other files are in it or next to it."""
    manifest = artefacts.read_manifest(out, "vectors")
    assert {path.relative_to(out).as_posix() for path in out.rglob("*")} == {*manifest.files, "manifest.json"}
    assert len(manifest.files) == 2 * len(list(out.glob("*.npy"))) + 1
    assert not list(out.parent.glob(f".{out.name}*"))
    return np.concatenate([np.load(file) for file in sorted(out.glob("*.npy"))]).tobytes()


def read_expected(corpus: Path) -> bytes:
    return np.load(corpus / "dense" / "vectors.npy").tobytes()


def count_finished(out: Path) -> int:
    return len(list(out.glob("0*.json")))


def run_in_thread(act: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    """Run ``act`` in a thread; return the thread and the list of what it raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failures


def kill_an_actor(out: Path) -> None:
    """Kill an actor that is embedding a shard."""

    def kill() -> bool:
        for trace in (out / embedding.PARTIAL).glob("*.try"):
            shard, pid = trace.name.split(".")[:2]
            os.kill(int(pid), signal.SIGKILL)
            return not (out / f"{shard}.json").exists()
        return False

    wait_for(lambda: count_finished(out) >= 2)
    wait_for(kill)


def test_losing_an_actor_and_a_node_changes_no_byte(cluster: Any, corpus: Path, tmp_path: Path) -> None:
    out, node = tmp_path / "v", cluster.add_node(num_cpus=1)

    def kill_and_remove() -> None:
        kill_an_actor(out)
        wait_for(lambda: count_finished(out) >= 6)
        cluster.remove_node(node, allow_graceful=False)

    thread, failures = run_in_thread(kill_and_remove)
    done = embed(make_config(corpus, out))
    thread.join()
    assert not failures
    assert (done.workers, done.embedded) == (3, PASSAGES)
    assert read_vectors(out) == read_expected(corpus)


def kill_drivers(corpus: Path, out: Path, times: int) -> None:
    """Start the job and kill its driver at a random moment, ``times`` times."""
    rng = random.Random(0)

    def traces() -> set[Path]:
        return set((out / embedding.PARTIAL).glob("*.try"))

    for _ in range(times):
        made, seen = count_finished(out), traces()
        moments: list[Callable[[], bool]] = [
            (out / "begun.json").exists,
            lambda seen=seen: bool(traces() - seen),  # type: ignore[misc]
            lambda made=made: count_finished(out) > made,  # type: ignore[misc]
            lambda made=made: count_finished(out) > made + 1,  # type: ignore[misc]
        ]
        moment = moments[-1] if times == 2 else rng.choice([moment for moment in moments if not moment()])
        driver = subprocess.Popen(
            make_command(corpus, out), cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        wait_for(lambda driver=driver, moment=moment: moment() or driver.poll() is not None)
        driver.send_signal(signal.SIGKILL)
        driver.wait()


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_job_continues_and_changes_no_byte(cluster: Any, corpus: Path, tmp_path: Path, times: int) -> None:
    out = tmp_path / "v"
    kill_drivers(corpus, out, times)
    done = embed(make_config(corpus, out))
    assert done.embedded < PASSAGES
    assert read_vectors(out) == read_expected(corpus)
    (out / embedding.PARTIAL).mkdir()  # left by a run killed after its last shard
    (out / embedding.PARTIAL / "left").touch()
    again = embed(make_config(corpus, out))
    assert again == replace(done, embedded=0, passages_per_s=0, workers=0, seconds=again.seconds)
    assert read_vectors(out) == read_expected(corpus)


def test_the_job_reports_its_result_and_repairs_damaged_shards(cluster: Any, corpus: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "v", tmp_path / "options.json"
    file.write_text(json.dumps({"corpus": str(corpus), "out": str(out), "shard_rows": ROWS, "json": True}))
    arguments = [sys.executable, "-m", "index.embed", "--config", str(file)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=120)
    row = json.loads(done.stdout)
    *progress, last = done.stderr.splitlines()  # on a busy machine it takes more than two seconds
    assert all(line.endswith(" left") for line in progress) and last.startswith(f"embedding: {PASSAGES} passages in ")
    assert row["vectors"] == str(out) and row["fingerprint"] == artefacts.read_manifest(out, "vectors").fingerprint
    assert (row["passages"], row["embedded"], row["workers"], row["precision"]) == (PASSAGES, PASSAGES, 2, "int8")
    assert 0 < row["passages_per_s"] < 1e6 and row["seconds"] > 0

    # Damaged shards are named, and embedded again with --repair.
    cut, flipped = out / "0000000040.npy", out / "0000000080.npy"
    cut.write_bytes(cut.read_bytes()[:-1])
    data = bytearray(flipped.read_bytes())
    data[1000] ^= 1
    flipped.write_bytes(data)
    with pytest.raises(DamagedArtefact, match=r"^2 shards are damaged: \S*40.npy, \S*80.npy; embed"):
        embed(make_config(corpus, out, verify=True))
    assert embed(make_config(corpus, out, repair=True)).embedded == 2 * ROWS
    assert read_vectors(out) == read_expected(corpus)


def test_a_write_error_in_an_actor_is_one_line(cluster: Any, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "v"
    (out / "0000000060.npy").mkdir(parents=True)
    (out / embedding.PARTIAL).mkdir()  # left by a run killed before its first file
    done = subprocess.run(make_command(corpus, out), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    *progress, last = done.stderr.splitlines()  # on a busy machine it takes more than two seconds
    assert all(line.endswith(" left") for line in progress)
    assert last.startswith(f"index.embed: cannot write {out}: Is a directory; ")
    assert not (out / "manifest.json").exists() and not (out / embedding.PARTIAL).exists()


@pytest.mark.thorough
def test_a_full_disk_is_reported_and_the_job_continues_later(cluster: Any, corpus: Path, tmp_path: Path) -> None:
    """Embed into a real file system that is too small, then into the same one with more room."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        out = small / "v"
        with pytest.raises(BadInput, match=f"^cannot write {out}: No space left on device; finished shards stay"):
            embed(make_config(corpus, out))
        assert 0 < count_finished(out) < SHARDS
        assert not (out / "manifest.json").exists() and not (out / embedding.PARTIAL).exists()
        subprocess.run(["mount", "-o", "remount,size=2m", str(small)], check=True)
        assert embed(make_config(corpus, out)).embedded < PASSAGES
        assert read_vectors(out) == read_expected(corpus)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_full_disk_in_an_actor_leaves_no_partial_file(corpus: Path, tmp_path: Path, monkeypatch: Any) -> None:
    task, write = EmbedTask(corpus, tmp_path, "default", "cpu", "int8"), Path.write_bytes

    def full(file: Path, data: bytes) -> None:
        write(file, data[:100])
        raise OSError(28, "No space left on device")

    batch = {"first": np.array([0]), "last": np.array([ROWS])}
    with embedding.prepare_shard_folder(tmp_path):
        monkeypatch.setattr(Path, "write_bytes", full)
        row = ShardEmbedder(task)(batch)
        monkeypatch.undo()
        assert row["record"] == [""]
        assert row["error"][0].startswith(f"cannot write {tmp_path}: No space left on device; finished shards stay")
    assert not any(tmp_path.iterdir())


def test_a_corpus_file_damaged_during_the_job_is_named(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "passages", tmp_path / "c.index" / "passages")
    file = tmp_path / "c.index" / "passages" / "00000.arrow"
    file.write_bytes(file.read_bytes()[:-10])
    actor = ShardEmbedder(EmbedTask(tmp_path / "c.index", tmp_path / "v", "default", "cpu", "int8"))
    with embedding.prepare_shard_folder(tmp_path / "v"):
        row = actor({"first": [0], "last": [ROWS]})
    assert row["error"][0].startswith(f"{file} is not whole") and "\n" not in row["error"][0]


def test_a_shard_that_crashes_its_actors_is_not_retried_forever(corpus: Path, tmp_path: Path) -> None:
    actor = ShardEmbedder(EmbedTask(corpus, tmp_path / "v", "default", "cpu", "int8"))
    with embedding.prepare_shard_folder(tmp_path / "v"):
        for number in range(ATTEMPTS):
            (tmp_path / "v" / embedding.PARTIAL / f"{ROWS:010d}.1.{number}.try").touch()
        rows = actor({"first": [0, ROWS], "last": [ROWS, 2 * ROWS]})
    assert rows["error"] == ["", f"passages {ROWS} to {2 * ROWS - 1}: 8 actors died embedding them; see Ray's logs"]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs the job in this process and returns its error line."""
    monkeypatch.setattr("index.embed.connect", lambda purpose: pytest.fail("Ray was started"))

    def run(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["index.embed", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            job.main()
        printed = capsys.readouterr()
        assert (stop.value.code, printed.out) == (2, "")
        (line,) = printed.err.splitlines()
        return line.removeprefix("index.embed: ")

    return run


def test_wrong_options_are_one_line_before_any_actor_starts(main: Any, corpus: Path, tmp_path: Path) -> None:
    other, out, nix = tmp_path / "other", tmp_path / "v", tmp_path / "nix"
    other.mkdir()
    (other / "file").touch()
    both = ("--corpus", corpus, "--out", out)
    assert main("--corpus", tmp_path, "--out", out).startswith(f"{tmp_path} is not a ragqa directory")
    assert main("--corpus", nix, "--out", out) == f"{nix} does not exist"
    assert main("--corpus", corpus, "--out", other).startswith(f"{other} exists and is not a ragqa vectors")
    assert main(*both, "--encoder", nix) == f"{nix}: no such directory"
    assert main(*both, "--encoder", other).startswith(f"{other} is not an encoder")
    assert main(*both, "--gpus").startswith("--gpus: encoder 'default' is exported for the CPU")
    assert main(*both, "--precision", "float16").startswith("--precision float16 needs --gpus")
    assert "is exported in 8 bits" in main(*both, "--precision", "bfloat16")
    assert main(*both, "--shard-rows", 0) == "--shard-rows 0: give at least 1"
    assert list(tmp_path.iterdir()) == [other] and [file.name for file in other.iterdir()] == ["file"]


def test_a_submitted_job_needs_absolute_paths(
    main: Any, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = tmp_path / "working_dir_files" / "_ray_pkg_1"
    uploaded.mkdir(parents=True)
    monkeypatch.chdir(uploaded)
    assert main("--corpus", "c.index", "--out", tmp_path / "v").startswith("--corpus c.index: a job runs in a copy")
    assert main("--corpus", corpus, "--out", "v").startswith("--out v: a job runs in a copy of the working directory")
    assert not any(uploaded.iterdir())


def test_wrong_option_files_are_reported(main: Any, tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    assert main("--config") == "--config needs the name of a JSON file"
    file.write_text("{")
    assert main("--config", file).startswith(f"{file} is not JSON: ")
    file.write_text('{"corpse": "c"}')
    assert main("--config", file).startswith(f"{file}: unknown option corpse; the options are corpus, out, ")
    file.write_text('{"corpus": "c"}')
    assert main("--config", file) == f"{file}: out is not given"
    file.write_text(json.dumps({"corpus": "none", "out": "v", "gpus": True, "workers": None}))
    assert main("--config", file).endswith("none does not exist")
    assert main("--config", file, "--workers", -1) == "--workers -1: give 0 or more"
    assert main("--config", file, "--corpus", tmp_path).startswith(f"{tmp_path} is not a ragqa directory")


def test_a_directory_takes_one_run_and_one_precision(main: Any, small: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "v"
    with job._lock_directory(out):
        job._check_identity(out, {"precision": "float32", "encoder": "e"}, [EmbeddingShard(0, 9)], False)
        assert "another process is at work" in main("--corpus", corpus, "--out", out)
    line = main("--corpus", corpus, "--out", out, "--encoder", small, "--precision", "bfloat16")
    assert line.startswith(f"{out} holds other vectors (") and "precision float32, not bfloat16" in line


def test_complete_vectors_are_accepted_whatever_device_made_them(small: Path, corpus: Path, tmp_path: Path) -> None:
    """Vectors move between machines, but a half must be completed in the precision of the other half."""
    here = EmbedConfig(corpus=corpus, out=tmp_path / "v", encoder=str(small), workers=0, shard_rows=20)
    made = job.embed(here)
    identity = json.loads((here.out / job.IDENTITY).read_text())
    (here.out / job.IDENTITY).write_text(json.dumps({**identity, "device": "cuda", "precision": "bfloat16"}))
    again = job.embed(here)
    assert (again.embedded, again.device, again.precision) == (0, "cuda", "bfloat16") and made.embedded
    with pytest.raises(BadInput, match=r"holds other vectors \(device cuda, not cpu; precision bfloat16, not float32"):
        job.embed(replace(here, precision="float32"))
    next(here.out.glob("*.npy")).with_suffix(".json").unlink()
    with pytest.raises(BadInput, match=r"holds other vectors \(device cuda, not cpu"):
        job.embed(here)


@pytest.fixture(scope="module")
def small_vocabulary_index(tmp_path_factory: pytest.TempPathFactory, small: Path) -> Path:
    """Make an index without vectors from words that the small encoder knows."""
    return make_index(tmp_path_factory.mktemp("worded"), [f"w{i}" for i in range(1100)], "default", "bm25")


def test_vectors_do_not_depend_on_the_number_of_workers(
    cluster: Any, small_vocabulary_index: Path, small: Path, tmp_path: Path
) -> None:
    made = {}
    for workers in (1, 2):
        out = tmp_path / str(workers)
        done = embed(make_config(small_vocabulary_index, out, encoder=str(small), shard_rows=50, workers=workers))
        assert (done.workers, done.precision) == (workers, "float32")
        made[workers] = read_vectors(out)
        assert artefacts.read_manifest(out, "vectors").config["precision"] == "float32"
    assert made[1] == made[2]
    texts = [
        passage.titled_text for passage in PassageStore.open(small_vocabulary_index / "passages").get(range(PASSAGES))
    ]
    alone = load_encoder(small).encode(texts)
    assert np.abs(np.frombuffer(made[1], "<f2").reshape(alone.shape) - alone).max() < 1e-3


def test_precisions_differ_in_vectors_but_not_in_fingerprint(small: Path) -> None:
    texts = ["w1 w2 w3", "w4 " * 40]
    full, half = load_encoder(small), load_encoder(small, precision="bfloat16")
    assert (full.precision, half.precision, load_encoder().precision) == ("float32", "bfloat16", "int8")
    assert full.fingerprint == half.fingerprint
    one, other = full.encode(texts), half.encode(texts)
    assert 0 < np.abs(one - other).max() < 0.02
    with pytest.raises(BadInput, match="precision 'int4': choose one of float32, bfloat16, float16"):
        load_encoder(small, precision="int4")


def test_a_model_in_training_mode_is_refused(small: Path) -> None:
    encoder = load_encoder(small)
    encoder.encode(["w1"])
    encoder._passages._function.args[0].encoder.encoder.layer[1].output.dropout.train()  # type: ignore[attr-defined]
    with pytest.raises(Mismatch, match="the encoder is in training mode"):
        encoder.encode(["w1"])
