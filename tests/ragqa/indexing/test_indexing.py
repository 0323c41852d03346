"""Building an index: its input, errors, and kills at any moment, which lose nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import kill_at_every_step

from ragqa import artefacts
from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import BadInput, BadLine, MissingExtra
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.summary import format_build
from ragqa.pipeline import Pipeline
from ragqa.progress import Silent
from ragqa.retrieval.live import open_retriever

SMALL = IndexConfig(retriever="bm25")


def write_corpus(path: Path, documents: int, *, words: int = 60) -> Path:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for n in range(documents):
            text = f"Document number {n}. " + " ".join(f"word{i}" for i in rng.integers(0, 500, words))
            file.write(json.dumps({"id": str(n), "title": f"Title {n}", "text": text}) + "\n")
    return path


def test_counts_are_reported(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("One text about foxes.")
    (tmp_path / "in" / "b.txt").write_text("   \n")
    (tmp_path / "in" / "c.txt").write_bytes("Café größer ".encode() + b"\xff")
    (tmp_path / "in" / "d.bin").write_bytes(b"\x00" * 100)
    report = build_index([tmp_path / "in"], tmp_path / "out", SMALL)
    assert (report.documents, report.empty, report.undecodable) == (2, 1, 1)
    assert report.left_out == {"empty file": 1, "program": 1}
    row = json.loads(format_build(report, tmp_path / "out", as_json=True))
    assert row["passages"] == 2
    assert "repaired: 1 undecodable text" in format_build(report, tmp_path / "out")


def test_an_empty_input_leaves_no_index(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(BadInput, match="nothing to index in"):
        build_index([tmp_path / "in"], tmp_path / "out", SMALL)
    with pytest.raises(BadInput, match="nowhere"):
        build_index([tmp_path / "nowhere"], tmp_path / "out", SMALL)
    assert not (tmp_path / "out").exists()


def test_a_malformed_line_is_reported_or_skipped(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"id": "1", "text": "good"}\n{"id": "2", "text"\n{"id": "3", "text": "better"}\n')
    with pytest.raises(BadLine, match=r"c\.jsonl:2"):
        build_index([file], tmp_path / "out", IndexConfig(retriever="bm25", strict=True))
    report = build_index([file], tmp_path / "out", SMALL)
    assert (report.documents, report.bad) == (2, 1)


def test_other_folders_are_never_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(Exception, match="precious"):
        build_index([precious], precious, SMALL)
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_a_failed_build_leaves_the_old_index(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build_index([write_corpus(tmp_path / "c.jsonl", 5)], out, SMALL)
    before = artefacts.read_manifest(out, "index").fingerprint
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(BadInput, match=r"nothing to index in .*bad\.jsonl: .*bad\.jsonl:1: not JSON"):
        build_index([tmp_path / "bad.jsonl"], out, SMALL)
    assert artefacts.read_manifest(out, "index").fingerprint == before


def test_the_same_input_gives_the_same_vectors(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "c.jsonl", 30)
    for name in ("a", "b"):
        build_index([file], tmp_path / name)
    one, other = (np.load(tmp_path / n / "dense" / "vectors.npy") for n in ("a", "b"))
    assert one.dtype == np.float16 and one.shape == (30, 384)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["hnsw", "ivf-flat", "ivf-pq", "ivf-rabitq", "sq8"])
def test_every_kind_finds_what_exact_search_finds(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("faiss")
    file = write_corpus(tmp_path / "c.jsonl", 60)
    build_index([file], tmp_path / "flat", IndexConfig(retriever="dense"))
    build_index([file], tmp_path / kind, IndexConfig(retriever="dense", kind=kind))
    questions = [f"Document number {n}" for n in range(0, 60, 7)]
    exact = open_retriever(tmp_path / "flat").search(questions, 10)
    found = open_retriever(tmp_path / kind).search(questions, 10)
    share = [len({h.passage.id for h in a} & {h.passage.id for h in b}) / 10 for a, b in zip(exact, found, strict=True)]
    assert np.mean(share) >= (0.5 if kind == "ivf-pq" else 0.9)


KILLED = """
import sys
import ragqa.indexing.build as indexing
indexing.SHARD = 64
from ragqa.cli.main import main
sys.argv = ["ragqa", "index", {corpus!r}, "--out", {out!r}, "--retriever", {retriever!r}]
main()
"""


def start_build(corpus: Path, out: Path, retriever: str = "hybrid") -> "subprocess.Popen[bytes]":
    code = KILLED.format(corpus=str(corpus), out=str(out), retriever=retriever)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A script in the background ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_build_resumes_while_the_old_index_answers(tmp_path: Path, stop: signal.Signals, monkeypatch) -> None:
    out, file = tmp_path / "out", tmp_path / "c.jsonl"
    build_index([write_corpus(file, 3)], out, IndexConfig(blocks="words"))  # other settings: no sync, but a new build
    old = artefacts.read_manifest(out, "index").fingerprint
    write_corpus(file, 300)
    shards = tmp_path / ".out.building" / "vectors"
    process = start_build(file, out)
    wait_for(lambda: len(list(shards.glob("*.json"))) >= 2)
    process.send_signal(stop)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if stop == signal.SIGINT else -9)
    assert b"Traceback" not in err
    assert (b"ragqa: interrupted; run the same command again to continue" in err) == (stop == signal.SIGINT)
    assert artefacts.read_manifest(out, "index").fingerprint == old
    assert Pipeline.load(out).ask("What is document number 1?").question

    finished_shards = {f.name: f.stat().st_mtime_ns for f in shards.glob("*.json")}
    assert finished_shards
    encoded = []
    from ragqa.runtime.encoder import TextEncoder

    original = TextEncoder.encode
    monkeypatch.setattr(
        TextEncoder, "encode", lambda self, texts, on_done=None: encoded.extend(texts) or original(self, texts)
    )
    monkeypatch.setattr("ragqa.indexing.build.SHARD", 64)
    build_index([file], out)
    assert len(encoded) == 300 - 64 * len(finished_shards)
    assert len(open_retriever(out).passages) == 300
    build_index([file], tmp_path / "unbroken")
    assert (out / "dense" / "vectors.npy").read_bytes() == (
        tmp_path / "unbroken" / "dense" / "vectors.npy"
    ).read_bytes()


@pytest.mark.parametrize(("retriever", "from_the_start"), [("hybrid", False), ("bm25", True)])
def test_a_build_killed_at_any_step_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retriever: str, from_the_start: bool
) -> None:
    """Killed before and after each rename, deletion and small file; an index that was swapped in stays."""
    out, saved, file = tmp_path / "out", tmp_path / "saved", tmp_path / "c.jsonl"
    config = IndexConfig(retriever=retriever)
    build_index([write_corpus(file, 2)], out, config)
    shutil.copytree(out, saved)
    write_corpus(file, 4)

    def check(moment: int, swapped: bool) -> bool:
        count = len(open_retriever(out).passages)
        assert count == 4 if swapped else count in (2, 4), moment
        return count == 4

    moments = kill_at_every_step(
        monkeypatch,
        lambda: build_index([file], out, config),
        check,
        lambda: shutil.copytree(saved, out),
        [out, tmp_path / ".out.building"] if from_the_start else [],
    )
    assert moments > 10
    artefacts.read_manifest(out, "index")
    assert Pipeline.load(out).ask("What is document number 3?").text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.jsonl", "out", "saved"]


def test_changed_input_starts_a_new_build(tmp_path: Path) -> None:
    class Stop(Silent):
        def advance_to(self, done: int) -> None:
            if done >= 64:
                raise KeyboardInterrupt

    file = write_corpus(tmp_path / "c.jsonl", 100)
    with pytest.raises(KeyboardInterrupt):
        build_index([file], tmp_path / "out", IndexConfig(retriever="dense"), progress=Stop())
    assert (tmp_path / ".out.building").exists()
    build_index([write_corpus(file, 90)], tmp_path / "out", IndexConfig(retriever="dense"))
    assert len(open_retriever(tmp_path / "out").passages) == 90
    assert not (tmp_path / ".out.building").exists()


@pytest.mark.thorough
def test_two_builds_at_once_are_rejected(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "c.jsonl", 400)
    process = start_build(file, tmp_path / "out")
    wait_for(lambda: (tmp_path / ".out.building").exists())
    with pytest.raises(BadInput, match="another process is at work"):
        build_index([file], tmp_path / "out", SMALL)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert len(open_retriever(tmp_path / "out").passages) == 400


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("victim", ["00000.arrow", "bm25", "0000000000.npy", "vectors.npy", "manifest.json"])
def test_a_full_disk_is_a_one_line_error(tmp_path: Path, monkeypatch, victim: str) -> None:
    """Each kind of file in turn cannot be written; a new build then succeeds."""
    file, out = write_corpus(tmp_path / "c.jsonl", 10), tmp_path / "out"
    build_index([file], out, SMALL)
    before = artefacts.read_manifest(out, "index").fingerprint

    def fill_disk(*_: object, **__: object) -> None:
        with open("/dev/full", "wb") as disk:
            disk.write(b"x")

    with monkeypatch.context() as patch:
        if victim == "00000.arrow":
            patch.setattr("ragqa.corpus.store.PassageWriter._write_batch", fill_disk)
        elif victim == "bm25":
            patch.setattr("ragqa.retrieval.bm25.BM25.build", fill_disk)
        elif victim == "0000000000.npy":
            patch.setattr("numpy.save", fill_disk)
        elif victim == "vectors.npy":
            patch.setattr("numpy.lib.format.write_array_header_1_0", fill_disk)
        else:
            patch.setattr("ragqa.artefacts.write_manifest", fill_disk)
        with pytest.raises(BadInput, match=r"cannot write .*out: No space left on device"):
            build_index([file], out)
    assert artefacts.read_manifest(out, "index").fingerprint == before
    build_index([file], out)
    assert len(open_retriever(out, "hybrid").passages) == 10


def test_a_full_disk_does_not_kill_the_process(tmp_path: Path) -> None:
    """Use a real file system of 1 MB where one can be mounted."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        file = write_corpus(tmp_path / "c.jsonl", 3000)
        process = start_build(file, small / "out", retriever="bm25")
        _, err = process.communicate(timeout=120)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert process.returncode == 2, err
    assert err.startswith(b"ragqa: cannot write") or b"\nragqa: cannot write" in err


def test_a_damaged_index_can_be_rebuilt(tmp_path: Path) -> None:
    file, out = write_corpus(tmp_path / "c.jsonl", 3), tmp_path / "out"
    build_index([file], out, SMALL)
    (out / "manifest.json").write_text("{")
    build_index([file], out, SMALL)
    assert len(open_retriever(out).passages) == 3
    (tmp_path / "empty").mkdir()
    build_index([file], tmp_path / "empty", SMALL)


def test_an_index_within_its_input_folder_is_not_indexed(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.txt").write_text("A text about foxes.")
    for _ in range(2):
        report = build_index([tmp_path], tmp_path / "docs.index")
        assert (report.documents, report.left_out) == (1, {})
    monkeypatch.setattr("ragqa.artefacts.write_manifest", lambda *_: 1 / 0)
    marks = []
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            build_index([tmp_path], tmp_path / "docs.index")
        made = tmp_path / ".docs.index.building" / "made"
        marks.append({p.name: p.stat().st_mtime_ns for p in made.iterdir()})
    assert marks[0] == marks[1]


def test_impossible_options_are_rejected_before_reading(tmp_path: Path, monkeypatch) -> None:
    file = write_corpus(tmp_path / "c.jsonl", 3)
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr("ragqa.indexing.build.read_with_progress", lambda *_, **__: 1 / 0)
    with pytest.raises(MissingExtra, match=r"hnsw needs the extra 'cpu'.*\.\[cpu\]"):
        build_index([file], tmp_path / "out", IndexConfig(kind="hnsw"))
    with pytest.raises(BadInput, match="device banana"):
        build_index([file], tmp_path / "out", IndexConfig(device="banana"))
    assert not (tmp_path / ".out.building").exists()


def test_a_relative_encoder_is_found_from_elsewhere(tmp_path: Path, monkeypatch) -> None:
    file = write_corpus(tmp_path / "c.jsonl", 3)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "enc").symlink_to(get_weights_dir() / "encoder")
    monkeypatch.chdir(tmp_path)
    build_index([Path("c.jsonl")], Path("out"), IndexConfig(encoder="enc"))
    Pipeline.load("out", encoder="enc").save("saved")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Pipeline.load("../out").ask("Document number 1?").sources[0].hit.passage.path == str(file)
    assert Pipeline.load("../saved").ask("Document number 1?").sources


def test_a_symbolic_link_to_an_index_stays_a_link(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "c.jsonl", 3)
    build_index([file], tmp_path / "real", SMALL)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        build_index([file], tmp_path / "link", SMALL)
    assert (tmp_path / "link").is_symlink()
    assert len(open_retriever(tmp_path / "link").passages) == 3


def test_a_missing_permission_is_a_one_line_error(tmp_path: Path) -> None:
    file, locked = write_corpus(tmp_path / "c.jsonl", 10), tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    if os.getuid() != 0:
        with pytest.raises(BadInput, match="cannot write"):
            build_index([file], locked / "out", SMALL)
        return
    # Root may write anywhere, so a child gives up its rights after its imports.
    code = f"""
import os
from pathlib import Path
import tantivy, ragqa.retrieval.engines.tantivy
from ragqa.indexing.build import IndexConfig, build_index
os.setuid(65534)
build_index([Path({str(file)!r})], Path({str(locked / "out")!r}), IndexConfig(retriever="bm25"))
"""
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    locked.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ragqa.errors.BadInput: cannot write" in done.stderr
    assert "Permission denied" in done.stderr


def test_files_with_the_same_ids_are_indexed_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        row = {"id": "1", "title": name, "text": f"The text of file {name}."}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    report = build_index([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out", SMALL)
    assert report.documents == 2


def test_a_single_path_instead_of_a_list_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a list of files and folders"):
        build_index("docs", tmp_path / "out")  # type: ignore[arg-type]


def test_a_new_index_is_opened_without_reading_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index([write_corpus(tmp_path / "c.jsonl", 5)], tmp_path / "out", SMALL)
    monkeypatch.setattr(artefacts.manifest, "checksum", lambda path: pytest.fail(f"{path} was read"))
    assert len(open_retriever(tmp_path / "out").passages) == 5


def test_changed_sample_questions_start_a_new_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    file, questions, out = write_corpus(tmp_path / "c.jsonl", 60), tmp_path / "q.jsonl", tmp_path / "out"
    config = IndexConfig(retriever="dense", kind="sq8", questions=str(questions))
    questions.write_text('{"question": "Document number 3?", "answers": []}\n')
    with monkeypatch.context() as patch:
        patch.setattr("ragqa.artefacts.write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_index([file], out, config)
    questions.write_text('{"question": "Document number 3?", "answers": []}\n' * 2)
    build_index([file], out, config)
    assert artefacts.peek_manifest(out).config["search"]["queries"] == 2
