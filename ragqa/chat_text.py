"""Format answers as chat messages in Markdown, and read such messages back.

A message has a text and the places of its citations. An example of a text:

    Ada Holm [1]

    Confidence 0.93.

    [1] **Skarvik Lighthouse**, skarvik.md, line 3: “The lighthouse was built in 1871 by the engineer Ada Holm.”

Text from documents and models is escaped, so that it cannot make links, images or HTML. Otherwise a document could add
an image whose URL contains the conversation, and a chat program that loads images would send it to a stranger.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ragqa.excerpts import MAX_SOURCES, choose_quote
from ragqa.follow_ups import MAX_CHARS, Turn
from ragqa.terminal import escape_controls, to_one_line
from ragqa.text import format_confidence
from ragqa.types import SENTENCE_ENDS, Answer, Source

NO_ANSWER = "These documents do not answer the question"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
_LINKING = re.compile(r"(?P<marker>\[\d+\](?P<target>\()?)|[\\\[\]<]")
"""Number of a source, such as ``[1]``, or a character that can be part of a link, an image or HTML."""
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>|])")
_MARKER = re.compile(r"(?: ?\[\d+\])+$")
_SOURCE = re.compile(r"^\[1\] \*\*(.*?)\*\*, ", re.MULTILINE)


@dataclass(frozen=True)
class Citation:
    """Source and place of a citation: characters ``start`` to ``end`` (exclusive) of the text."""

    start: int
    end: int
    source: Source


@dataclass(frozen=True)
class ChatMessage:
    """Chat message: an answer in Markdown, and the citations in order."""

    text: str
    citations: tuple[Citation, ...]


def format_message(answer: Answer) -> ChatMessage:
    """Return an answer as a chat message, with its confidence, sources and remarks.

    The message for a declined question has the reason, the best guess and the nearest passages instead. At most
    ``MAX_SOURCES`` sources are listed, or all sources of an answer with statements, which can cite any of them.
    """
    writer = _Writer()
    count = MAX_SOURCES if not answer.statements else len(answer.sources)
    sources = answer.sources[:count]
    if answer.text is None:
        writer.write(f"{NO_ANSWER}: {_escape(answer.reason or 'nothing was found')}.")
        if answer.alternatives:
            guess = answer.alternatives[0]
            writer.write(f"\nBest guess: {_escape(guess.text)} (confidence {format_confidence(guess.confidence)}).")
        if sources:
            writer.write("\n\nThe nearest passages:")
    elif answer.statements:
        writer.write_statements(answer.text, answer)
    else:
        writer.write(_escape_links(answer.text) + " " * bool(sources))
        writer.cite(sources, range(1, len(sources) + 1))
    if answer.text is not None:
        unsupported = "" if answer.supported else f"; unsupported: {_escape(answer.reason or 'no passage says so')}"
        writer.write(f"\n\nConfidence {format_confidence(answer.confidence)}{unsupported}.")
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
    def __init__(self) -> None:
        self.text = ""
        self.citations: list[Citation] = []

    def write(self, text: str) -> str:
        """Append a text, after a space where ``](`` would make a link; return the appended part."""
        added = " " * (self.text.endswith("]") and text.startswith("(")) + text
        self.text += added
        return added

    def cite(self, sources: Sequence[Source], numbers: Iterable[int]) -> None:
        for number in numbers:
            start = len(self.text)
            self.text += f"[{number}]"
            self.citations.append(Citation(start, len(self.text), sources[number - 1]))

    def write_statements(self, text: str, answer: Answer) -> None:
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
    """Chat message that is sent in pieces while a reader generates the answer."""

    def __init__(self) -> None:
        self._writer = _Writer()

    def add(self, piece: str) -> str:
        """Return the Markdown to send for a piece of an answer from ``Pipeline.stream``."""
        return self._writer.write(_escape_links(piece))

    def finish(self, answer: Answer) -> ChatMessage:
        """Return the text to send after the last piece, with the citations.

        If the answer's message does not begin with the sent pieces, for example because the question is declined, the
        whole message follows after an empty line. The places of the citations count from the first piece.
        """
        sent, message = self._writer.text, format_message(answer)
        if message.text.startswith(sent):
            return ChatMessage(message.text[len(sent) :], message.citations)
        shift = len(sent) + 2
        moved = (replace(each, start=each.start + shift, end=each.end + shift) for each in message.citations)
        return ChatMessage(f"\n\n{message.text}", tuple(moved))


def read_message(question: str, text: str) -> Turn:
    """Return a turn of a conversation from a question and the chat message that answered it.

    The first line of the message becomes the answer, unless it declines the question. The title of the turn is the
    title of the first source.

    Args:
        question: question of the turn.
        text: text of a message, by ``format_message`` or another program.
    """
    first_line = text.strip().partition("\n")[0][:MAX_CHARS]  # the time of _MARKER grows with the square of the length
    if first_line.startswith(NO_ANSWER):
        return Turn(question, None)
    title = _SOURCE.search(text)
    return Turn(question, _unescape(_MARKER.sub("", first_line)), _unescape(title[1]) if title else "")


def _format_source(source: Source, question: str) -> str:
    passage = source.hit.passage
    title = _escape(passage.title or passage.document.rpartition("/")[2])
    return f"**{title}**, {_escape(source.format_place())}: “{_escape(choose_quote(source, question))}”"


def _escape_links(text: str) -> str:
    """Escape links, images, HTML and control characters, but not numbers such as ``[1]``."""

    def escape(match: re.Match[str]) -> str:
        if match["target"]:
            return f"{match[0][:-1]} ("  # without the space, [1]( would begin a link
        return match["marker"] or f"\\{match[0]}"

    return _LINKING.sub(escape, escape_controls(text))


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", to_one_line(text))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
