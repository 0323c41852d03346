"""``ragqa index`` and ``ragqa update``: what they print."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run

from ragqa.cli import index as index_commands
from ragqa.corpus.formats.base import CorpusReport
from ragqa.corpus.store import PassageStore
from ragqa.indexing import watch
from ragqa.indexing.update import UpdateReport


def test_a_path_with_a_newline_is_shown_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else the second line of the path would look like a line of the summary."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.md").write_text(f"A {name} text about foxes.")
    index = str(tmp_path / "docs\n9 documents")
    arguments = ("index", str(tmp_path / "first.md"), "--retriever", "bm25", "--out", index)
    status, out, _ = run(*arguments, capsys=capsys)
    assert (status, out) == (0, f"1 document, 1 passage, 0.0 MB in {tmp_path}/docs 9 documents\n")
    status, out, _ = run("update", index, "--add", str(tmp_path / "second.md"), capsys=capsys)
    assert status == 0 and out.startswith(f"1 added, compacted: 2 passages in {tmp_path}/docs 9 documents (")
    assert len(out.splitlines()) == 1


def test_the_same_command_again_and_update_sync_take_in_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, index = tmp_path / "notes", str(tmp_path / "notes.index")
    for folder in (notes, tmp_path / "more"):
        folder.mkdir()
        (folder / "first.md").write_text(f"A text about foxes in {folder.name}.")
    build = ("index", str(notes), "--retriever", "bm25", "--out", index)
    run(*build, capsys=capsys)
    (notes / "second.md").write_text("A text about owls.")
    assert run(*build, capsys=capsys)[1].startswith("1 added")
    (notes / "first.md").unlink()
    assert run("update", index, "--sync", "--json", capsys=capsys)[1].startswith('{"index"')
    assert run("update", index, "--sync", capsys=capsys)[1].startswith("nothing changed: 1 passage in ")
    both = ("update", index, "--sync", str(notes), str(tmp_path / "more"))
    assert run(*both, capsys=capsys)[1].startswith("1 added")
    status, _, error = run(*both, "--delete", "first.md", capsys=capsys)
    assert status == 2 and "--sync finds what to add and to delete: leave out --add and --delete" in error
    status, _, error = run("update", index, "--add", str(notes), "--watch", capsys=capsys)
    assert status == 2 and "--watch finds what to add and to delete" in error
    _, out, error = run(*build, "--block-size", "50", capsys=capsys)
    assert f"{index} is built again: other settings than before (block-size)" in error
    assert out.startswith("1 document, 1 passage")


def test_a_report_is_wrapped_on_a_terminal_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (tmp_path / f"an empty file with a long name {number}.md").write_text("")
    (tmp_path / "first.md").write_text("A text about foxes.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    build = ("index", str(tmp_path), "--retriever", "bm25", "--out", "a.index")
    names = ", ".join(f"an empty file with a long name {number}.md" for number in range(4))
    assert f"\nleft out: 4 empty files ({names})\n" in run(*build, capsys=capsys)[1]
    sync = ("update", "a.index", "--sync")
    for number in range(4):  # so that they are read again
        (tmp_path / f"an empty file with a long name {number}.md").write_text("\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = run(*sync, capsys=capsys)[1]
    lines = out.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 60
    assert all(line.startswith("    ") for line in lines[2:4])
    assert f"left out: 4 empty files ({names})" in " ".join(out.split())
    assert len(run(*sync, "--json", capsys=capsys)[1].splitlines()) == 1


def test_an_interrupt_ends_a_watch_in_order(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "first.md").write_text("A text about foxes.")
    command = ["-m", "ragqa", "index", "notes", "--retriever", "bm25", "--out", "notes.index", "--watch"]
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A script in the background ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("1 document, 1 passage")
        (tmp_path / "notes" / "second.md").write_text("A text about owls.")
        assert process.stdout.readline().startswith("1 added")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    assert "A text about owls." in {p.text for batch in open_passages(tmp_path).iter_batches() for p in batch}


def test_a_watch_repeats_no_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    duplicates = [CorpusReport(), *(CorpusReport(duplicates=count) for count in (1, 1, 2))]
    reports = [UpdateReport(1, 0, 0, 0, 5, False, 0.1, corpus) for corpus in duplicates]
    monkeypatch.setattr(watch, "watch_folders", lambda *_, on_report, **options: [*map(on_report, reports)])
    index_commands._watch(Path("a.index"), [], strict=False, device="cpu", as_json=False)
    done, problems = "1 added: 5 passages in a.index (0.1 s)", "documents and records left out or repaired: "
    shown = [done, done, f"{problems}1 duplicate", done, done, f"{problems}2 duplicates"]
    assert capsys.readouterr().out.splitlines() == shown


def open_passages(folder: Path) -> PassageStore:
    return PassageStore.open(folder / "notes.index" / "passages")
