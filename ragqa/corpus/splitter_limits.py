"""Limits on the length of blocks, in characters and in wordpieces.

Chinese, base64 and minified JSON have few spaces, so a hundred of their words can be a whole file. A block that exceeds
a limit is cut into parts of similar length.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from ragqa.runtime.tokens import TextTokenizer

Splitter = Callable[[str, int], Iterator[tuple[int, int]]]
"""Function of a text, and of the index at which to begin, that yields the start and end of each block."""

MAX_CHARACTERS = 2_000
"""Maximum length in characters of a block of up to 100 words; 100 English words have about 600 characters."""
MAX_WORDPIECES = 512
"""Maximum length in wordpieces of a block of up to 102 words: BERT's input. 100 English words have about 140."""
_CHARACTERS_PER_WORD, _WORDPIECES_PER_WORD = 20, 5
"""Limits for each word of the block size; they replace the limits above for larger block sizes."""
_CONTEXT = 64
"""Number of characters after the longest possible part that are searched, since they can move a boundary at its end."""
_BYTES = 4
"""Maximum number of wordpieces per character: a byte-level vocabulary splits a character into up to four bytes."""

_VISIBLE = re.compile(r"\S")
# These patterns search from the right. _STOP ends sentences in scripts without spaces; word boundaries follow UAX 29.
_SPACE = regex.compile(r"(?r)\s")
_STOP = regex.compile(r"(?r)[。！？!?…；;][」』”’）)》\]]*(?![\p{M}\u200d])")
_WORD_BOUNDARY = regex.compile(r"(?rw)\b")
_GRAPHEME = regex.compile(r"\X")


def limit_blocks(split: Splitter, words: int, tokenizer: "TextTokenizer | None" = None) -> Splitter:
    """Return a splitter that cuts the blocks of another splitter if they exceed the limits.

    Args:
        split: splitter whose blocks are cut.
        words: block size of ``split`` in words; sizes above 100 have higher limits.
        tokenizer: tokenizer that counts the wordpieces; None to limit only the characters.
    """
    characters = max(MAX_CHARACTERS, _CHARACTERS_PER_WORD * words)
    wordpieces = max(MAX_WORDPIECES, _WORDPIECES_PER_WORD * words)

    def split_and_cut(text: str, first: int) -> Iterator[tuple[int, int]]:
        for block in split(text, first):
            for start, end in cut_block(text, *block, characters):
                if tokenizer is None or _BYTES * (end - start) <= wordpieces:
                    yield start, end
                else:
                    yield from _cut_wordpieces(text, start, end, wordpieces, tokenizer)

    return split_and_cut


def cut_block(text: str, start: int, end: int, limit: int, *, is_even: bool = True) -> Iterator[tuple[int, int]]:
    """Cut a block into parts of at most ``limit`` characters; yield their starts and ends.

    A part ends at white space, at the end of a sentence or at a word boundary: the first of these kinds that occurs in
    the second half of the longest possible part. If none occurs, the part ends between two grapheme clusters, if
    possible. White space between two parts is left out.

    Args:
        text: text that contains the block.
        start: first character of the block.
        end: character after the block.
        limit: maximum length of a part in characters.
        is_even: True for parts of similar length; False for parts that are as long as possible.
    """
    while end - start > limit:
        parts = -(-(end - start) // limit)
        stop, rest = _cut_once(text, start, end, -(-(end - start) // parts) if is_even else limit)
        yield start, stop
        start = rest
    yield start, end


def _cut_wordpieces(
    text: str, start: int, end: int, limit: int, tokenizer: "TextTokenizer"
) -> Iterator[tuple[int, int]]:
    while True:
        offsets = tokenizer.tokenize(text[start:end]).offsets
        if len(offsets) <= limit:
            break
        parts = -(-len(offsets) // limit)
        length = offsets[-(-len(offsets) // parts)][0]
        if not 0 < length < end - start:  # the wordpieces share a character, so no cut can separate them
            break
        stop, rest = _cut_once(text, start, end, length)
        yield start, stop
        start = rest
    yield start, end


def _cut_once(text: str, start: int, end: int, length: int) -> tuple[int, int]:
    """Return the end of the first part of a block, and the start of the rest.

    The first part has at most ``length`` characters. White space at the cut belongs to neither part.
    """
    cut = start + _find_boundary(text[start : start + length + _CONTEXT], length)
    rest = _VISIBLE.search(text, cut, end)
    assert rest is not None  # a block ends with a visible character
    return start + len(text[start:cut].rstrip()), rest.start()


def _find_boundary(text: str, length: int) -> int:
    """Return the index, at most ``length``, at which ``cut_block`` cuts a text."""
    half = length // 2
    if space := _SPACE.search(text, half + 1, length + 1):
        return int(space.start())
    for pattern in (_STOP, _WORD_BOUNDARY):
        # A boundary at the limit depends on the characters after it, so the search begins after the limit.
        ends = (match.end() for match in pattern.finditer(text, half))
        if (cut := next((end for end in ends if end <= length), 0)) > half:
            return int(cut)
    return max((match.end() for match in _GRAPHEME.finditer(text) if match.end() <= length), default=length)
