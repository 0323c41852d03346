"""Search that leaves out documents, to make answerable questions unanswerable."""

from collections.abc import Callable, Sequence

from ragqa.types import Hit, Question

SEARCH_FACTOR = 10
"""Number of hits retrieved per returned hit, since some hits are dropped."""


def search_other_documents(
    search: Callable[[list[str], int], list[list[Hit]]],
    questions: Sequence[Question],
    k: int,
    drop: Callable[[list[Hit], Question], list[Hit]],
) -> list[list[Hit]]:
    """Return the best ``k`` hits of each question that ``drop`` does not remove, best first.

    If fewer than ``k`` hits remain, more hits are retrieved, up to all passages. Errors: as for ``search``.

    Args:
        search: function that returns at most k hits for each text, such as ``Retriever.search``.
        questions: questions to search for.
        k: maximum number of hits of a question.
        drop: function that removes the hits in documents to leave out, and returns the other hits of a question.
    """
    results: list[list[Hit]] = [[] for _ in questions]
    pending, depth = list(range(len(questions))), SEARCH_FACTOR * k
    while pending:
        found = search([questions[number].text for number in pending], depth)
        unfinished = []
        for number, hits in zip(pending, found, strict=True):
            results[number] = drop(hits, questions[number])[:k]
            if len(results[number]) < k and len(hits) >= depth:
                unfinished.append(number)
        pending, depth = unfinished, SEARCH_FACTOR * depth
    return results
