"""Split texts into blocks, which become passages, by words, sentences or wordpieces."""

import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from ragqa.corpus.splitter_limits import Splitter, cut_block, limit_blocks
from ragqa.errors import BadInput
from ragqa.matching.sentences import find_sentences

if TYPE_CHECKING:
    from ragqa.runtime.tokens import TextTokenizer

DEFAULT_BLOCKS = "sentences"
"""Default kind of splitter of an index; DPR splits by words."""
DEFAULT_SIZES = {"words": 100, "sentences": 100, "wordpieces": 288}
"""Default size of a block by kind of splitter: in wordpieces for ``wordpieces``, else in words."""
MAX_SIZE = 1_000_000
"""Maximum size of a block, in words or wordpieces."""

_WORD = re.compile(r"\S+")
_WORDS_PER_CALL = 1000
"""Number of words per call of a tokenizer, so that a long text needs little memory."""
_CHARACTERS_PER_CALL = 100_000
"""Maximum number of characters per call of a tokenizer, for long words."""


def make_splitter(kind: str, size: int | None = None, tokenizer: "TextTokenizer | None" = None) -> Splitter:
    """Return a function that splits texts into blocks.

    Args:
        kind: kind of splitter, a key of ``DEFAULT_SIZES``.
        size: maximum size of a block, in wordpieces for the kind ``wordpieces``, else in words; None for the default.
        tokenizer: tokenizer that counts wordpieces. The kind ``wordpieces`` needs it; for other kinds, see
            ``limit_blocks``.

    Raises:
        BadInput: the kind is unknown, the size is out of range, or the tokenizer is missing.
    """
    if kind not in DEFAULT_SIZES:
        raise BadInput(f"unknown unit of blocks {kind!r}: choose one of {', '.join(DEFAULT_SIZES)}")
    size = DEFAULT_SIZES[kind] if size is None else size
    if not 1 <= size <= MAX_SIZE:
        raise BadInput(f"the size of a block is {size}: it must be at {'least 1' if size < 1 else f'most {MAX_SIZE}'}")
    if kind == "words":
        return make_word_splitter(size, tokenizer=tokenizer)
    if kind == "sentences":
        return make_sentence_splitter(size, tokenizer=tokenizer)
    if tokenizer is None:
        raise BadInput("blocks of wordpieces need the tokenizer of an encoder")
    return make_wordpiece_splitter(size, tokenizer=tokenizer)


def make_word_splitter(size: int = 100, *, tokenizer: "TextTokenizer | None" = None) -> Splitter:
    """Return a splitter into blocks of ``size`` words, which ``limit_blocks`` can cut further.

    The last block of a text can be shorter. Source: Karpukhin et al. 2020 (DPR), section 4.1.

    Args:
        size: number of words in a block.
        tokenizer: as for ``limit_blocks``.
    """
    return limit_blocks(partial(_match_words, size), size, tokenizer)


def make_sentence_splitter(size: int = 100, *, tokenizer: "TextTokenizer | None" = None) -> Splitter:
    """Return a splitter into blocks of as many sentences as fit into ``size`` words.

    A sentence of more than ``size`` words is cut. ``limit_blocks`` can cut the blocks further.

    Args:
        size: maximum number of words in a block.
        tokenizer: as for ``limit_blocks``.
    """
    return limit_blocks(lambda text, first: _join_units(_iter_sentences(text, first, size), size), size, tokenizer)


def make_wordpiece_splitter(size: int = 288, *, tokenizer: "TextTokenizer") -> Splitter:
    """Return a splitter into blocks of as many words as fit into ``size`` wordpieces.

    A word of more than ``size`` wordpieces is cut. The default size is that of ORQA (Lee et al. 2019) and REALM (Guu
    et al. 2020).

    Args:
        size: maximum number of wordpieces in a block.
        tokenizer: tokenizer that counts the wordpieces.
    """
    words = size * DEFAULT_SIZES["words"] // DEFAULT_SIZES["wordpieces"]
    return limit_blocks(lambda text, first: _join_units(_iter_words(text, first, size, tokenizer), size), words)


def _join_units(units: Iterable[tuple[int, int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Join consecutive units into blocks of at most ``size``; yield their starts and ends.

    A unit is the start, end and length of a sentence or word. Lengths and ``size`` count words or wordpieces.
    """
    start, end, count = -1, -1, 0
    for left, right, length in units:
        if start >= 0 and count + length > size:
            yield start, end
            start, count = -1, 0
        start, end = (start if start >= 0 else left), right
        count += length
    if start >= 0:
        yield start, end


def _match_words(size: int, text: str, first: int = 0, last: int = sys.maxsize) -> Iterator[tuple[int, int]]:
    # Possessive quantifiers do not backtrack, so every text takes linear time.
    pattern = re.compile(rf"\S++(?:\s++\S++){{0,{size - 1}}}+")
    return (match.span() for match in pattern.finditer(text, first, last))


def _iter_sentences(text: str, first: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the start, end and number of words of each sentence, or of parts of a long one."""
    for start, end, length in find_sentences(text, first):
        spans = _match_words(size, text, start, end) if length > size else [(start, end)]
        for number, (left, right) in enumerate(spans):
            yield left, right, min(size, length - number * size)


def _iter_words(text: str, first: int, size: int, tokenizer: "TextTokenizer") -> Iterator[tuple[int, int, int]]:
    """Yield the start, end and number of wordpieces of each word, or of its parts.

    A word of more than ``size`` wordpieces is divided into parts of ``size``, unless wordpieces share a character.
    """
    runs = _match_words(_WORDS_PER_CALL, text, first)
    for left, right in chain.from_iterable(cut_block(text, *run, _CHARACTERS_PER_CALL, is_even=False) for run in runs):
        offsets = tokenizer.tokenize(text[left:right]).offsets
        piece = 0
        for word in _WORD.finditer(text, left, right):
            start, end = word.span()
            first_piece = piece
            while piece < len(offsets) and left + offsets[piece][1] <= end:
                piece += 1
            # Wordpieces can share a character, so several cuts can fall on the same place.
            cuts = {left + offsets[number][0] for number in range(first_piece + size, piece, size)}
            edges = [start, *sorted(cut for cut in cuts if start < cut < end), end]
            for part, span in enumerate(pairwise(edges)):
                yield *span, min(size, piece - first_piece - part * size)
