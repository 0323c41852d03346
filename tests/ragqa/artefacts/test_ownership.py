"""ragqa replaces only its own directories, and never deletes a file that it did not write."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ragqa import artefacts
from ragqa.artefacts.ownership import iter_other_files
from ragqa.errors import BadInput
from ragqa.evaluation import evaluate
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from tests.helpers.evaluation import QUESTIONS, make_pipeline

TERMS_ONLY = IndexConfig(retriever="bm25")


def write_artefact(target: Path, kind: str = "index", **files: str) -> Path:
    with artefacts.replace_directory(target) as folder:
        for name, text in (files or {"passages": "rows"}).items():
            (folder / name).write_text(text)
        artefacts.write_manifest(folder, kind, {}, {})
    return target


def list_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "tower.md").write_text("The tower of Skarvik was built in 1871.")
    return folder


@pytest.mark.parametrize("typical", ["passages", "report.json", "pipeline.json", "model.onnx", "begun.json"])
def test_a_directory_with_another_programs_manifest_is_never_replaced(tmp_path: Path, typical: str) -> None:
    web = tmp_path / "web"
    (web / "src").mkdir(parents=True)
    (web / typical).mkdir()
    for name, text in {"manifest.json": '{"name": "my app"}', "src/main.js": "code"}.items():
        (web / name).write_text(text)
    for kind in ("index", "report", "pipeline", "encoder", "reader", "vectors"):
        with pytest.raises(BadInput, match=rf"web exists and is not a ragqa {kind}: move it, or choose another place"):
            artefacts.check_replaceable(web, kind)
    with pytest.raises(BadInput, match="web exists and is not a ragqa artefact"):
        write_artefact(web)
    assert list_files(web) == ["manifest.json", "src/main.js"]


def test_an_index_over_another_programs_directory_is_refused_before_any_work(tmp_path: Path, documents: Path) -> None:
    web = tmp_path / "web"
    (web / "passages").mkdir(parents=True)
    (web / "manifest.json").write_text('{"name": "my app"}')
    with pytest.raises(BadInput, match="web exists and is not a ragqa index"):
        build_index([documents], web, TERMS_ONLY)
    assert list_files(web) == ["manifest.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "web"]


@pytest.mark.parametrize("name", [".i.building/notes.md", "elsewhere/notes.md"])
def test_a_users_directory_with_the_name_of_a_workspace_is_not_deleted(
    tmp_path: Path, documents: Path, name: str
) -> None:
    note = tmp_path / name
    note.parent.mkdir(parents=True)
    note.write_text("mine")
    if "elsewhere" in name:
        (tmp_path / ".i.building").symlink_to("elsewhere")
    with pytest.raises(BadInput, match=r"\.i\.building is not ragqa's, and would be deleted: move it"):
        build_index([documents], tmp_path / "i", TERMS_ONLY)
    assert note.read_text() == "mine" and list_files(note.parent) == ["notes.md"]
    (tmp_path / ".i.building").rename(tmp_path / ".r.evaluating")
    with pytest.raises(BadInput, match=r"\.r\.evaluating is not ragqa's"):
        evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r")
    assert list_files(tmp_path / ".r.evaluating") == ["notes.md"]
    assert not (tmp_path / "i").exists() and not (tmp_path / "r").exists()


def test_bad_documents_leave_no_workspace_and_a_failure_after_the_reading_keeps_it(
    tmp_path: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (documents / "bad.jsonl").write_text("{")
    with pytest.raises(BadInput, match=r"bad\.jsonl:1"):
        build_index([documents], tmp_path / "i", replace(TERMS_ONLY, strict=True))
    assert [path.name for path in tmp_path.iterdir() if "building" in path.name] == []
    (documents / "bad.jsonl").unlink()
    monkeypatch.setattr("ragqa.indexing.build.build_terms", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build_index([documents], tmp_path / "i", TERMS_ONLY)
    assert (tmp_path / ".i.building" / "made" / "passages").is_dir()


def test_an_index_at_a_path_that_is_not_utf8_is_refused_before_any_work(tmp_path: Path, documents: Path) -> None:
    for out in (tmp_path / "\udcff.index", tmp_path / "\udcff" / "docs.index"):  # the byte 0xff
        with pytest.raises(BadInput, match=r"\.index: the path of an index must be UTF-8 text; choose another place"):
            build_index([documents], out, TERMS_ONLY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs"]


@pytest.mark.parametrize("name", ["notes.md", ".env", "passages/extra.arrow", "bm25/notes.txt", "deep/er/notes.md"])
def test_a_users_file_in_an_index_keeps_it_from_being_replaced(tmp_path: Path, documents: Path, name: str) -> None:
    out = tmp_path / "docs.index"
    build_index([documents], out, TERMS_ONLY)
    before = list_files(out)
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("mine")
    message = rf"docs\.index also holds {name}, which would be deleted: move it, or choose another place"
    with pytest.raises(BadInput, match=message):
        build_index([documents], out, TERMS_ONLY)
    with pytest.raises(BadInput, match=message):
        update_index(out, add=[documents], delete=[str(documents / "tower.md")])
    assert (out / name).read_text() == "mine"
    (out / name).unlink()
    assert build_index([documents], out, TERMS_ONLY).documents == 1
    assert len(list_files(out)) == len(before)


def test_an_input_inside_the_index_is_never_deleted(tmp_path: Path, documents: Path) -> None:
    out = tmp_path / "docs.index"
    build_index([documents], out, TERMS_ONLY)
    (out / "new.md").write_text("A new tower was built in 1902.")
    with pytest.raises(BadInput, match=r"also holds new\.md"):
        build_index([out / "new.md"], out, TERMS_ONLY)
    assert (out / "new.md").is_file()


def test_a_file_that_comes_in_during_the_work_is_found_before_the_swap(tmp_path: Path) -> None:
    target = write_artefact(tmp_path / "thing")
    with pytest.raises(BadInput, match=r"thing also holds late\.txt"), artefacts.replace_directory(target) as folder:
        (folder / "passages").write_text("new rows")
        artefacts.write_manifest(folder, "index", {}, {})
        (target / "late.txt").write_text("mine")
    assert (target / "late.txt").read_text() == "mine" and (target / "passages").read_text() == "rows"
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_a_file_that_comes_in_during_the_swap_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_artefact(tmp_path / "thing")
    exchange = artefacts.atomic.exchange_directories

    def exchange_late(first: Path, second: Path) -> bool:
        (second / "late.txt").write_text("mine")
        return exchange(first, second)

    monkeypatch.setattr(artefacts.atomic, "exchange_directories", exchange_late)
    write_artefact(target, passages="new rows")
    assert (target / "passages").read_text() == "new rows"
    (left,) = tmp_path.glob(".thing.*.writing")
    assert (left / "late.txt").read_text() == "mine"
    artefacts.sweep_orphans(target)
    assert (left / "late.txt").read_text() == "mine"


def test_a_link_in_an_artefact_counts_as_a_users_file(tmp_path: Path) -> None:
    target = write_artefact(tmp_path / "thing")
    (tmp_path / "folder").mkdir()
    (target / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(BadInput, match="thing also holds link"):
        artefacts.check_replaceable(target, "index")


def test_empty_lock_files_are_not_a_users_files(tmp_path: Path) -> None:
    (tmp_path / ".tantivy-writer.lock").touch()
    (tmp_path / "poetry.lock").write_text("[[package]]")
    assert list(iter_other_files(tmp_path, ())) == ["poetry.lock"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("mine")], ids=["pipe", "link"])
def test_a_workspace_with_a_pipe_or_a_link_is_not_ragqas(
    tmp_path: Path, documents: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / ".i.building").mkdir()
    make(tmp_path / ".i.building" / "begun")
    with pytest.raises(BadInput, match=r"\.i\.building is not ragqa's"):
        build_index([documents], tmp_path / "i", TERMS_ONLY)


def test_an_index_with_a_damaged_manifest_is_replaced_if_its_files_are_known(tmp_path: Path, documents: Path) -> None:
    out = tmp_path / "docs.index"
    build_index([documents], out, TERMS_ONLY)
    shutil.copytree(out, tmp_path / "copy.index")
    for index in (out, tmp_path / "copy.index"):
        (index / "manifest.json").write_text((index / "manifest.json").read_text()[:40])
    with pytest.raises(BadInput, match=r"copy\.index exists and is not a ragqa index"):  # it may be anybody's
        build_index([documents], tmp_path / "copy.index", TERMS_ONLY)
    (out / "notes.md").write_text("mine")
    with pytest.raises(BadInput, match=r"also holds notes\.md"):
        build_index([documents], out, TERMS_ONLY)
    (out / "notes.md").unlink()
    assert build_index([documents], out, TERMS_ONLY).documents == 1
    artefacts.read_manifest(out, "index")


def test_a_directory_without_a_manifest_is_replaced_by_files_of_the_same_names(tmp_path: Path) -> None:
    model = tmp_path / "model"
    for text in ("first", "second"):
        with artefacts.replace_directory(model) as folder:
            (folder / "config.json").write_text(text)
        assert (model / "config.json").read_text() == text
        (model / artefacts.CALIBRATION).write_text("{}")  # written beside the weights of a reader
    (model / "notes.md").write_text("mine")
    with pytest.raises(BadInput, match=r"model also holds notes\.md"), artefacts.replace_directory(model) as folder:
        (folder / "config.json").write_text("third")
    assert list_files(model) == ["calibration.json", "config.json", "notes.md"]


def test_the_working_directory_is_not_replaced(
    tmp_path: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell would be left in a deleted directory."""
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", write_artefact(tmp_path / "old"), tmp_path):
        monkeypatch.chdir(folder)
        with pytest.raises(BadInput, match=r"is or holds the working directory.*: choose another place"):
            build_index([documents], Path(), TERMS_ONLY)
    out = tmp_path / "docs.index"
    build_index([documents], out, TERMS_ONLY)
    monkeypatch.chdir(out / "passages")
    with pytest.raises(BadInput, match="is or holds the working directory"):
        update_index(out, delete=[str(documents / "tower.md")])
    assert json.loads((out / "manifest.json").read_text())["config"]["passages"] == 1
