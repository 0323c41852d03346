"""Quotations are checked in the documents of an index, which is a list of passages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ragqa.corpus.document_list import DocumentList, format_reference
from ragqa.corpus.quote_check import check_quote, join_passages
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.retrieval.live import open_retriever
from ragqa.types import SEPARATORS

PAGES = "# Tower\n\nThe tower was built in 1871.\n\n## Faults\n\nIts lamp failed twice,\nas the keeper wrote.\n"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> DocumentList:
    folder = tmp_path_factory.mktemp("quotes")
    (folder / "tower.md").write_text(PAGES)
    (folder / "long.txt").write_text("\n".join(f"Line {n} says so." for n in range(1, 201)))
    for name in ("a.tsv", "b.tsv"):
        (folder / name).write_text(f"id\ttext\ttitle\n1\tThe file is {name[0]}\tFile\n")
    build_index([folder], folder / "i.index", IndexConfig(retriever="bm25"))
    return DocumentList(open_retriever(folder / "i.index").current().passages)


@pytest.fixture
def find(documents: DocumentList) -> Callable[[str], str]:
    ids = {document.path.rpartition("/")[2]: document for document in documents.read(0, 10)}
    return lambda name: ids[name].path


def test_a_quotation_has_its_place_in_the_file(documents: DocumentList, find: Callable[[str], str]) -> None:
    document, _ = documents.find_reference(find("tower.md"))
    row = check_quote(documents, document, "its lamp failed twice, as the keeper wrote").to_dict()
    assert (row["found"], row["match"], row["count"], row["line"]) == (True, "typographic", 1, 7)
    assert row["text"] == PAGES[row["start"] : row["end"]] == "Its lamp failed twice,\nas the keeper wrote"
    assert row["place"] == "tower.md, line 7 › Faults" and row["headings"] == ["Faults"]
    assert set(SEPARATORS) | {"sheet"} <= set(row)


def test_a_quotation_can_go_over_passages(documents: DocumentList, find: Callable[[str], str]) -> None:
    document, _ = documents.find_reference(find("long.txt"))
    passages = documents.read_passages(document)
    text = Path(document.path).read_text()
    assert len(passages) > 2 and join_passages(passages) == text
    end = passages[0].end
    quote = text[end - 12 : end + 12].strip().partition(" ")[2].rpartition(" ")[0]
    row = check_quote(documents, document, quote).to_dict()
    assert row["found"] and row["start"] < end < row["end"] and row["line"] == passages[0].text.count("\n") + 1


def test_the_nearest_words_have_a_place_and_others_have_none(
    documents: DocumentList, find: Callable[[str], str]
) -> None:
    document, _ = documents.find_reference(find("tower.md"))
    row = check_quote(documents, document, "The tower was built in 1872").to_dict()
    assert (row["found"], row["line"], row["difference"]) == (False, 3, "The tower was built in [-1872-]{+1871+}")
    row = check_quote(documents, document, "Nobody mentions elephants").to_dict()
    assert (row["match"], row["start"], row["text"], row["place"], row["line"]) == ("none", None, None, None, None)


def test_references(documents: DocumentList, find: Callable[[str], str]) -> None:
    last = documents.read_passages(documents.find_reference(find("long.txt"))[0])[-1]
    document, start = documents.find_reference(format_reference(last))
    assert (document.path, start) == (find("long.txt"), last.start) and start > 0
    for name in ("a.tsv", "b.tsv"):
        document, start = documents.find_reference(f"{find(name)}::1#0")
        assert (document.id, document.path, start) == ("1", find(name), 0)
        assert format_reference(documents.read_passages(document)[0]) == f"{find(name)}::1#0"
    with pytest.raises(BadInput, match="2 documents have the id '1': name one as PATH::ID"):
        documents.find_reference("1")
    for unknown in ("nothing.md", "#3", "", f"{find('a.tsv')}::2#0"):
        with pytest.raises(BadInput, match="there is no document"):
            documents.find_reference(unknown)
