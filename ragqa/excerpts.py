"""Choose the part of a passage to show: around the answer or the words of the question."""

import re
from collections.abc import Sequence

from ragqa.terminal import to_one_line
from ragqa.text import FUNCTION_WORDS
from ragqa.types import Source

MAX_SOURCES = 3
"""Maximum number of sources that are shown for an answer without statements."""
SIDE = 160
"""Maximum number of characters of a passage that are shown on each side of the answer."""
_LONGEST_WORD = 30
"""Maximum number of characters by which a cut moves to the edge of a word; longer words are cut."""
_LONGEST_SEARCH = 20_000
"""Number of first characters of a passage that are searched for words of the question."""
_WORD = re.compile(r"\w+")

Range = tuple[int, int]
"""Start and end (exclusive) of a part of a text, in characters."""


def choose_quote(source: Source, question: str) -> str:
    """Return the part of a source's passage around its span, in one line.

    Without a span, the part shows words of ``question``. ``…`` stands for the text before and after the part.
    """
    text, span = source.hit.passage.text, source.span
    if span is None:
        window = choose_window(text, find_question_words(question, text))
    else:
        window = max(0, span.start - SIDE), min(len(text), span.end + SIDE)
    low, high = shrink_to_words(text, window)
    if span:
        low, high = min(low, span.start), max(high, span.end)
    return to_one_line(f"{'… ' if text[:low].strip() else ''}{text[low:high]}{' …' if text[high:].strip() else ''}")


def choose_window(text: str, ranges: Sequence[Range]) -> Range:
    """Return the part of a text that shows most of the given words.

    A word counts by its length, and only once if it is repeated.

    Args:
        text: text of a passage.
        ranges: places of the words, in order; if there are none, the part is the beginning of the text.

    Returns:
        Start and end (exclusive) of the part, which has at most 2 ``SIDE`` characters.
    """
    size = 2 * SIDE
    best, most = 0, 0
    for start, _ in ranges:
        first = max(0, min(start - SIDE // 4, len(text) - size))
        shown = {text[s:e].lower() for s, e in ranges if first <= s and e <= first + size}
        if sum(map(len, shown)) > most:
            best, most = first, sum(map(len, shown))
    return best, min(len(text), best + size)


def find_question_words(question: str, text: str) -> list[Range]:
    """Return the places of the question's words in a text, in order.

    Words with another ending are found, too, but not function words such as "who". Only the first 20,000 characters of
    the text are searched.
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


def shrink_to_words(text: str, window: Range) -> Range:
    """Shrink a window to whole words, without white space at its ends; long words stay cut."""
    low, high = window
    if low and (cut := re.compile(r"\S*\s").match(text, low - 1, low + _LONGEST_WORD)):
        low = cut.end()
    if high < len(text) and (cut := re.search(r"\s\S*$", text[high - _LONGEST_WORD : high + 1])):
        high -= len(cut[0]) - 1
    part = text[low:high]
    return low + len(part) - len(part.lstrip()), high - len(part) + len(part.rstrip())
