"""Splitting of texts into blocks, which become passages: by words, sentences or wordpieces."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

from ragqa.errors import BadInput

Splitter = Callable[[str, int], Iterator[tuple[int, int]]]
"""Function of a text and the first character to split; yields sorted, disjoint spans without white space around."""

DEFAULT_SIZES = {"words": 100, "sentences": 100, "wordpieces": 288}
"""Default size of a block, in words or wordpieces, for each kind of splitter."""
MAX_SIZE = 1_000_000
"""Largest size of a block."""

_WORD = re.compile(r"\S+")
_WORDS_PER_CALL = 1000
"""Words passed to a tokenizer at a time, so that a long text needs little memory."""


class WordpieceOffsets(Protocol):
    """Wordpieces of a text, with the attribute that a splitter needs."""

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """First and last (exclusive) character of each piece, in order."""
        ...


class WordpieceTokenizer(Protocol):
    """Tokenizer that a splitter can use, such as ``ragqa.runtime.tokens.TextTokenizer``."""

    def tokenize(self, text: str) -> WordpieceOffsets:
        """Return the wordpieces of ``text``."""
        ...


def make_splitter(kind: str, size: int | None = None, tokenizer: WordpieceTokenizer | None = None) -> Splitter:
    """Return a splitter by its name.

    Args:
        kind: one of DEFAULT_SIZES.
        size: largest block in words, or wordpieces for that kind.
        tokenizer: tokenizer of the encoder; needed for wordpieces.

    Raises:
        BadInput: the kind is unknown, the size is out of range, or the tokenizer is missing.
    """
    if kind not in DEFAULT_SIZES:
        raise BadInput(f"unknown unit of blocks {kind!r}: choose one of {', '.join(DEFAULT_SIZES)}")
    size = DEFAULT_SIZES[kind] if size is None else size
    if not 1 <= size <= MAX_SIZE:
        raise BadInput(f"the size of a block is {size}: it must be at {'least 1' if size < 1 else f'most {MAX_SIZE}'}")
    if kind == "words":
        return make_word_splitter(size)
    if kind == "sentences":
        return make_sentence_splitter(size)
    if tokenizer is None:
        raise BadInput("blocks of wordpieces need the tokenizer of an encoder")
    return make_wordpiece_splitter(size, tokenizer=tokenizer)


def make_word_splitter(size: int = 100) -> Splitter:
    """Return a splitter into blocks of ``size`` words; the last is shorter (Karpukhin et al. 2020, section 4.1)."""
    find = _match_words(size).finditer

    def split(text: str, first: int) -> Iterator[tuple[int, int]]:
        return (match.span() for match in find(text, first))

    return split


def make_sentence_splitter(size: int = 100) -> Splitter:
    """Return a splitter into blocks of as many sentences as fit into ``size`` words.

    A longer sentence is cut. The rules of ``find_sentences`` decide where sentences end.
    """
    find = _match_words(size).finditer

    def split(text: str, first: int) -> Iterator[tuple[int, int]]:
        start = end = count = 0
        for left, right, length in find_sentences(text, first):
            if count and count + length > size:
                yield start, end
                count = 0
            if length > size:
                *whole, (left, right) = (match.span() for match in find(text, left, right))
                yield from whole
                length -= size * len(whole)
            start, end = (start if count else left), right
            count += length
        if count:
            yield start, end

    return split


def make_wordpiece_splitter(size: int = 288, *, tokenizer: WordpieceTokenizer) -> Splitter:
    """Return a splitter into blocks of as many words as fit into ``size`` wordpieces; a longer word is cut.

    Source: Lee et al. 2019 (ORQA), appendix A; Guu et al. 2020 (REALM), section 4.1.
    """
    iter_runs = _match_words(_WORDS_PER_CALL).finditer

    def split(text: str, first: int) -> Iterator[tuple[int, int]]:
        start, end, count = -1, first, 0
        for match in iter_runs(text, first):
            for left, right, length in _measure_words(text, *match.span(), size, tokenizer):
                if start >= 0 and count + length > size:
                    yield start, end
                    start, count = -1, 0
                start, end = (start if start >= 0 else left), right
                count += length
        if start >= 0:
            yield start, end

    return split


def _match_words(size: int) -> re.Pattern[str]:
    # Possessive quantifiers: without backtracking every text takes linear time.
    return re.compile(rf"\S++(?:\s++\S++){{0,{size - 1}}}+")


def _measure_words(
    text: str, first: int, last: int, size: int, tokenizer: WordpieceTokenizer
) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and wordpieces of each word in ``text[first:last]``, cut where it is longer than ``size``."""
    offsets = tokenizer.tokenize(text[first:last]).offsets
    piece = 0
    for word in _WORD.finditer(text, first, last):
        start, end = word.span()
        first_piece = piece
        while piece < len(offsets) and first + offsets[piece][1] <= end:
            piece += 1
        # Pieces may share a character, so that several cuts may fall on one place.
        cuts = {first + offsets[number][0] for number in range(first_piece + size, piece, size)}
        edges = [start, *sorted(cut for cut in cuts if start < cut < end), end]
        for part, (left, right) in enumerate(pairwise(edges)):
            yield left, right, min(size, piece - first_piece - part * size)


_OPENING = "\"'“‘«([¿¡"
_CLOSING = "\"'”’»)]"
_STOPS = (".", "!", "?", "…")
# White space that may end a sentence. No alternative reads a character twice, so that every text takes linear time.
_GAP = re.compile(rf"(?<=[.!?…{re.escape(_CLOSING)}])\s++(?=\S)|\n[^\S\n]*+\n")
_CONTEXT = 40
"""Characters before a gap that decide about it."""
# Abbreviations that never end a sentence, and those that do not end one before a number.
_BEFORE_ANY = re.compile(
    r"""(?: (?: [^\W\d_]\. )+ [^\W\d_] | mr | mrs | ms | mme | mlle | messrs | dr | drs | prof | st | sts | ste |
    rev | hon | fr | sr | sra | gen | col | maj | capt | cpt | lt | cmdr | adm | sgt | cpl | pvt | gov | sen |
    rep | pres | vs | v | cf | viz | eg | ie | esp | incl | al | op | trans | eds? | dept | univ | assn | bros |
    mts? | ft ) \.""",
    re.IGNORECASE | re.VERBOSE,
)
_BEFORE_NUMBER = re.compile(
    r"""(?: nos? | nr | vols? | pp? | figs? | eqs? | ch | sec | art | c | ca | approx | est | jan | feb | mar | apr |
    jun | jul | aug | sept? | oct | nov | dec | mon | tue | wed | thu | fri | sat | sun ) \.""",
    re.IGNORECASE | re.VERBOSE,
)


def find_sentences(text: str, first: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and number of words of each sentence from character ``first``, by ``_ends_sentence``."""
    start = first
    for gap in _GAP.finditer(text, first):
        if _ends_sentence(text, *gap.span()):
            yield from _trim(text, start, gap.start())
            start = gap.end()
    yield from _trim(text, start, len(text))


def _trim(text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    sentence = text[start:end]
    if length := len(sentence.split()):
        yield end - len(sentence.lstrip()), start + len(sentence.rstrip()), length


def _ends_sentence(text: str, start: int, end: int) -> bool:
    """Return whether the white space ``text[start:end]`` ends a sentence.

    It does if ``.``, ``!``, ``?`` or ``…`` precedes it and a quote, a digit or a letter that is not in lower case
    follows, unless an initial or a common abbreviation precedes it. A blank line always ends a sentence.
    """
    if text.count("\n", start, end) > 1:
        return True
    before, after = text[max(0, start - _CONTEXT) : start].rstrip(_CLOSING), text[end]
    if not before.endswith(_STOPS) or not (after in _OPENING or (after.isalnum() and not after.islower())):
        return False
    last = before.split()[-1].lstrip(_OPENING)
    is_initial = len(last) == 2 and last[0].isupper()
    return not (is_initial or _BEFORE_ANY.fullmatch(last) or (after.isdigit() and _BEFORE_NUMBER.fullmatch(last)))
