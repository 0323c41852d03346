"""An index built on a Ray cluster equals one built on one machine, whatever is killed meanwhile."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import kill_at_every_step, run, wait_for

from index import build as job
from index import faiss_parts
from index.build import BuildConfig, build
from index.embed import EmbedConfig, embed
from ragqa import Pipeline, artefacts
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.vectors import faiss_build, mips
from ragqa.retrieval.vectors.index_kinds import IndexKind

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


def make_config(corpus: Path, vectors: Path, out: Path, **options: Any) -> BuildConfig:
    return BuildConfig(**{"corpus": corpus, "vectors": vectors, "out": out, "part_rows": PART, **options})


def read_checksums(index: Path) -> dict[str, str]:
    """Return the checksums of all files after checking that no other files are in the index or next to it."""
    manifest = artefacts.read_manifest(index, "index")
    inside = {path.relative_to(index).as_posix() for path in index.rglob("*") if path.is_file()}
    assert inside == {*manifest.files, "manifest.json"}
    assert not list(index.parent.glob(f".{index.name}*"))
    return {name: entry["sha256"] for name, entry in manifest.files.items()}


def search(index: Path) -> list[list[int]]:
    retriever = open_retriever(index, "dense")
    return [[hit.passage.id for hit in hits] for hits in retriever.search(QUESTIONS, 10)]


@pytest.mark.parametrize("kind", IndexKind)
def test_an_index_answers_like_one_built_on_one_machine(corpus: Path, vectors: Path, tmp_path: Path, kind: str) -> None:
    built = build(make_config(corpus, vectors, tmp_path / "c.index", kind=kind))
    source = corpus.parent / "c.jsonl"
    build_index([source], tmp_path / "here.index", IndexConfig(retriever="dense", kind=kind))
    assert search(tmp_path / "c.index") == search(tmp_path / "here.index")
    ours, theirs = read_checksums(tmp_path / "c.index"), read_checksums(tmp_path / "here.index")
    assert {name for name in ours if "lists" not in name} == set(theirs)
    assert (built.kind, built.passages) == (kind, PASSAGES)
    assert artefacts.peek_manifest(tmp_path / "c.index").config["search"] == built.search
    if kind != "flat":
        assert built.search is not None and built.search["recall"] >= 0.95


def test_terms_of_the_corpus_become_part_of_the_index(vectors: Path, corpus: Path, tmp_path: Path) -> None:
    hybrid = tmp_path / "bm25.index"
    build_index([corpus.parent / "c.jsonl"], hybrid, IndexConfig(retriever="bm25"))
    build(make_config(hybrid, vectors, tmp_path / "c.index"))
    pipeline = Pipeline.load(tmp_path / "c.index")
    assert pipeline.describe()["retriever"] == "hybrid"
    assert pipeline.ask("where is the tower?").sources
    assert os.path.samefile(hybrid / "passages" / "00000.arrow", tmp_path / "c.index" / "passages" / "00000.arrow")


def test_an_index_built_on_a_cluster_can_be_updated(
    vectors: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "c.index"
    build(make_config(corpus, vectors, index))
    (tmp_path / "new.txt").write_text("The zeppelin landed on the frozen lake.")
    assert run("update", str(index), "--add", str(tmp_path / "new.txt"), "--compact", capsys=capsys)[0] == 0
    (hits,) = open_retriever(index, "dense").search(["zeppelin on the ice"], 1)
    assert "zeppelin" in hits[0].passage.text
    assert artefacts.peek_manifest(index).config["search"]["recall"] >= 0.95


def start(corpus: Path, vectors: Path, out: Path) -> subprocess.Popen[bytes]:
    places = ["--corpus", str(corpus), "--vectors", str(vectors), "--out", str(out), "--part-rows", "4"]
    return subprocess.Popen([sys.executable, "-m", "index.build", *places], stderr=subprocess.DEVNULL)


def parts_folder(out: Path) -> Path:
    """Return the folder of the parts of ``out``."""
    return out.with_name(f".{out.name}.building") / "parts"


def list_records(out: Path) -> list[Path]:
    return sorted(parts_folder(out).glob("0*.json"))


def kill_drivers(corpus: Path, vectors: Path, out: Path, times: int) -> None:
    """Start the job and kill its driver once it has made more parts, ``times`` times."""
    for _ in range(times):
        before = len(list_records(out))
        driver = start(corpus, vectors, out)
        wait_for(lambda before=before, driver=driver: len(list_records(out)) > before or driver.poll() is not None)
        driver.send_signal(signal.SIGKILL)
        driver.wait()


def build_undisturbed(corpus: Path, vectors: Path, out: Path) -> dict[str, str]:
    build(make_config(corpus, vectors, out, part_rows=4))
    return read_checksums(out)


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_job_continues_and_changes_no_byte(corpus: Path, vectors: Path, tmp_path: Path, times: int) -> None:
    out = tmp_path / "c.index"
    kill_drivers(corpus, vectors, out, times)
    if times == 2:
        assert not out.exists() and list_records(out)
    build(make_config(corpus, vectors, out, part_rows=4))
    assert read_checksums(out) == build_undisturbed(corpus, vectors, tmp_path / "other.index")


def test_losing_a_node_changes_no_byte(cluster: Any, corpus: Path, vectors: Path, tmp_path: Path) -> None:
    out, node = tmp_path / "c.index", cluster.add_node(num_cpus=1)
    seen = []

    def remove_node() -> None:
        wait_for(lambda: len(list_records(out)) >= 5)
        cluster.remove_node(node, allow_graceful=False)
        seen.append(len(list_records(out)))

    thread = threading.Thread(target=remove_node)
    thread.start()
    build(make_config(corpus, vectors, out, part_rows=2))
    thread.join()
    assert seen[0] < PASSAGES // 2
    build(make_config(corpus, vectors, tmp_path / "other.index", part_rows=2))
    assert read_checksums(out) == read_checksums(tmp_path / "other.index")


@pytest.mark.parametrize(("kind", "from_the_start"), [("flat", True), ("ivf-flat", False)])
def test_a_kill_at_any_step_loses_nothing(
    corpus: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, from_the_start: bool
) -> None:
    """The replaced index of another kind answers until the new one does, and never comes back."""
    out, saved = tmp_path / "c.index", tmp_path / "saved"
    build(make_config(corpus, vectors, out, kind="hnsw"))
    shutil.copytree(out, saved)

    def check(moment: int, swapped: bool) -> bool:
        now = artefacts.read_manifest(out, "index").config["kind"]
        assert now == kind if swapped else now in ("hnsw", kind), moment
        assert len(search(out)[0]) == 10
        return bool(now == kind)

    moments = kill_at_every_step(
        monkeypatch,
        lambda: build(make_config(corpus, vectors, out, kind=kind, part_rows=200)),
        check,
        lambda: shutil.copytree(saved, out),
        [out, tmp_path / ".c.index.building"] if from_the_start else [],
    )
    assert moments > 10
    monkeypatch.undo()
    build(make_config(corpus, vectors, tmp_path / "other.index", kind=kind, part_rows=200))
    assert read_checksums(out) == read_checksums(tmp_path / "other.index")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)


@pytest.mark.parametrize("spoil", [cut, flip, Path.unlink])
def test_changed_parts_are_made_again(
    corpus: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    out = tmp_path / "c.index"
    config = make_config(corpus, vectors, out, kind="ivf-flat")
    with monkeypatch.context() as patch:
        patch.setattr(faiss_build, "merge_parts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(config)
    rows = [json.loads(record.read_text()) for record in list_records(out)]
    assert len(rows) == PASSAGES // PART
    spoil(parts_folder(out) / rows[3]["file"])
    (parts_folder(out) / list_records(out)[5].name).write_text(json.dumps(rows[5] | {"source": "other vectors"}))
    (parts_folder(out) / "0000000000.half").write_bytes(b"what a worker left")
    added: list[tuple[int, int]] = []
    original = faiss_parts._add_missing

    def record_missing(plan: Any, trained: Any, missing: Any, insecure: bool) -> Any:
        added.extend(missing)
        assert len(list(parts_folder(out).iterdir())) == 2 * (1 + len(rows) - len(missing))  # no other files are left
        return original(plan, trained, missing, insecure)

    with monkeypatch.context() as patch:
        patch.setattr(faiss_parts, "_add_missing", record_missing)
        build(config)
    assert added == [(3 * PART, 4 * PART), (5 * PART, 6 * PART)]
    build(make_config(corpus, vectors, tmp_path / "other.index", kind="ivf-flat"))
    assert read_checksums(out) == read_checksums(tmp_path / "other.index")


def test_finished_stages_are_not_repeated_after_a_kill_while_tuning(
    corpus: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "c.index"
    with monkeypatch.context() as patch:
        patch.setattr(mips, "tune_index", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(make_config(corpus, vectors, out, kind="hnsw"))
    for owner, name in ((faiss_parts, "train"), (faiss_parts, "add"), (mips, "write_rows")):
        monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("done again"))
    build(make_config(corpus, vectors, out, kind="hnsw"))
    assert len(search(out)[0]) == 10 and read_checksums(out)


def test_updating_the_corpus_during_a_build_does_not_change_the_index(
    corpus: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update during the build does not matter; one while files are linked stops the job."""
    own, out, tune = tmp_path / "own.index", tmp_path / "c.index", mips.tune_index
    shutil.copytree(corpus, own)

    def update_and_tune(*arguments: Any, **options: Any) -> Any:
        update_index(own, delete=["0"], compact=False)
        return tune(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(mips, "tune_index", update_and_tune)
        build(make_config(own, vectors, out, kind="sq8"))
    assert read_checksums(out) and len(open_retriever(out).passages) == PASSAGES
    assert artefacts.read_manifest(own, "index").fingerprint != artefacts.read_manifest(corpus, "index").fingerprint

    shutil.rmtree(own)
    shutil.copytree(corpus, own)
    link = artefacts.link_file

    def update_and_link(source: Path, target: Path) -> None:
        monkeypatch.setattr(artefacts, "link_file", link)
        update_index(own, delete=["0"], compact=False)
        link(source, target)

    monkeypatch.setattr(artefacts, "link_file", update_and_link)
    with pytest.raises(Mismatch, match=r"own\.index has just changed: embed its passages and run again"):
        build(make_config(own, vectors, tmp_path / "new.index", kind="sq8"))
    assert not (tmp_path / "new.index").exists()


def test_opening_index_and_corpus_after_a_build_reads_no_file_again(
    corpus: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "c.index"
    for _ in range(2):  # the second build deletes the links of the first
        build(make_config(corpus, vectors, out, kind="hnsw"))
        with monkeypatch.context() as patch:
            patch.setattr(artefacts.manifest, "checksum", lambda path: pytest.fail(f"{path} was read"))
            artefacts.read_manifest(out, "index")
            artefacts.read_manifest(corpus, "index")


def find_workers(name: bytes = b"ray::_add_part") -> list[int]:
    """Return the process ids of the workers."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(name):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_killed_worker_changes_no_byte(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.index"
    driver = start(corpus, vectors, out)
    os.kill(wait_for(find_workers)[0], signal.SIGKILL)
    assert driver.wait(timeout=120) == 0
    assert read_checksums(out) == build_undisturbed(corpus, vectors, tmp_path / "other.index")


def test_a_part_that_crashes_its_workers_stops_the_job(
    corpus: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dying(plan: Any, trained: Any, part: tuple[int, int]) -> None:
        if part[0]:
            time.sleep(600)
        os._exit(1)

    monkeypatch.setattr(faiss_parts, "_add_part", dying)
    options = {"corpus": corpus, "vectors": vectors, "out": tmp_path / "c.index", "part-rows": 200}  # a part a core
    places = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    monkeypatch.setattr("sys.argv", ["index.build", *places])
    with pytest.raises(SystemExit) as stop:
        job.main()
    printed = capsys.readouterr()
    assert (stop.value.code, printed.out) == (2, "")
    last = printed.err.splitlines()[-1]
    assert last.startswith("index.build: 4 workers died adding passages 0 to 199; finished parts stay; last error: ")
    assert "finished parts stay" in last
    wait_for(lambda: not find_workers(b"ray::dying"))


def test_a_full_disk_is_reported_and_the_job_continues_later(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        with pytest.raises(BadInput, match=r"cannot write .*small"):
            build(make_config(corpus, vectors, small / "c.index"))
        assert not (small / "c.index").exists()
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        build(make_config(corpus, vectors, small / "c.index"))
        read_checksums(small / "c.index")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_inputs_that_do_not_fit_are_refused(corpus: Path, vectors: Path, tmp_path: Path, folder: Path) -> None:
    build_index([folder], tmp_path / "other.index", IndexConfig(retriever="bm25"))
    with pytest.raises(Mismatch, match="holds vectors of other passages"):
        build(make_config(tmp_path / "other.index", vectors, tmp_path / "c.index"))
    damaged = tmp_path / "damaged.vectors"
    shutil.copytree(vectors, damaged)
    shard = damaged / "0000000064.npy"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(DamagedArtefact, match=r"0000000064\.npy is damaged"):
        build(make_config(corpus, damaged, tmp_path / "c.index"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="is not a ragqa index"):
        build(make_config(corpus, vectors, tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").exists()
    for options, message in (
        ({"kind": "annoy"}, "kind annoy"),
        ({"recall": 1.5}, "recall 1.5"),
        ({"part_rows": 0}, "0:"),
    ):
        with pytest.raises(BadInput, match=message):
            make_config(corpus, vectors, tmp_path / "c.index", **options)


def test_recall_is_measured_on_sample_questions(corpus: Path, vectors: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    questions = tmp_path / "q.jsonl"
    words = ["stone", "river", "light", "king", "city", "tower"]
    rows = [{"question": " ".join(rng.choice(words, 6)), "answers": []} for _ in range(30)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = build(make_config(corpus, vectors, tmp_path / "c.index", questions=questions, recall=0.9))
    assert built.search is not None
    assert (built.search["queries"], built.search["made_up"], built.search["wanted"]) == (30, False, 0.9)
    manifest_config = artefacts.peek_manifest(tmp_path / "c.index").config
    assert (manifest_config["questions"], manifest_config["recall"]) == (str(questions), 0.9)
