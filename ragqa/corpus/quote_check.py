"""Check quotations from the documents of an index."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragqa.corpus.document_list import DocumentList, IndexedDocument
from ragqa.matching.quotes import QuoteMatch, find_quote
from ragqa.types import SEPARATORS, Hit, Passage, Source, Span


@dataclass(frozen=True, slots=True)
class QuoteCheck:
    """Result of checking a quotation against a document."""

    document: IndexedDocument
    match: QuoteMatch
    """Match of the quotation, with offsets in the document's text."""
    text: str | None
    """Text of the document at the match; None if there is no match."""
    source: Source | None
    """Passage in which the match begins, and the span of the match in the passage; None if there is no match."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of JSON values, with the place as in ``Source.to_dict``."""
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
        names = ("place", "headings", *SEPARATORS, "sheet")
        return {**row, **{name: place.get(name) for name in names}}


def check_quote(documents: DocumentList, document: IndexedDocument, quote: str) -> QuoteCheck:
    """Return the place of a quotation in a document, or else the document's most similar part.

    Titles and headings are not searched, because an index stores them apart from the text.

    Args:
        documents: documents of the index.
        document: document to search, one of ``documents``.
        quote: quotation, as for ``find_quote``.

    Raises:
        BadInput: as for ``find_quote``.
        DamagedArtefact: a file of the passages is damaged.
    """
    passages = documents.read_passages(document)
    text, first = join_passages(passages), passages[0].start
    match = find_quote(quote, text)
    if match.start is None or match.end is None:
        return QuoteCheck(document, match, None, None)
    start, end = first + match.start, first + match.end
    passage = next(passage for passage in passages if start < passage.end)
    span = Span(start - passage.start, min(end, passage.end) - passage.start)
    source = Source(Hit(passage, 0.0), span, 1.0)
    return QuoteCheck(document, replace(match, start=start, end=end), text[match.start : match.end], source)


def join_passages(passages: Sequence[Passage]) -> str:
    """Return the text of a document from the first passage on.

    An index does not store the characters between passages; each becomes a line break.

    Args:
        passages: passages of the document in order, at least one.
    """
    parts, end = [], passages[0].start
    for passage in passages:
        parts += ["\n" * (passage.start - end), passage.text[max(0, end - passage.start) :]]
        end = max(end, passage.end)
    return "".join(parts)
