"""Parser of a language model's reply: its sentences and the passages that they cite."""

import re
from dataclasses import dataclass

from ragqa.matching.sentences import find_sentences

_NUMBERS = r"\d{1,4}(?:\s*(?:,|;|and|–|-)\s*\d{1,4})*"
_MARK = re.compile(rf"[^\S\n]*[\[【](?:passages?|sources?|documents?)?\s*#?({_NUMBERS})[\]】]", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*•–]\s+|\d{1,3}[.)]\s+|#+\s+|>\s+)?")
_THINKING = re.compile(r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_MAX_RANGE = 50
"""Maximum length of a range of citations, such as [1-50]; a longer range cites only its two ends."""


@dataclass(frozen=True)
class ParsedReply:
    """Text and sentences of a language model's reply."""

    text: str
    """Reply without citations, marks of bold text, and thinking (``<think>…</think>``)."""
    statements: tuple["CitedSentence", ...]


@dataclass(frozen=True)
class CitedSentence:
    """Sentence of a reply, with its citations."""

    start: int
    """Position of the first character in ``ParsedReply.text``."""
    text: str
    numbers: tuple[int, ...]
    """Numbers of the cited passages, as the model wrote them; such passages need not exist."""


def parse_reply(raw: str) -> ParsedReply:
    """Split a reply into sentences, each with the numbers of the passages that it cites.

    Citations, marks of bold text and thinking are removed from the text. A citation belongs to the sentence that
    contains or precedes it. If the reply begins with a citation, each one belongs to the sentence that contains or
    follows it. A sentence ends at the end of its line at the latest, and does not contain the bullet of the line.
    Sentences without letters and digits are left out.
    """
    raw = _THINKING.sub("", raw, count=1).replace("**", "").strip()
    is_leading = _MARK.match(raw) is not None
    text, marks = _take_out_marks(raw)
    spans = [
        (line + start, line + end)
        for line, line_end in _find_lines(text)
        for start, end, _ in find_sentences(text[line:line_end])
    ]
    cited: dict[int, list[int]] = {}
    for position, numbers in marks:
        owner = _find_owner(spans, position, is_leading=is_leading)
        cited.setdefault(owner, []).extend(numbers)
    sentences = (
        CitedSentence(start, text[start:end], tuple(dict.fromkeys(cited.get(number, ()))))
        for number, (start, end) in enumerate(spans)
    )
    return ParsedReply(text, tuple(sentence for sentence in sentences if any(c.isalnum() for c in sentence.text)))


def drop_open_mark(raw: str) -> str:
    """Return an incomplete reply up to an open bracket, which may become a citation."""
    start = max(raw.rfind("["), raw.rfind("【"))
    return raw[:start] if start > max(raw.rfind("]"), raw.rfind("】")) else raw


def _take_out_marks(raw: str) -> tuple[str, list[tuple[int, list[int]]]]:
    """Remove the citations from a text; return it, and the place and numbers of each citation."""
    parts, marks, end, length = [], [], 0, 0
    for match in _MARK.finditer(raw):
        parts.append(raw[end : match.start()])
        length += len(parts[-1])
        marks.append((length, _read_numbers(match[1])))
        end = match.end()
    text = "".join((*parts, raw[end:]))
    cut = len(text) - len(text.lstrip())
    return text.strip(), [(max(0, place - cut), numbers) for place, numbers in marks]


def _read_numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:\s*[–-]\s*(\d+))?", text):
        low, high = int(first), int(last or first)
        numbers += range(low, high + 1) if 0 <= high - low < _MAX_RANGE else [low, high]
    return numbers


def _find_lines(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each line with text, without bullet and trailing space."""
    lines, start = [], 0
    for line in text.splitlines(keepends=True):
        bullet = _BULLET.match(line)
        assert bullet is not None
        lines.append((start + bullet.end(), start + len(line.rstrip())))
        start += len(line)
    return [(start, end) for start, end in lines if start < end]


def _find_owner(spans: list[tuple[int, int]], position: int, *, is_leading: bool) -> int:
    if is_leading:
        after = [number for number, (_, end) in enumerate(spans) if end > position]
        return after[0] if after else len(spans) - 1
    before = [number for number, (start, _) in enumerate(spans) if start < position]
    return before[-1] if before else 0
