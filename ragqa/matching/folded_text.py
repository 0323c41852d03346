"""Fold texts to a form without differences of typesetting, to compare quotations."""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int32]
Codes = npt.NDArray[np.uint32]
_DOUBLE_QUOTES, _SINGLE_QUOTES = "“”„‟«»″〝〞", "‘’‚‛‹›′`´"
_SPACE, _DASH = ord(" "), ord("-")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\0-\uffff]")
"""Pattern of a letter from a script without spaces between words, or of any character above U+FFFF."""


@dataclass(frozen=True)
class FoldedText:
    """Text in the form that ``fold_text`` describes, with the offsets of its characters."""

    text: str
    codes: Codes
    """[M] code points of ``text``."""
    offsets: Offsets
    """[M] for each character of ``text``, the index of its source character in the original text."""

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """Return the place in the original text from which a part of ``text`` comes.

        Args:
            start: index of the part's first character in ``text``.
            end: end (exclusive) of the part, greater than ``start``.

        Returns:
            Start and end (exclusive) in the original text, in characters.
        """
        return int(self.offsets[start]), int(self.offsets[end - 1]) + 1


def fold_text(text: str) -> FoldedText:
    """Return a text in the form in which quotations are compared.

    Case is folded, and compatibility forms such as ligatures are decomposed (NFKD). Letters keep their accents.
    Quotation marks and dashes get their ASCII forms, and invisible characters such as soft hyphens are removed. Runs of
    white space become one space, and white space at both ends is removed. A hyphen between letters is removed, with a
    space after it, because it can divide a word at a line end; beside a digit, only the space after the hyphen is
    removed. The time is proportional to the length of the text.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    distinct, numbers = _number_codes(codes)
    images = [_fold_character(chr(code)) for code in distinct.tolist()]
    lengths = np.fromiter(map(len, images), np.int32, len(images))
    flat = np.fromiter(map(ord, chain.from_iterable(images)), np.uint32)
    firsts = np.cumsum(lengths, dtype=np.int32) - lengths
    counts = lengths[numbers]
    offsets = np.repeat(np.arange(len(codes), dtype=np.int32), counts)
    within = np.arange(len(offsets), dtype=np.int32)
    within -= np.repeat(np.cumsum(counts, dtype=np.int32) - counts, counts)
    folded = flat[firsts[numbers][offsets] + within] if len(offsets) else flat
    is_space = folded == _SPACE
    folded, offsets = _select(folded, offsets, ~(is_space & np.concatenate(([True], is_space[:-1]))[: len(folded)]))
    folded, offsets = _select(folded, offsets, ~_find_hyphens(folded))
    if len(folded) and folded[-1] == _SPACE:
        folded, offsets = folded[:-1], offsets[:-1]
    return FoldedText(folded.tobytes().decode("utf-32-le", "surrogatepass"), folded, offsets)


def is_between_words(text: str, place: int) -> bool:
    """Return True if a word can begin or end before the character at index ``place``."""
    if not 0 < place < len(text):
        return True
    before, after = text[place - 1], text[place]
    return not (is_of_word(before) and is_of_word(after)) or bool(_UNSPACED.match(before) or _UNSPACED.match(after))


def is_of_word(character: str) -> bool:
    """Return True if a character is a letter, digit or combining accent."""
    return character.isalnum() or unicodedata.combining(character) > 0


def _select(codes: Codes, offsets: Offsets, keep: npt.NDArray[np.bool_]) -> tuple[Codes, Offsets]:
    return codes[keep], offsets[keep]


def _number_codes(codes: Codes) -> tuple[Codes, Offsets]:
    """Return the sorted distinct code points [N], and for each character its index in them [M]."""
    numbers = np.zeros(0x110000, np.int32)
    numbers[codes] = 1
    distinct = np.flatnonzero(numbers)
    numbers[distinct] = np.arange(len(distinct))
    return distinct.astype(np.uint32), numbers[codes]


def _find_hyphens(codes: Codes) -> npt.NDArray[np.bool_]:
    """Return a mask [M] of hyphens between letters, and of spaces after hyphens in words."""
    distinct, numbers = _number_codes(codes)
    characters = [chr(code) for code in distinct.tolist()]
    is_letter = np.array([c.isalpha() or unicodedata.combining(c) > 0 for c in characters], bool)[numbers]
    is_word = np.array([is_of_word(c) for c in characters], bool)[numbers]
    marked = np.zeros(len(codes), bool)
    inner = np.flatnonzero(codes == _DASH)
    inner = inner[(inner > 0) & (inner < len(codes) - 1)]
    has_space = codes[inner + 1] == _SPACE
    following = np.minimum(inner + 1 + has_space, len(codes) - 1)
    marked[inner[is_letter[inner - 1] & is_letter[following]]] = True
    marked[inner[has_space & is_word[inner - 1] & is_word[following]] + 1] = True
    return marked


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace() or category in ("Zs", "Zl", "Zp"):
        return " "
    if category == "Cf":  # soft hyphens, marks of direction, spaces without width
        return ""
    if category == "Pd" or character == "−":
        return "-"
    if character in _DOUBLE_QUOTES:
        return '"'
    if character in _SINGLE_QUOTES:
        return "'"
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
