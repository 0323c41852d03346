"""Data types of ragqa, as frozen dataclasses: passages, questions, hits and answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SENTENCE_ENDS = ".!?…:;"
"""Characters that can end a sentence; citations are placed before them."""
SEPARATORS = {"line": "\n", "row": "\n", "item": "\n", "page": "\f", "slide": "\f", "cell": "\f"}
"""Character that separates the units in a document's text, by the name of the unit (``Passage.unit``)."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Part of a document that is indexed, retrieved and read as one text.

    ``text`` has the characters ``start`` to ``end`` (exclusive) of the document's text.
    """

    id: int
    """Row number in the passage store."""
    document: str
    """Id of the document: the ``id`` of its record, or else its path, with a number if the file has several records."""
    title: str
    text: str
    path: str
    """Path of the file, or of the member of an archive, that contains the document."""
    start: int
    end: int
    headings: tuple[str, ...] = ()
    """Headings above the passage in the document, from the outermost to the nearest."""
    unit: str = ""
    """Unit in which the place of the passage is counted, for example ``page``: a key of ``SEPARATORS``, or empty."""
    number: int = 0
    """Number of the unit in which the passage begins, from 1; 0 if unknown."""
    sheet: str = ""
    """Name of the sheet of a spreadsheet; empty for other files."""
    tags: tuple[str, ...] = ()
    """Tags of the document."""
    date: str = ""
    """Date in the document, YYYY-MM-DD, or else the date of its file's last change; empty if unknown."""

    @property
    def context(self) -> str:
        """Title and headings in one line, which retrievers index and readers read before the text."""
        return " › ".join(part for part in (self.title, *self.headings) if part)

    @property
    def titled_text(self) -> str:
        """Text to index: a line with title and headings, if there are any, followed by the text."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    def find_number(self, offset: int) -> int:
        """Return the number of the unit (line, page, …) that contains a character of the text.

        Args:
            offset: place of the character in ``text``.

        Returns:
            The number, from 1; 0 if it is unknown.
        """
        separator = SEPARATORS.get(self.unit)
        return self.number + self.text.count(separator, 0, offset) if separator and self.number else 0


@dataclass(frozen=True, slots=True)
class Question:
    """Question with its gold answers and gold passages, if they are known."""

    text: str
    answers: tuple[str, ...] = ()
    """Gold answers, any of which is right; empty for an unanswerable question."""
    id: str = ""
    """Id in its question file; empty if the question is not from a file."""
    documents: tuple[str, ...] = ()
    """Ids, or ends of the paths, of the gold documents."""
    passages: tuple[str, ...] = ()
    """Texts of the gold passages."""
    titles: tuple[str, ...] = field(default=(), compare=False)
    """Titles of the gold passages, empty if unknown; comparisons of questions ignore them."""


@dataclass(frozen=True, slots=True)
class Hit:
    """Retrieved passage and its score; scores of different searches are not comparable."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``start`` to ``end`` (exclusive) of a passage's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """Passage that supports an answer, or one of the nearest passages of a declined question."""

    hit: Hit
    span: Span | None
    """Place of the answer in the passage or, for a language model, of the sentence that supports a statement; None if
    the passage has neither, and for a declined question."""
    weight: float
    """Share of the support, from 0 to 1.

    - Extracted answer: share of the probability of its spans; the weights of its sources have the sum 1.
    - Generated answer: posterior probability p(z|x,y) of the passage z for the question x and the answer y.
    - Answer of a language model: share of the answer's citations.
    - Declined question: 0.
    """

    @property
    def number(self) -> int:
        """Number of the unit (line, page, …) in which the source begins; 0 if unknown.

        The source begins where its span begins or, without a span, where its passage begins.
        """
        return self.hit.passage.find_number(self.span.start if self.span else 0)

    def format_place(self, path: str | None = None) -> str:
        """Return the place of the source in its file, such as ``dishwasher.pdf, page 2 › Faults``.

        Args:
            path: name of the file in the result; by default the last part of its path.
        """
        passage = self.hit.passage
        parts = [passage.path.rpartition("/")[2] if path is None else path]
        if record := self._format_record():
            parts.append(record)
        if passage.sheet:
            parts.append(f"sheet {passage.sheet}")
        if self.number:
            parts.append(f"{passage.unit} {self.number}")
        headings = (heading for heading in passage.headings if heading != passage.sheet)  # it is named already
        return " › ".join((", ".join(parts), *headings))

    def _format_record(self) -> str:
        """Return the name of the document in a file of many documents; empty if it is redundant."""
        passage = self.hit.passage
        own = passage.document.removeprefix(passage.path)  # a record without an id has the id PATH:NUMBER
        if not own:
            return ""
        if own == passage.document or not own[1:].isdecimal():
            return f"document {passage.document}"
        if passage.unit == "row":  # a part of a long table, whose place names the row already
            return ""
        return f"{'mail' if own[0] == '#' else 'record'} {own[1:]}"

    def to_dict(self) -> dict[str, Any]:
        """Return the source as a dictionary of JSON values.

        ``place`` is the result of ``format_place``. ``start``, ``end``, ``answer_start`` and ``answer_end`` are offsets
        in the document, in characters. Each key of ``SEPARATORS`` has a value: the source's ``number`` for the unit of
        the passage, and None for other units and for an unknown number.
        """
        passage, span = self.hit.passage, self.span
        number = self.number or None
        return {
            "title": passage.title,
            "headings": list(passage.headings),
            "path": passage.path,
            "place": self.format_place(),
            **{unit: number if unit == passage.unit else None for unit in SEPARATORS},
            "sheet": passage.sheet or None,
            "start": passage.start,
            "end": passage.end,
            "text": passage.text,
            "document": passage.document,
            "answer_start": passage.start + span.start if span else None,
            "answer_end": passage.start + span.end if span else None,
            "weight": round(self.weight, 4),
        }


@dataclass(frozen=True, slots=True)
class Alternative:
    """Other answer to the same question, with its confidence from 0 to 1 and its sources."""

    text: str
    confidence: float
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """Sentence of an answer by a language model, checked against the passages that it cites."""

    text: str
    """Sentence without its citations: characters ``start`` to ``end`` (exclusive) of the answer's text."""
    start: int
    citations: tuple[int, ...] = ()
    """Numbers of the cited sources, from 1 in the order of ``Answer.sources``."""
    is_supported: bool = True
    """True if the cited passages say what the sentence says, as far as ragqa can check."""
    reason: str | None = None
    """Short reason why the sentence is unsupported; None for a supported sentence."""

    @property
    def end(self) -> int:
        """End (exclusive) of the sentence in the answer's text, in characters."""
        return self.start + len(self.text)

    @property
    def cited_text(self) -> str:
        """Sentence with citations and a mark if unsupported: ``It was lit in 1871 [1][2].``."""
        body = self.text.rstrip(SENTENCE_ENDS)
        numbers = "".join(f"[{number}]" for number in self.citations)
        marks = " ".join(filter(None, (numbers, "" if self.is_supported else "(unsupported)")))
        return f"{body} {marks}{self.text[len(body) :]}" if marks else self.text

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as a dictionary of JSON values."""
        return {
            "text": self.text,
            "start": self.start,
            "end": self.end,
            "citations": list(self.citations),
            "supported": self.is_supported,
            "reason": self.reason,
        }


def cite_statements(text: str, statements: Sequence[Statement]) -> str:
    """Return a text with its statements replaced by their ``cited_text``.

    Args:
        text: text of an answer.
        statements: statements of the answer, in the order of the text.
    """
    parts, end = [], 0
    for statement in statements:
        parts += [text[end : statement.start], statement.cited_text]
        end = statement.end
    return "".join((*parts, text[end:]))


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one question."""

    question: str
    text: str | None
    """Text of the answer; None if the question is declined."""
    score: float
    """Score by the reader, higher for a better answer; scores of different readers are not comparable."""
    confidence: float
    """Estimated probability, from 0 to 1, that the answer, or the best guess for a declined question, is right."""
    sources: tuple[Source, ...] = ()
    """Passages that support the answer; the nearest passages if the question is declined."""
    alternatives: tuple[Alternative, ...] = ()
    """Other answers, best first; if the question is declined, the first one, if any, is the best guess."""
    missing: tuple[str, ...] = ()
    """Names of the shards of a served index that did not respond; they can hold a better answer."""
    supported: bool | None = True
    """True if all statements are supported or, without statements, if a passage that was read contains the answer; None
    if the question is declined."""
    reason: str | None = None
    """Short reason why the question is declined or the answer is unsupported."""
    asked: str | None = None
    """Question as it was searched and read, if its spelling was corrected or it was made to stand alone; else None."""
    note: str | None = None
    """Remark for the user, for example that a long question was cut."""
    statements: tuple[Statement, ...] = ()
    """Sentences of an answer by a language model, in order; empty for other answers."""

    @property
    def cited_text(self) -> str | None:
        """Text of the answer with the ``cited_text`` of its statements; None if declined."""
        if self.text is None:
            return None
        return cite_statements(self.text, self.statements)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dictionary of JSON values, which ``ragqa ask --json`` prints.

        For a declined question, ``answer``, ``supported`` and each source's ``answer_start`` and ``answer_end`` are
        None. Confidences and weights are rounded to four decimals.
        """
        return {
            "question": self.question,
            "answer": self.text,
            "confidence": round(self.confidence, 4),
            "supported": self.supported,
            "reason": self.reason,
            "note": self.note,
            "asked": self.asked,
            "sources": [source.to_dict() for source in self.sources],
            "alternatives": [
                {"answer": other.text, "confidence": round(other.confidence, 4)} for other in self.alternatives
            ],
            "missing": list(self.missing),
            "statements": [statement.to_dict() for statement in self.statements],
        }
