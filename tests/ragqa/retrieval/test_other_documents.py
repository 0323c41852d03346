"""Search without some documents: what is dropped, and how deep it goes."""

from ragqa.retrieval.other_documents import search_other_documents
from ragqa.types import Hit, Passage, Question

PASSAGES = [Passage(n, "book" if n < 25 else f"note {n}", "", "text", "", 0, 4) for n in range(30)]


def test_a_search_goes_deeper_until_enough_hits_are_left() -> None:
    """The first 25 passages are of a book, so the first 20 hits hold nothing else; the other question needs no more."""
    depths: list[tuple[list[str], int]] = []

    def search(texts: list[str], k: int) -> list[list[Hit]]:
        depths.append((texts, k))
        return [[Hit(passage, -passage.id) for passage in PASSAGES[:k]] for _ in texts]

    def drop(hits: list[Hit], question: Question) -> list[Hit]:
        return [hit for hit in hits if hit.passage.document not in question.documents]

    questions = [Question("without", documents=("book",)), Question("with")]
    found = search_other_documents(search, questions, 2, drop)
    assert [[hit.passage.id for hit in hits] for hits in found] == [[25, 26], [0, 1]]
    assert depths == [(["without", "with"], 20), (["without"], 200)]
    # There are only five others: the search ends with the last passage.
    depths.clear()
    assert [hit.passage.id for hit in search_other_documents(search, questions[:1], 7, drop)[0]] == [25, 26, 27, 28, 29]
    assert [k for _, k in depths] == [70]
