"""Answers as the text of a chat message, with the places of its citations.

    Ada Holm [1]

    Confidence 0.93.

    [1] **Skarvik Lighthouse**, skarvik.md, line 3: “The lighthouse was built in 1871 by the engineer Ada Holm.”

The text is Markdown. What comes from documents is escaped, so that it makes no links, images or HTML.
"""

import re
from dataclasses import dataclass

from ragqa.excerpts import choose_quote
from ragqa.follow_ups import Turn
from ragqa.terminal import to_one_line
from ragqa.types import Answer, Source

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
    sources, citations = answer.sources[:MAX_SOURCES], list[Citation]()
    if answer.text is None:
        lines = [f"{NO_ANSWER}: {_escape(answer.reason or 'nothing was found')}."]
        if answer.alternatives:
            guess = answer.alternatives[0]
            lines += ["", f"Best guess: {_escape(guess.text)} (confidence {guess.confidence:.2f})."]
        if sources:
            lines += ["", "The nearest passages:"]
        text = "\n".join(lines)
    else:
        text = _escape(answer.text)
        for number, source in enumerate(sources, 1):
            start = len(text) + (number == 1)
            text += f"{' ' * (number == 1)}[{number}]"
            citations.append(Citation(start, len(text), source))
        unsupported = "" if answer.supported else "; no passage supports this answer"
        text += f"\n\nConfidence {answer.confidence:.2f}{unsupported}."
    for number, source in enumerate(sources, 1):
        start = len(text) + 2
        text += f"\n\n[{number}] {_format_source(source, answer.question)}"
        if answer.text is None:
            citations.append(Citation(start, len(text), source))
    notes = [f"Asked as: {_escape(answer.asked)}"] if answer.asked else []
    notes += [f"Note: {_escape(answer.note)}."] if answer.note else []
    notes += [f"Parts of the index did not answer: {_escape(', '.join(answer.missing))}."] if answer.missing else []
    return ChatMessage("\n\n".join((text, *notes)), tuple(citations))


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


def _escape(text: str) -> str:
    """Return a text in one line without special characters of Markdown."""
    return _SPECIAL.sub(r"\\\1", to_one_line(text))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
