"""Where a text is cut into blocks: by words, by sentences, by a model's wordpieces."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

from ragqa.errors import BadInput

Splitter = Callable[[str, int], Iterator[tuple[int, int]]]
"""From a text and the first character to cut: spans in order, apart, none empty, no white space around."""

DEFAULT_SIZES = {"words": 100, "sentences": 100, "wordpieces": 288}
"""Size of a block where none is asked for."""
MAX_SIZE = 1_000_000

_WORD = re.compile(r"\S+")
# Words that are handed to a tokenizer at a time, so that a long text needs little memory.
_STRETCH = 1000


class Pieces(Protocol):
    """What ``wordpieces`` needs to know of a text's wordpieces."""

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Characters of each piece, in order."""
        ...


class Tokenizer(Protocol):
    """What ``wordpieces`` needs of a tokenizer; ``ragqa.runtime.tokens.TextTokenizer`` is one."""

    def pieces(self, text: str) -> Pieces:
        """The wordpieces of ``text``."""
        ...


def make_splitter(kind: str, size: int | None = None, tokenizer: Tokenizer | None = None) -> Splitter:
    """The make_splitter ``kind``, a key of DEFAULT_SIZES, for blocks of up to ``size`` words or wordpieces.

    Raises BadInput on an unknown kind, a size below 1, and wordpieces without a tokenizer.
    """
    if kind not in DEFAULT_SIZES:
        raise BadInput(f"no way to cut blocks is called {kind!r}: choose one of {', '.join(DEFAULT_SIZES)}")
    size = DEFAULT_SIZES[kind] if size is None else size
    if size < 1:
        raise BadInput(f"the size of a block is {size}: it must be at least 1")
    if size > MAX_SIZE:
        raise BadInput(f"the size of a block is {size}: it must be at most {MAX_SIZE}")
    if kind == "words":
        return make_word_splitter(size)
    if kind == "sentences":
        return make_sentence_splitter(size)
    if tokenizer is None:
        raise BadInput("blocks of wordpieces need the tokenizer of an encoder")
    return make_wordpiece_splitter(size, tokenizer=tokenizer)


def make_word_splitter(size: int = 100) -> Splitter:
    """Blocks of ``size`` white-space words, the last one shorter (Karpukhin et al. 2020, section 4.1)."""
    find = _run_of_words(size).finditer

    def split(text: str, first: int) -> Iterator[tuple[int, int]]:
        return (match.span() for match in find(text, first))

    return split


def make_sentence_splitter(size: int = 100) -> Splitter:
    """Blocks of as many whole sentences as fit into ``size`` words; a longer sentence is cut there.

    Where sentences end is told by rule: ``find_sentences``.
    """
    find = _run_of_words(size).finditer

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


def make_wordpiece_splitter(size: int = 288, *, tokenizer: Tokenizer) -> Splitter:
    """Blocks of as many whole words as fit into ``size`` wordpieces; a longer word is cut between pieces.

    Source: Lee et al. 2019 (ORQA), appendix A; Guu et al. 2020 (REALM), section 4.1.
    """
    stretch = _run_of_words(_STRETCH).finditer

    def split(text: str, first: int) -> Iterator[tuple[int, int]]:
        start, end, count = -1, first, 0
        for match in stretch(text, first):
            for left, right, length in _measured(text, *match.span(), size, tokenizer):
                if start >= 0 and count + length > size:
                    yield start, end
                    start, count = -1, 0
                start, end = (start if start >= 0 else left), right
                count += length
        if start >= 0:
            yield start, end

    return split


def _run_of_words(size: int) -> re.Pattern[str]:
    # One match a block, and possessive, so that no text makes it go back over what it has read.
    return re.compile(rf"\S++(?:\s++\S++){{0,{size - 1}}}+")


def _measured(text: str, first: int, last: int, size: int, tokenizer: Tokenizer) -> Iterator[tuple[int, int, int]]:
    """Start, end and wordpieces of the words in ``text[first:last]``, those above ``size`` in parts."""
    offsets = tokenizer.pieces(text[first:last]).offsets
    piece = 0
    for word in _WORD.finditer(text, first, last):
        start, end = word.span()
        begin = piece
        while piece < len(offsets) and first + offsets[piece][1] <= end:
            piece += 1
        # pieces may share a character, so that a cut need not be a new place
        cuts = {first + offsets[at][0] for at in range(begin + size, piece, size)}
        edges = [start, *sorted(cut for cut in cuts if start < cut < end), end]
        for part, (left, right) in enumerate(pairwise(edges)):
            yield left, right, min(size, piece - begin - part * size)


_OPENING = "\"'“‘«([¿¡"
_CLOSING = "\"'”’»)]"
_STOPS = (".", "!", "?", "…")
# White space that may end a sentence. Neither alternative reads a character twice, so that a text of nothing
# but dots or spaces takes no longer than another.
_GAP = re.compile(rf"(?<=[.!?…{re.escape(_CLOSING)}])\s++(?=\S)|\n[^\S\n]*+\n")
# Characters before a gap that are looked at.
_LOOK = 40
# Abbreviations that stand before a name or an example, and those that stand before a number.
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
    """Start, end and number of words of each sentence from character ``first``; the rule is ``_ends_sentence``'s."""
    start = first
    for gap in _GAP.finditer(text, first):
        if _ends_sentence(text, *gap.span()):
            yield from _trimmed(text, start, gap.start())
            start = gap.end()
    yield from _trimmed(text, start, len(text))


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    sentence = text[start:end]
    if length := len(sentence.split()):
        yield end - len(sentence.lstrip()), start + len(sentence.rstrip()), length


def _ends_sentence(text: str, start: int, end: int) -> bool:
    """Whether the white space ``text[start:end]`` ends a sentence.

    It does after ``.``, ``!``, ``?`` or ``…`` and before a quote, a digit or a letter that is not lower case,
    but not after an initial or a common abbreviation; and a blank line always does.
    """
    if text.count("\n", start, end) > 1:
        return True
    before, after = text[max(0, start - _LOOK) : start].rstrip(_CLOSING), text[end]
    if not before.endswith(_STOPS) or not (after in _OPENING or (after.isalnum() and not after.islower())):
        return False
    last = before.split()[-1].lstrip(_OPENING)
    initial = len(last) == 2 and last[0].isupper()
    return not (initial or _BEFORE_ANY.fullmatch(last) or (after.isdigit() and _BEFORE_NUMBER.fullmatch(last)))
