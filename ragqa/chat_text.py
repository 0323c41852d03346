"""Answers as the text of a chat message, with the places of its citations.

    Ada Holm [1]

    Confidence 0.93.

    [1] **Skarvik Lighthouse**, skarvik.md, line 3: “The lighthouse was built in 1871 by the engineer Ada Holm.”

The text is Markdown. What comes from documents is escaped, so that it makes no links, images or HTML.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragqa.excerpts import choose_quote
from ragqa.follow_ups import Turn
from ragqa.terminal import escape_controls, to_one_line
from ragqa.types import SENTENCE_ENDS, Answer, Source

MAX_SOURCES = 3
"""Number of sources that a message cites."""
NO_ANSWER = "These documents do not answer the question"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>|])")
_MARKER = re.compile(r"(?: ?\[\d+\])+$")
_SOURCE = re.compile(r"^\[1\] \*\*(.*?)\*\*, ", re.MULTILINE)


@dataclass(frozen=True)
class Citation:
    """Citation in a message, at the characters ``start`` to ``end`` (exclusive) of its text."""

    start: int
    end: int
    source: Source


@dataclass(frozen=True)
class ChatMessage:
    """Answer as the text of a message."""

    text: str
    citations: tuple[Citation, ...]


def format_message(answer: Answer) -> ChatMessage:
    """Return an answer as a message; of a declined question, the reason and the nearest passages."""
    writer = _Writer()
    # Every source that a statement cites is listed.
    count = MAX_SOURCES if not answer.statements else len(answer.sources)
    sources = answer.sources[:count]
    if answer.text is None:
        writer.write(f"{NO_ANSWER}: {_escape(answer.reason or 'nothing was found')}.")
        if answer.alternatives:
            guess = answer.alternatives[0]
            writer.write(f"\nBest guess: {_escape(guess.text)} (confidence {guess.confidence:.2f}).")
        if sources:
            writer.write("\n\nThe nearest passages:")
    elif answer.statements:
        writer.write_statements(answer.text, answer)
    else:
        writer.write(_escape(answer.text) + " " * bool(sources))
        writer.cite(sources, range(1, len(sources) + 1))
    if answer.text is not None:
        unsupported = "" if answer.supported else f"; unsupported: {_escape(answer.reason or 'no passage says so')}"
        writer.write(f"\n\nConfidence {answer.confidence:.2f}{unsupported}.")
    for number, source in enumerate(sources, 1):
        writer.write("\n\n")
        if answer.text is None:
            writer.cite(sources, [number])
        else:
            writer.write(f"[{number}]")
        writer.write(f" {_format_source(source, answer.question)}")
    notes = {"Asked as": answer.asked, "Note": answer.note, "No answer from": ", ".join(answer.missing)}
    writer.write("".join(f"\n\n{name}: {_escape(note)}" for name, note in notes.items() if note))
    return ChatMessage(writer.text, tuple(writer.citations))


class _Writer:
    """Text that grows, with the places of its citations."""

    def __init__(self) -> None:
        self.text = ""
        self.citations: list[Citation] = []

    def write(self, text: str) -> None:
        self.text += text

    def cite(self, sources: Sequence[Source], numbers: Iterable[int]) -> None:
        """Write the numbers of some sources, from 1, in brackets."""
        for number in numbers:
            start = len(self.text)
            self.text += f"[{number}]"
            self.citations.append(Citation(start, len(self.text), sources[number - 1]))

    def write_statements(self, text: str, answer: Answer) -> None:
        """Write a text with the citations of its statements, as ``Answer.cited_text`` has them."""
        end = 0
        for statement in answer.statements:
            self.write(_escape_lines(text[end : statement.start]))
            body = statement.text.rstrip(SENTENCE_ENDS)
            self.write(_escape_lines(body) + " " * bool(statement.citations))
            self.cite(answer.sources, statement.citations)
            self.write(" (unsupported)" * (not statement.is_supported) + statement.text[len(body) :])
            end = statement.end
        self.write(_escape_lines(text[end:]))


def read_message(question: str, text: str) -> Turn:
    """Return the turn of a conversation that ended with a message, of ``format_message`` or of another program."""
    first_line = text.strip().partition("\n")[0]
    if first_line.startswith(NO_ANSWER):
        return Turn(question, None)
    title = _SOURCE.search(text)
    return Turn(question, _unescape(_MARKER.sub("", first_line)), _unescape(title[1]) if title else "")


def _format_source(source: Source, question: str) -> str:
    passage = source.hit.passage
    title = _escape(passage.title or passage.document.rpartition("/")[2])
    return f"**{title}**, {_escape(source.format_place())}: “{_escape(choose_quote(source, question))}”"


def _escape_lines(text: str) -> str:
    """Return a text without special characters of Markdown; its line ends and spaces stay."""
    return _SPECIAL.sub(r"\\\1", escape_controls(text))


def _escape(text: str) -> str:
    """Return a text in one line without special characters of Markdown."""
    return _SPECIAL.sub(r"\\\1", to_one_line(text))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
