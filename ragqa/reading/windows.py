"""Question, title and passage as the token sequences a span scorer reads.

A passage longer than the model's window is read in overlapping windows. Where an answer may
begin and end (on whole words of the passage) is decided here, once, for every span decoder.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ragqa.runtime.tokens import MAX_QUESTION, MAX_TITLE, Pieces, TextTokenizer, TokenInput

OVERLAP = 64
"""Wordpieces that two neighbouring windows of a passage share."""


@dataclass(frozen=True)
class Window:
    """Part of a passage, ready to be scored: passage wordpieces ``first …`` stand from ``offset`` on."""

    passage: int
    """Place of the passage among the hits of its question."""
    tokens: TokenInput
    offset: int
    offsets: np.ndarray
    """``[P, 2]`` characters of each passage wordpiece, in the passage's text."""
    begins: np.ndarray
    """``[P]`` bool: a word begins here."""
    ends: np.ndarray
    """``[P]`` bool: a word ends here."""


def windows(
    tokenizer: TextTokenizer, question: str, passages: list[tuple[str, str]], max_tokens: int
) -> Iterator[Window]:
    """The windows of (title, text) passages, in order; a passage without a wordpiece has none."""
    asked = tokenizer.pieces(question).ids[: min(MAX_QUESTION, max_tokens // 4)]
    titles = tokenizer.many([title for title, _ in passages])
    texts = tokenizer.many([text for _, text in passages])
    last = tokenizer.special[1]
    for row, (title, pieces) in enumerate(zip(titles, texts, strict=True)):
        prefix, first_segment = tokenizer.reader_prefix(asked, title.ids[:MAX_TITLE])
        width = max_tokens - len(prefix) - 1
        begins, ends = _word_edges(pieces)
        offsets = np.asarray(pieces.offsets, dtype=np.int64).reshape(-1, 2)
        for first in _starts(len(pieces.ids), width):
            part = slice(first, first + width)
            tokens = TokenInput([*prefix, *pieces.ids[part], last], first_segment)
            yield Window(row, tokens, len(prefix), offsets[part], begins[part], ends[part])


def _starts(length: int, width: int) -> Iterator[int]:
    first = 0
    while length and (first == 0 or first + OVERLAP < length):
        yield first
        first += width - OVERLAP


def _word_edges(pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    word = np.array([-1 if w is None else w for w in pieces.words], dtype=np.int64)
    changes = word[1:] != word[:-1]
    return np.concatenate([[True], changes]), np.concatenate([changes, [True]])
