"""Files that are sent to an index, and documents that are deleted from it."""

import shutil
import threading
from pathlib import Path

import pytest

from ragqa.errors import BadInput
from ragqa.indexing import uploads
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.uploads import UploadFolder, check_file_name
from ragqa.retrieval.live import open_retriever


@pytest.fixture
def index(folder: Path, tmp_path: Path) -> Path:
    """An index without vectors, which is built in no time."""
    build_index([folder], tmp_path / "a.index", IndexConfig(retriever="bm25"))
    return tmp_path / "a.index"


def find(index: Path, words: str) -> list[str]:
    return [hit.passage.path for hit in open_retriever(index).search([words], 5)[0]]


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_added_file_is_found_and_a_deleted_one_is_gone_with_its_file(index: Path) -> None:
    uploads = UploadFolder(index)
    report = uploads.add("ferry.md", b"# Ferry\n\nThe ferry Brenna sails at noon.\n")
    path = str(index.with_name("a.index.uploads") / "ferry.md")
    assert (report.added, report.replaced) == (1, 0) and find(index, "ferry sails") == [path]
    report = uploads.delete(path, path)
    assert report.deleted == 1 and find(index, "ferry sails") == [] and list_files(uploads.path) == []


def test_a_file_of_the_same_name_is_replaced(index: Path) -> None:
    uploads = UploadFolder(index)
    uploads.add("a.txt", b"The quay is green.")
    report = uploads.add("a.txt", b"The quay is yellow.")
    assert (report.added, report.replaced) == (0, 1)
    assert find(index, "green") == [] and len(find(index, "yellow")) == 1
    assert list_files(uploads.path) == ["a.txt"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"  \n", "nothing to add in a.txt: empty file$"),
        ("a.pdf", b"no PDF", "nothing to add: a.pdf: cannot be read: its content is text, not what its suffix says"),
        ("a.png", b"\x89PNG\r\n\x1a\n", "nothing to add in a.png: image; ragqa reads text"),
        ("a.jsonl", b'{"text": 1}\n', "nothing to add: a.jsonl:1: "),
    ],
)
def test_a_file_that_cannot_be_read_changes_nothing(index: Path, name: str, content: bytes, reason: str) -> None:
    """The reason names the file once, and not its folder."""
    uploads = UploadFolder(index)
    uploads.add("a.txt", b"The quay is green.")
    before = (index / "manifest.json").read_bytes()
    with pytest.raises(BadInput, match=f"^{reason}"):
        uploads.add(name, content)
    assert (index / "manifest.json").read_bytes() == before
    assert list_files(uploads.path) == ["a.txt"] and (uploads.path / "a.txt").read_bytes() == b"The quay is green."


def test_a_killed_upload_leaves_the_file_before_it(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = UploadFolder(index)
    folder.add("a.txt", b"The quay is green.")
    with monkeypatch.context() as patch:

        def die(*arguments: object, **options: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(uploads, "change_index", die)
        with pytest.raises(KeyboardInterrupt):
            folder.add("a.txt", b"The quay is yellow.")
    assert (folder.path / "a.txt").read_bytes() == b"The quay is green."
    (folder.path / "a.txt").rename(folder.path / ".a.txt.before")  # as after SIGKILL
    (folder.path / "a.txt").write_bytes(b"half")
    with pytest.raises(BadInput):
        folder.add("a.txt", b"")
    assert (folder.path / "a.txt").read_bytes() == b"The quay is green."


def test_files_outside_of_the_folder_are_not_deleted(index: Path, folder: Path) -> None:
    path = str(folder / "bakery.txt")
    assert UploadFolder(index).delete(path, path).deleted == 1
    assert Path(path).is_file() and find(index, "bakery") == []


def test_other_documents_with_the_same_id_stay(tmp_path: Path) -> None:
    (folder := tmp_path / "docs").mkdir()
    for name, colour in (("red.jsonl", "red"), ("blue.jsonl", "blue")):
        (folder / name).write_text(f'{{"id": "7", "text": "The quay is {colour}."}}\n')
    build_index([folder], tmp_path / "a.index", IndexConfig(retriever="bm25"))
    uploads, red = UploadFolder(tmp_path / "a.index"), str(folder / "red.jsonl")
    report = uploads.delete("7", red)
    assert (report.deleted, report.passages) == (1, 1)
    assert find(tmp_path / "a.index", "quay") == [str(folder / "blue.jsonl")]
    with pytest.raises(BadInput, match=r"no document of .*green\.jsonl has the id 7"):
        uploads.delete("7", str(folder / "green.jsonl"))


def test_uploads_at_once_wait_for_each_other(index: Path) -> None:
    errors: list[Exception] = []

    def add(number: int) -> None:
        try:
            UploadFolder(index).add(f"{number}.txt", f"quay{number} is long".encode())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and [len(find(index, f"quay{number}")) for number in range(4)] == [1] * 4


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "a/b.md", "../a.md", "a\\b", "c:a", "a\n.md", "a\0b", " a", "a ", "é" * 101, "\ud800"],
)
def test_names_with_folders_or_controls_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="is not allowed"):
        check_file_name(name)


def test_names_in_all_languages_are_allowed() -> None:
    for name in ("report.pdf", "Müllabfuhr 2024.docx", "報告.md", "a-b_c (1).txt"):
        check_file_name(name)


def test_no_folder_is_made_beside_what_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(Exception, match="not a ragqa"):
        UploadFolder(tmp_path / "other").add("a.txt", b"text")
    assert list_files(tmp_path) == ["other"]
    shutil.rmtree(tmp_path / "other")
