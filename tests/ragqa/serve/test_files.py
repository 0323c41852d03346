"""PDFs of documents in named folders, the only files that the server sends."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from ragqa.cli.serve import resolve_folder
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from tests.helpers.pdf import make_pdf
from tests.helpers.serving import open_client

TOKEN = "a-token-of-the-tests"
PDF = make_pdf(["The dishwasher has four programs.", "Fault E24 means that the drain hose is blocked."])
NAMES = ("é manual.pdf", "linked.pdf", "renamed.pdf", "circle.pdf", "deleted.pdf", "notes.txt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an index of ``docs`` and ``docs2``, whose files were then replaced."""
    folder = tmp_path_factory.mktemp("files")
    for place in ("docs", "docs2"):
        (folder / place).mkdir()
        for name in NAMES:
            content = b"The tower is old." if name.endswith(".txt") else PDF
            # Copies of a file are left out of an index.
            (folder / place / name).write_bytes(content if place == "docs" else make_pdf([f"Another {name[0]}."]))
    build_index([folder / "docs", folder / "docs2"], folder / "notes.index", IndexConfig(retriever="bm25"))
    (folder / "secret.pdf").write_bytes(PDF)
    (folder / "docs" / "secret.txt").write_text("secret")
    for name, target in (
        ("linked.pdf", folder / "secret.pdf"),
        ("renamed.pdf", folder / "docs" / "secret.txt"),
        ("circle.pdf", folder / "docs" / "circle.pdf"),
    ):
        (folder / "docs" / name).unlink()
        (folder / "docs" / name).symlink_to(target)
    (folder / "docs" / "deleted.pdf").unlink()
    return folder


def get_file(client: Any, path: Path) -> Any:
    return client.get(f"/files/{str(path).replace('/', '%2F')}")


def get_address(client: Any, path: Path) -> str | None:
    address: str | None = client.get(f"/documents/{str(path).replace('/', '%2F')}").json()["file"]
    return address


def open_files(folder: Path, **options: Any) -> Any:
    return open_client({"notes": Pipeline.load(folder / "notes.index")}, **options)


def test_a_pdf_is_sent_from_its_address(folder: Path) -> None:
    with open_files(folder, file_folders=(folder / "docs",)) as client:
        address = get_address(client, folder / "docs" / NAMES[0])
        assert address is not None and address.startswith("files/%2F") and "index=notes&path=" in address
        reply = client.get(f"/{address}")
    assert reply.status_code == 200 and reply.content == PDF
    assert reply.headers["content-type"] == "application/pdf" and reply.headers["content-length"] == str(len(PDF))
    assert reply.headers["content-disposition"] == "inline; filename*=UTF-8''%C3%A9%20manual.pdf"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", NAMES[1:])
def test_links_that_lead_outside_and_other_types_are_not_sent(folder: Path, name: str) -> None:
    with open_files(folder, file_folders=(folder / "docs",)) as client:
        assert get_address(client, folder / "docs" / name) is None
        reply = get_file(client, folder / "docs" / name)
    assert reply.status_code == 404 and b"secret" not in reply.content


def test_a_folder_with_a_longer_name_is_another_one(folder: Path) -> None:
    with open_files(folder, file_folders=(folder / "docs",)) as client:
        assert get_address(client, folder / "docs2" / NAMES[0]) is None
        assert get_file(client, folder / "docs2" / NAMES[0]).status_code == 404


def test_only_documents_of_the_index_are_sent(folder: Path) -> None:
    with open_files(folder, file_folders=(folder,)) as client:
        for path in (folder / "secret.pdf", folder / "docs" / ".." / "secret.pdf", Path("/etc/passwd")):
            assert get_file(client, path).status_code == 404
        path = folder / "docs" / NAMES[0]
        assert client.get(f"/files/{str(path).replace('/', '%2F')}?path={folder}/secret.pdf").status_code == 404


def test_without_folders_no_file_is_sent(folder: Path) -> None:
    with open_files(folder) as client:
        assert get_address(client, folder / "docs" / NAMES[0]) is None
        reply = get_file(client, folder / "docs" / NAMES[0])
    assert reply.status_code == 404 and "--files" in reply.json()["error"]["message"]


def test_files_need_the_token(folder: Path) -> None:
    with open_files(folder, file_folders=(folder / "docs",), token=TOKEN) as client:
        assert get_file(client, folder / "docs" / NAMES[0]).status_code == 401


def test_a_large_file_comes_in_parts(folder: Path) -> None:
    big = folder / "docs" / NAMES[0]
    shutil.copy(big, folder / "saved")
    big.write_bytes(PDF + b"%" * 1_000_000)
    try:
        with open_files(folder, file_folders=(folder / "docs",)) as client:
            assert get_file(client, big).content == PDF + b"%" * 1_000_000
    finally:
        shutil.move(folder / "saved", big)


def test_the_folder_must_exist(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "docs")
    assert resolve_folder(folder / "link") == (folder / "docs").resolve()
    with pytest.raises(BadInput, match=r"--files .*nothing: there is no such folder"):
        resolve_folder(folder / "nothing")
