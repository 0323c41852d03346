"""Limits of blocks in characters and wordpieces, for texts with little white space or long words.

Chinese, base64 and minified JSON have few spaces or none, so that a hundred of their words can be a whole file. A block
beyond the limits is cut in parts of similar length.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from ragqa.runtime.tokens import TextTokenizer

Splitter = Callable[[str, int], Iterator[tuple[int, int]]]
"""Function (text, first character) -> sorted spans of the blocks."""

MAX_CHARACTERS = 2_000
"""Maximum length of a block in characters: 100 English words have about 600, and at most 900 in SQuAD."""
MAX_WORDPIECES = 512
"""Maximum length of a block in wordpieces: the input of BERT. 100 English words have about 140."""
_CHARACTERS_PER_WORD, _WORDPIECES_PER_WORD = 20, 5
"""Limits for each word of a block, for users who choose blocks of more than 100 words."""
_CONTEXT = 64
"""Number of characters after a limit that decide about the boundary at it."""
_BYTES = 4
"""Maximum number of wordpieces of a character, those of a byte-level vocabulary."""

_VISIBLE = re.compile(r"\S")
# From the right: white space, the end of a sentence in scripts without spaces, and a word boundary of Unicode (UAX 29).
_SPACE = regex.compile(r"(?r)\s")
_STOP = regex.compile(r"(?r)[。！？!?…；;][」』”’）)》\]]*(?![\p{M}\u200d])")
_WORD_BOUNDARY = regex.compile(r"(?rw)\b")
_GRAPHEME = regex.compile(r"\X")


def limit_blocks(split: Splitter, words: int, tokenizer: "TextTokenizer | None" = None) -> Splitter:
    """Return a splitter that cuts the blocks of another one where they exceed the limits.

    Args:
        split: splitter of texts into blocks.
        words: size for which the blocks were made, in words; large blocks have higher limits.
        tokenizer: tokenizer of the encoder; None if it is not known, or if ``split`` counts wordpieces itself.
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
    """Yield the spans of the parts of a block, of at most ``limit`` characters each, and of similar length if even.

    A part ends at white space, at the end of a sentence, between words, or between characters as a reader sees them:
    the first of these that the second half of the part has.
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
    """Yield the spans of the parts of a block, of at most ``limit`` wordpieces each."""
    while True:
        offsets = tokenizer.tokenize(text[start:end]).offsets
        if len(offsets) <= limit:
            break
        parts = -(-len(offsets) // limit)
        length = offsets[-(-len(offsets) // parts)][0]
        if not 0 < length < end - start:  # the wordpieces share a character
            break
        stop, rest = _cut_once(text, start, end, length)
        yield start, stop
        start = rest
    yield start, end


def _cut_once(text: str, start: int, end: int, length: int) -> tuple[int, int]:
    """Return the end of the first part, of at most ``length`` characters, and the start of the rest."""
    cut = start + _find_boundary(text[start : start + length + _CONTEXT], length)
    rest = _VISIBLE.search(text, cut, end)
    assert rest is not None  # a block ends with a visible character
    return start + len(text[start:cut].rstrip()), rest.start()


def _find_boundary(text: str, length: int) -> int:
    """Return the best place to cut a text, at most ``length``."""
    half = length // 2
    if space := _SPACE.search(text, half + 1, length + 1):
        return int(space.start())
    for pattern in (_STOP, _WORD_BOUNDARY):
        # The characters after the limit decide about the boundary at it.
        ends = (match.end() for match in pattern.finditer(text, half))
        if (cut := next((end for end in ends if end <= length), 0)) > half:
            return int(cut)
    return max((match.end() for match in _GRAPHEME.finditer(text) if match.end() <= length), default=length)
