"""Answers as the text of a chat message, with the places of its citations.

    Ada Holm [1]

    Confidence 0.93.

    [1] **Skarvik Lighthouse**, skarvik.md, line 3: “The lighthouse was built in 1871 by the engineer Ada Holm.”

The text is Markdown. What comes from documents and models is escaped, so that it makes no links, images or HTML: some
programs load images of a message at once, and the address of an image can carry the conversation away.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ragqa.excerpts import choose_quote
from ragqa.follow_ups import Turn
from ragqa.terminal import escape_controls, to_one_line
from ragqa.types import SENTENCE_ENDS, Answer, Source

MAX_SOURCES = 3
"""Number of sources that a message cites."""
NO_ANSWER = "These documents do not answer the question"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
_LINKING = re.compile(r"(?P<marker>\[\d+\](?P<target>\()?)|[\\\[\]<]")
"""Characters that make links, images and HTML, but in the numbers of sources."""
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
        writer.write(_escape_links(answer.text) + " " * bool(sources))
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

    def write(self, text: str) -> str:
        """Append a text, which makes no link of a number before it; return what was appended."""
        added = " " * (self.text.endswith("]") and text.startswith("(")) + text
        self.text += added
        return added

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
            self.write(_escape_links(text[end : statement.start]))
            body = statement.text.rstrip(SENTENCE_ENDS)
            self.write(_escape_links(body) + " " * bool(statement.citations))
            self.cite(answer.sources, statement.citations)
            self.write(" (unsupported)" * (not statement.is_supported) + statement.text[len(body) :])
            end = statement.end
        self.write(_escape_links(text[end:]))


class StreamedMessage:
    """Message that is sent while a reader writes the answer."""

    def __init__(self) -> None:
        self._writer = _Writer()

    def add(self, piece: str) -> str:
        """Return the text to send for a piece of ``Pipeline.stream``."""
        return self._writer.write(_escape_links(piece))

    def finish(self, answer: Answer) -> ChatMessage:
        """Return the text to send after all pieces, with the citations of the whole text.

        If the answer is not what was written, such as a declined one, its message follows.
        """
        sent, message = self._writer.text, format_message(answer)
        if message.text.startswith(sent):
            return ChatMessage(message.text[len(sent) :], message.citations)
        shift = len(sent) + 2
        moved = (replace(each, start=each.start + shift, end=each.end + shift) for each in message.citations)
        return ChatMessage(f"\n\n{message.text}", tuple(moved))


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


def _escape_links(text: str) -> str:
    """Return a text of a model or document that makes no links, images or HTML; numbers of sources stay."""

    def escape(match: re.Match[str]) -> str:
        if match["target"]:
            return f"{match[0][:-1]} ("
        return match["marker"] or f"\\{match[0]}"

    return _LINKING.sub(escape, escape_controls(text))


def _escape(text: str) -> str:
    """Return a text in one line without special characters of Markdown."""
    return _SPECIAL.sub(r"\\\1", to_one_line(text))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
