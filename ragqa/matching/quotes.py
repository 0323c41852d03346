"""Find a quotation in a text, or else the most similar part of the text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ragqa.errors import BadInput
from ragqa.matching.folded_text import FoldedText, fold_text, is_between_words
from ragqa.matching.word_alignment import Alignment, Word, align_words

MAX_QUOTE = 2_000
"""Maximum length of a quotation in characters."""
MAX_TEXT = 10_000_000
"""Maximum length of a text in characters; a check needs about 100 bytes of memory for each character."""
MAX_COUNT = 1_000
"""Maximum number of occurrences that are counted."""
MIN_SIMILARITY = 0.4
"""Minimum similarity of the part that is reported if the text lacks the quotation."""
_GRAM = 3
"""Length in characters of the n-grams by which candidates are found."""
_CANDIDATES = 4
"""Maximum number of places whose words are aligned with the quotation."""
_SHOWN = 30
"""Number of characters of equal words that are shown on each side of a difference."""
_LONGEST_DIFFERENCE = 1_000
"""Number of characters after which ``QuoteMatch.difference`` is cut."""
_LONGEST_WORD = 100
"""Maximum distance in characters at which the start or end of a cut word is searched."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|(?:(?![\u3040-\u30ff\u3400-\u9fff])\w)+|[^\w\s]")
"""Pattern of a word, a Chinese or Japanese character, or a punctuation mark."""

Match = Literal["exact", "typographic", "different", "none"]


@dataclass(frozen=True, slots=True)
class QuoteMatch:
    """Place of a quotation in a text, or of the most similar part."""

    match: Match
    """Kind of the match:

    - ``exact``: the text contains the quotation.
    - ``typographic``: the text contains it except for differences that ``fold_text`` removes, such as case and hyphens.
    - ``different``: the text contains only something similar.
    - ``none``: the text contains nothing similar.
    """
    start: int | None = None
    """Start, in characters, of the first such occurrence or of the most similar part; None for ``none``."""
    end: int | None = None
    """End (exclusive) of that occurrence or part, in characters; None for ``none``."""
    count: int = 0
    """Number of exact and typographic occurrences, at most ``MAX_COUNT``."""
    similarity: float = 0.0
    """Share of equal words in the quotation and the part, weighted by their characters, from 0 to 1."""
    difference: str | None = None
    """The part in one shortened line, with ``[-words of the quotation alone-]`` and ``{+words of the text alone+}``;
    None unless the match is ``different``."""

    @property
    def is_found(self) -> bool:
        """True if the match is ``exact`` or ``typographic``."""
        return self.match in ("exact", "typographic")


def find_quote(quote: str, text: str) -> QuoteMatch:
    """Find a quotation in a text, or else the most similar part of the text.

    A quotation consists of whole words: "art" is no quotation from "party". The time is proportional to the length of
    the text.

    Args:
        quote: quotation of at most ``MAX_QUOTE`` characters.
        text: text of at most ``MAX_TEXT`` characters.

    Returns:
        The first occurrence and the number of occurrences, or else the most similar part. If its similarity is below
        ``MIN_SIMILARITY``, ``match`` is ``none``.

    Raises:
        BadInput: the quotation has no letter or digit, or the quotation or the text is too long.
    """
    quote = quote.strip()
    if len(text) > MAX_TEXT:
        raise BadInput(f"the text has {len(text)} characters: quotations are checked in at most {MAX_TEXT}")
    if len(quote) > MAX_QUOTE:
        raise BadInput(f"the quotation has {len(quote)} characters: check at most {MAX_QUOTE} at once")
    folded_quote = fold_text(quote)
    if not any(character.isalnum() for character in folded_quote.text):
        raise BadInput("the quotation has no letters or digits: nothing can be checked")
    folded = fold_text(text)
    places = _find_all(folded_quote.text, folded.text)
    first = next(places, None)
    if first is None:
        return _find_nearest(quote, folded_quote, text, folded)
    count = 1 + sum(1 for _ in places)
    exact = next(_find_all(quote, text), None)
    if exact is not None:
        return QuoteMatch("exact", exact, exact + len(quote), count, 1.0)
    return QuoteMatch("typographic", *folded.locate(first, first + len(folded_quote.text)), count, 1.0)


def _find_all(part: str, text: str) -> Iterator[int]:
    """Yield, in order, the first ``MAX_COUNT`` indices where ``part`` occurs as whole words."""
    place, found = text.find(part), 0
    while place >= 0 and found < MAX_COUNT:
        if is_between_words(text, place) and is_between_words(text, place + len(part)):
            found += 1
            yield place
            place += len(part) - 1
        place = text.find(part, place + 1)


def _find_nearest(quote: str, folded_quote: FoldedText, text: str, folded: FoldedText) -> QuoteMatch:
    words = _split_words(folded_quote.text, 0, len(folded_quote.text))
    best: tuple[Alignment, list[Word]] | None = None
    size = len(folded_quote.text)
    for place in _find_candidates(folded_quote, folded):
        near = _split_words(folded.text, place - size // 2, place + size + size // 2)
        alignment = align_words(words, near)
        if best is None or alignment.cost < best[0].cost:
            best = alignment, near
    if best is None or best[0].similarity < MIN_SIMILARITY:
        return QuoteMatch("none")
    alignment, near = best
    start, end = folded.locate(near[alignment.first].start, near[alignment.last].end)
    difference = _format_difference(alignment, (quote, folded_quote, words), (text, folded, near))
    return QuoteMatch("different", start, end, 0, round(alignment.similarity, 4), difference)


def _split_words(text: str, start: int, end: int) -> list[Word]:
    """Return the words of a part of a text; words that its ends would cut are whole."""
    start = max(0, min(start, len(text) - 1))
    low = max(start - _LONGEST_WORD, text.rfind(" ", max(0, start - _LONGEST_WORD), start) + 1, 0)
    high = text.find(" ", end, end + _LONGEST_WORD)
    high = min(len(text), end + _LONGEST_WORD) if high < 0 else high
    return [Word(match[0], match.start(), match.end()) for match in _WORD.finditer(text, low, high)]


def _find_candidates(quote: FoldedText, text: FoldedText) -> list[int]:
    """Return up to ``_CANDIDATES`` places of a text that share most trigrams with a quotation.

    Rare trigrams of characters count more. The best place is first.
    """
    if len(text.codes) < _GRAM or len(quote.codes) < _GRAM:
        return []
    wanted = np.unique(_make_grams(quote.codes))
    grams = _make_grams(text.codes)
    numbers = np.minimum(np.searchsorted(wanted, grams), len(wanted) - 1)
    is_shared = wanted[numbers] == grams
    counts = np.bincount(numbers[is_shared], minlength=len(wanted))
    weights = np.log1p(len(grams) / np.maximum(counts, 1))
    scores = np.concatenate(([0.0], np.cumsum(np.where(is_shared, weights[numbers], 0.0))))
    size = min(len(quote.codes) - _GRAM + 1, len(grams))
    windows = scores[size:] - scores[:-size]
    places: list[int] = []
    while len(places) < _CANDIDATES and windows.max() > 0:
        place = int(windows.argmax())
        places.append(place)
        windows[max(0, place - size // 2) : place + size // 2 + 1] = 0
    return places


def _make_grams(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    wide = codes.astype(np.int64)  # three code points of 21 bits
    return (wide[:-2] << 42) | (wide[1:-1] << 21) | wide[2:]


_Side = tuple[str, FoldedText, list[Word]]


def _format_difference(alignment: Alignment, quote: _Side, text: _Side) -> str:
    """Format an alignment as ``QuoteMatch.difference``, with equal words only near differences."""
    parts = []
    for number, step in enumerate(alignment.steps):
        if step.is_equal:
            shown = _cut_words(text, step.text)
            is_first, is_last = number == 0, number == len(alignment.steps) - 1
            if len(shown) > (1 if is_first or is_last else 2) * (_SHOWN + 3):
                before = "" if is_first else shown[:_SHOWN].rpartition(" ")[0] + " "
                after = "" if is_last else " " + shown[-_SHOWN:].partition(" ")[2]
                shown = f"{before}…{after}"
            parts.append(shown)
        else:
            removed, added = _cut_words(quote, step.quote), _cut_words(text, step.text)
            parts.append(f"[-{removed}-]" * bool(removed) + f"{{+{added}+}}" * bool(added))
    line = " ".join(parts)
    return line if len(line) <= _LONGEST_DIFFERENCE else f"{line[:_LONGEST_DIFFERENCE]}…"


def _cut_words(side: _Side, words: range) -> str:
    """Return the words with the given numbers in their original form, in one line."""
    if not words:
        return ""
    original, folded, all_words = side
    start, end = folded.locate(all_words[words[0]].start, all_words[words[-1]].end)
    return " ".join(original[start:end].split())
