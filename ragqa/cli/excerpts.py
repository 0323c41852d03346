"""Excerpts of passages for a terminal: chosen around a span, cut at words, and wrapped."""

import re
import shutil
import textwrap
from collections.abc import Callable, Sequence

from ragqa.terminal import to_one_line
from ragqa.text import FUNCTION_WORDS

SIDE = 160
"""Number of characters of a passage shown on each side of the answer."""
INDENT = "    "
_LONGEST_WORD = 30
"""Number of characters in which to look for the end of a word; text without spaces is cut inside."""
_LONGEST_SEARCH = 20_000
"""Number of characters of a passage in which to look for the words of the question."""
_WORD = re.compile(r"\w+")

Range = tuple[int, int]
"""First and last character (exclusive) of a text."""


def wrap(text: str, indent: str = "") -> str:
    """Wrap one line at the width of the terminal, 80 without a terminal; lines after the first are indented.

    Only spaces become line ends and words stay whole, so positions in the text do not change but for the indent.
    """
    width = max(20, shutil.get_terminal_size((80, 24)).columns - len(indent))
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return f"\n{indent}".join(lines)


def render_excerpt(text: str, window: Range, marked: Sequence[Range], mark: Callable[[str], str]) -> str:
    """Return a part of a text with marks, wrapped and indented.

    Args:
        text: text of a passage.
        window: part to show; it becomes smaller until it begins and ends at words.
        marked: parts to mark, in order; those outside of the window are left out.
        mark: function that marks a text.
    """
    marked = [part for part in marked if window[0] <= part[0] and part[1] <= window[1]]
    low, high = _shrink_to_words(text, window)
    if marked:
        low, high = min(low, marked[0][0]), max(high, marked[-1][1])
    line, position, ranges = "… " if text[:low].strip() else "", low, []
    for start, end in marked:
        line += _to_one_line_with_ends(text[position:start])
        ranges.append((len(line), len(line) + len(to_one_line(text[start:end]))))
        line += to_one_line(text[start:end])
        position = end
    line += _to_one_line_with_ends(text[position:high])
    # Marks are made after wrapping: the styles of a terminal have no width, and a mark of several words may be broken.
    wrapped = wrap(line + (" …" if text[high:].strip() else ""), INDENT).replace(f"\n{INDENT}", "\n")
    for start, end in reversed(ranges):
        wrapped = wrapped[:start] + mark(wrapped[start:end]) + wrapped[end:]
    return textwrap.indent(wrapped, INDENT)


def choose_window(text: str, ranges: Sequence[Range]) -> Range:
    """Return the part of a text that shows the most different words at ``ranges``; else its beginning."""
    size = 2 * SIDE
    best, most = 0, 0
    for start, _ in ranges:
        first = max(0, min(start - SIDE // 4, len(text) - size))
        shown = {text[s:e].lower() for s, e in ranges if first <= s and e <= first + size}
        if sum(map(len, shown)) > most:
            best, most = first, sum(map(len, shown))
    return best, min(len(text), best + size)


def find_question_words(question: str, text: str) -> list[Range]:
    """Return the words of a text that are words of the question, also with another ending.

    Words without meaning of their own, such as "who" and "the", are left out.
    """
    asked = {word.lower() for word in _WORD.findall(question)} - FUNCTION_WORDS
    return [
        word.span()
        for word in _WORD.finditer(text, 0, _LONGEST_SEARCH)
        if any(_is_same_word(word[0].lower(), other) for other in asked)
    ]


def _is_same_word(word: str, other: str) -> bool:
    shared = max(4, len(word) - 3, len(other) - 3)
    return word == other or (word.isalpha() and word[:shared] == other[:shared])


def _shrink_to_words(text: str, window: Range) -> Range:
    """Return a part of a window that begins and ends at words, and not with spaces."""
    low, high = window
    if low and (cut := re.compile(r"\S*\s").match(text, low - 1, low + _LONGEST_WORD)):
        low = cut.end()
    if high < len(text) and (cut := re.search(r"\s\S*$", text[high - _LONGEST_WORD : high + 1])):
        high -= len(cut[0]) - 1
    part = text[low:high]
    return low + len(part) - len(part.lstrip()), high - len(part) + len(part.rstrip())


def _to_one_line_with_ends(text: str) -> str:
    """Return ``to_one_line`` of the text, but keep a space at its start and end."""
    line = to_one_line(text)
    return f"{' ' * text[:1].isspace()}{line}{' ' * text[-1:].isspace()}" if line else " " * bool(text)
