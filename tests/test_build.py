"""From vectors to an index on a Ray cluster: the same as is built on one machine, whatever is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run, wait_for

from index.build import BuildConfig, build
from index.embed import EmbedConfig, embed
from ragqa import Pipeline, artefact
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.indexing import IndexConfig, build_index
from ragqa.pipeline import open_retriever
from ragqa.retrieval import mips

pytest.importorskip("ray", reason="the extra ray is not installed")
pytest.importorskip("faiss", reason="needs the extra 'cpu'")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning")
PASSAGES, PART = 400, 40
QUESTIONS = ["stone river", "king of the city", "a tower of light", "light light light"]


@pytest.fixture(scope="module")
def vectors(cluster: Any, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vectors") / "c.vectors"
    embed(EmbedConfig(corpus=corpus, out=out, shard_rows=64))
    return out


def config(corpus: Path, vectors: Path, out: Path, **options: Any) -> BuildConfig:
    return BuildConfig(**{"corpus": corpus, "vectors": vectors, "out": out, "part_rows": PART, **options})


def files(index: Path) -> dict[str, str]:
    """Checksums of the files, checked against the manifest; nothing else is in the index, nor beside it."""
    manifest = artefact.read(index, "index")
    inside = {path.relative_to(index).as_posix() for path in index.rglob("*") if path.is_file()}
    assert inside == {*manifest.files, "manifest.json"}
    assert not list(index.parent.glob(f".{index.name}*"))
    return {name: entry["sha256"] for name, entry in manifest.files.items()}


def found(index: Path) -> list[list[int]]:
    retriever = open_retriever(index, "dense")
    return [[hit.passage.id for hit in hits] for hits in retriever.search(QUESTIONS, 10)]


@pytest.mark.parametrize("kind", mips.KINDS)
def test_it_answers_like_an_index_built_on_one_machine(corpus: Path, vectors: Path, tmp_path: Path, kind: str) -> None:
    built = build(config(corpus, vectors, tmp_path / "c.index", kind=kind))
    source = corpus.parent / "c.jsonl"
    build_index([source], tmp_path / "here.index", IndexConfig(retriever="dense", kind=kind))
    assert found(tmp_path / "c.index") == found(tmp_path / "here.index")
    ours, theirs = files(tmp_path / "c.index"), files(tmp_path / "here.index")
    assert {name for name in ours if "lists" not in name} == set(theirs)
    assert (built.kind, built.passages) == (kind, PASSAGES)
    assert artefact.peek(tmp_path / "c.index").config["search"] == built.search
    if kind != "flat":
        assert built.search is not None and built.search["recall"] >= 0.95


def test_terms_are_taken_over_and_the_whole_answers(vectors: Path, corpus: Path, tmp_path: Path) -> None:
    hybrid = tmp_path / "bm25.index"
    build_index([corpus.parent / "c.jsonl"], hybrid, IndexConfig(retriever="bm25"))
    build(config(hybrid, vectors, tmp_path / "c.index"))
    pipeline = Pipeline.load(tmp_path / "c.index")
    assert pipeline.describe()["retriever"] == "hybrid"
    assert pipeline.ask("where is the tower?").sources
    assert os.path.samefile(hybrid / "passages" / "00000.arrow", tmp_path / "c.index" / "passages" / "00000.arrow")


def test_an_index_built_on_a_cluster_is_updated_like_any_other(
    vectors: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "c.index"
    build(config(corpus, vectors, index))
    (tmp_path / "new.txt").write_text("The zeppelin landed on the frozen lake.")
    assert run("update", str(index), "--add", str(tmp_path / "new.txt"), "--compact", capsys=capsys)[0] == 0
    (hits,) = open_retriever(index, "dense").search(["zeppelin on the ice"], 1)
    assert "zeppelin" in hits[0].passage.text
    assert artefact.peek(index).config["search"]["recall"] >= 0.95


def start(corpus: Path, vectors: Path, out: Path) -> subprocess.Popen[bytes]:
    places = ["--corpus", str(corpus), "--vectors", str(vectors), "--out", str(out), "--part-rows", "4"]
    return subprocess.Popen([sys.executable, "-m", "index.build", *places], stderr=subprocess.DEVNULL)


def parts(out: Path) -> int:
    return len(list(out.with_name(f".{out.name}.building").glob("part-*[0-9]")))


def kill_drivers(corpus: Path, vectors: Path, out: Path, times: int) -> None:
    """Start the job and kill its driver once it has made some more parts, so many times."""
    for _ in range(times):
        before = parts(out)
        driver = start(corpus, vectors, out)
        wait_for(lambda before=before, driver=driver: parts(out) > before or driver.poll() is not None)
        driver.send_signal(signal.SIGKILL)
        driver.wait()


def undisturbed(corpus: Path, vectors: Path, out: Path) -> dict[str, str]:
    build(config(corpus, vectors, out, part_rows=4))
    return files(out)


def test_the_driver_killed_and_run_again(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.index"
    kill_drivers(corpus, vectors, out, 2)
    assert not out.exists() and parts(out) > 0
    build(config(corpus, vectors, out, part_rows=4))
    assert files(out) == undisturbed(corpus, vectors, tmp_path / "other.index")


@pytest.mark.slow
def test_the_driver_killed_ten_times(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.index"
    kill_drivers(corpus, vectors, out, 10)
    build(config(corpus, vectors, out, part_rows=4))
    assert files(out) == undisturbed(corpus, vectors, tmp_path / "other.index")


def workers() -> list[int]:
    """Processes that are adding a part."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(b"ray::_add_part"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_worker_killed(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.index"
    driver = start(corpus, vectors, out)
    os.kill(wait_for(workers)[0], signal.SIGKILL)
    assert driver.wait(timeout=120) == 0
    assert files(out) == undisturbed(corpus, vectors, tmp_path / "other.index")


def test_a_full_disk_is_one_line_and_the_rest_is_done_later(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        with pytest.raises(BadInput, match=r"cannot write .*small"):
            build(config(corpus, vectors, small / "c.index"))
        assert not (small / "c.index").exists()
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        build(config(corpus, vectors, small / "c.index"))
        files(small / "c.index")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_what_does_not_belong_together(corpus: Path, vectors: Path, tmp_path: Path, folder: Path) -> None:
    build_index([folder], tmp_path / "other.index", IndexConfig(retriever="bm25"))
    with pytest.raises(Mismatch, match="holds the vectors of other passages"):
        build(config(tmp_path / "other.index", vectors, tmp_path / "c.index"))
    damaged = tmp_path / "damaged.vectors"
    shutil.copytree(vectors, damaged)
    shard = damaged / "0000000064.npy"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(DamagedArtefact, match=r"0000000064\.npy is damaged"):
        build(config(corpus, damaged, tmp_path / "c.index"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="is not a ragqa index"):
        build(config(corpus, vectors, tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").exists()
    for options, said in (({"kind": "annoy"}, "kind annoy"), ({"recall": 1.5}, "recall 1.5"), ({"part_rows": 0}, "0:")):
        with pytest.raises(BadInput, match=said):
            config(corpus, vectors, tmp_path / "c.index", **options)


def test_the_recall_that_is_wanted_is_tried_on_questions(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    asked = tmp_path / "q.jsonl"
    words = ["stone", "river", "light", "king", "city", "tower"]
    rows = [{"question": " ".join(rng.choice(words, 6)), "answers": []} for _ in range(30)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = build(config(corpus, vectors, tmp_path / "c.index", questions=asked, recall=0.9))
    assert built.search is not None
    assert (built.search["queries"], built.search["made_up"], built.search["wanted"]) == (30, False, 0.9)
    config_ = artefact.peek(tmp_path / "c.index").config
    assert (config_["questions"], config_["recall"]) == (str(asked), 0.9)
