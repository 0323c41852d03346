"""Check of quotations from the documents of an index."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragqa.corpus.documents import DocumentList, IndexedDocument
from ragqa.matching.quotes import QuoteMatch, find_quote
from ragqa.types import Hit, Passage, Source, Span


@dataclass(frozen=True, slots=True)
class QuoteCheck:
    """Result of the check of a quotation from a document."""

    document: IndexedDocument
    match: QuoteMatch
    """The match; its offsets are characters of the document."""
    text: str | None
    """Words of the document at the place."""
    source: Source | None
    """Passage in which the place begins, with the span in it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON values; places have the keys of a source of an answer."""
        match = self.match
        row: dict[str, Any] = {
            "found": match.is_found,
            "match": match.match,
            "document": self.document.id,
            "path": self.document.path,
            "title": self.document.title,
            "start": match.start,
            "end": match.end,
            "text": self.text,
            "count": match.count,
            "similarity": match.similarity,
            "difference": match.difference,
        }
        place = self.source.to_dict() if self.source else {}
        names = ("place", "headings", "line", "row", "page", "slide", "cell", "sheet")
        return {**row, **{name: place.get(name) for name in names}}


def check_quote(documents: DocumentList, document: IndexedDocument, quote: str) -> QuoteCheck:
    """Find a quotation in a document of an index, or else the nearest words.

    Titles and headings are not part of the text that an index stores.

    Args:
        documents: documents of the index.
        document: one of them.
        quote: the quotation.

    Raises:
        BadInput: the quotation has no letter or digit, or one of both is too long.
    """
    passages = documents.read_passages(document)
    text, first = join_passages(passages), passages[0].start
    match = find_quote(quote, text)
    if match.start is None or match.end is None:
        return QuoteCheck(document, match, None, None)
    start, end = first + match.start, first + match.end
    passage = next(passage for passage in passages if start < passage.end)
    span = Span(start - passage.start, min(end, passage.end) - passage.start)
    moved = QuoteMatch(match.match, start, end, match.count, match.similarity, match.difference)
    return QuoteCheck(document, moved, text[match.start : match.end], Source(Hit(passage, 0.0), span, 1.0))


def join_passages(passages: Sequence[Passage]) -> str:
    """Return the text of a document from its first passage on, with line breaks for characters between passages."""
    parts, end = [], passages[0].start
    for passage in passages:
        parts += ["\n" * (passage.start - end), passage.text[max(0, end - passage.start) :]]
        end = max(end, passage.end)
    return "".join(parts)
