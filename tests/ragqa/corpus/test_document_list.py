"""The list of the documents of a store, also after deletions."""

from pathlib import Path

import numpy as np
import pytest

from ragqa.corpus.document_list import DocumentList, IndexedDocument
from ragqa.corpus.store import DELETED, PassageStore, PassageWriter
from ragqa.types import Passage

ROWS = [  # id, path
    ("a", "1"),
    ("a", "1"),
    ("a", "2"),  # the same id in another file
    ("b", "2"),
    ("b", "2"),
    ("b", "2"),
    ("c", "3"),
]


@pytest.fixture(params=[1, 2, 50])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Passages in files of a few rows, so that documents go on in the next file."""
    with PassageWriter(tmp_path, rows_per_file=request.param) as writer:
        for row, (identifier, path) in enumerate(ROWS):
            writer.add_passage(
                Passage(0, identifier, f"Title {identifier}", f"text {row}", path, 10 * row, 10 * row + 6, tags=("t",))
            )
    return tmp_path


def test_documents_are_listed_with_the_number_of_their_passages(folder: Path) -> None:
    listed = DocumentList(PassageStore.open(folder))
    assert len(listed) == 4
    assert [(d.id, d.path, d.passages, d.first_row) for d in listed.read(0, 10)] == [
        ("a", "1", 2, 0),
        ("a", "2", 1, 2),
        ("b", "2", 3, 3),
        ("c", "3", 1, 6),
    ]
    assert listed.read(3, 1) == [IndexedDocument("c", "3", "Title c", ("t",), "", 1, 6)]
    assert listed.read(4, 10) == []


def test_documents_are_found_by_id_in_all_their_files(folder: Path) -> None:
    listed = DocumentList(PassageStore.open(folder))
    assert [d.path for d in listed.find("a")] == ["1", "2"]
    assert listed.find("nothing") == []
    assert listed.find_passage_rows(listed.find("b")[0]).tolist() == [3, 4, 5]
    assert listed.find_passage_rows(listed.find("c")[0]).tolist() == [6]


def test_deleted_passages_are_not_listed(folder: Path) -> None:
    np.save(folder / DELETED, np.array([0, 2, 4, 6]))
    listed = DocumentList(PassageStore.open(folder))
    assert [(d.id, d.path, d.passages, d.first_row) for d in listed.read(0, 10)] == [("a", "1", 1, 1), ("b", "2", 2, 3)]
    assert listed.find_passage_rows(listed.find("b")[0]).tolist() == [3, 5]
    assert [d.path for d in listed.find("a")] == ["1"] and listed.find("c") == []


def test_an_empty_store_has_no_documents(tmp_path: Path) -> None:
    assert len(DocumentList(PassageStore.open(tmp_path))) == 0
