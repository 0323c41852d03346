"""Question, title and passage as the token sequences a span scorer reads.

A passage longer than the model's window is read in overlapping windows. Where an answer may
begin and end (on whole words of the passage) is decided here, once, for every span decoder.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ragqa.errors import BadInput
from ragqa.runtime.tokens import MAX_QUESTION, MAX_TITLE, Pieces, TextTokenizer, TokenInput

OVERLAP = 32
"""Wordpieces that two neighbouring windows of a passage share."""
LONGEST_WORD = 100
"""Characters of a wordpiece: what is longer is no word ([UNK] stands for as many as come), and in no answer."""
SHORTEST = 16
"""Wordpieces of a window at least: fewer have no place for a question, its title and a passage."""
_IN_NUMBER = re.compile(r"(?<=\d)[.,](?=\d)")


@dataclass(frozen=True)
class Window:
    """Part of a passage, ready to be scored: passage wordpieces ``first …`` stand from ``offset`` on."""

    passage: int
    """Place of the passage among the hits of its question."""
    tokens: TokenInput
    offset: int
    offsets: np.ndarray
    """``[P, 2]`` characters of each passage wordpiece, in the passage's text."""
    seen: int
    """Leading passage wordpieces that the window before this one holds, too."""
    begins: np.ndarray
    """``[P]`` bool: a word begins here."""
    ends: np.ndarray
    """``[P]`` bool: a word ends here."""

    @property
    def words(self) -> np.ndarray:
        """``[P]`` bool: the wordpiece is of a word, see ``LONGEST_WORD``."""
        found: np.ndarray = self.offsets[:, 1] - self.offsets[:, 0] <= LONGEST_WORD
        return found

    def possible(self, width: int) -> np.ndarray:
        """``[P, W]`` bool: an answer may be the span of w + 1 wordpieces from p.

        Spans that end where the window before has been are counted there.
        """
        ends = np.zeros(len(self.ends) + width - 1, dtype=bool)
        ends[self.seen : len(self.ends)] = self.ends[self.seen :]
        found: np.ndarray = self.begins[:, None] & np.lib.stride_tricks.sliding_window_view(ends, width)
        if not (words := self.words).all():
            words = np.concatenate([words, np.ones(width - 1, dtype=bool)])
            found &= np.logical_and.accumulate(np.lib.stride_tricks.sliding_window_view(words, width), axis=1)
        return found


def question_room(max_tokens: int) -> int:
    """Wordpieces of a question that are read in such windows; the rest is cut."""
    return min(MAX_QUESTION, max_tokens // 4)


def windows(
    tokenizer: TextTokenizer, question: str, passages: list[tuple[str, str]], max_tokens: int
) -> Iterator[Window]:
    """The windows of (title, text) passages, in order; a passage without a wordpiece has none.

    Raises:
        BadInput: ``max_tokens`` is less than ``SHORTEST``.
    """
    if max_tokens < SHORTEST:
        raise BadInput(f"a reader of {max_tokens} wordpieces has no place for a passage: {SHORTEST} are needed")
    asked = tokenizer.pieces(question).ids[: question_room(max_tokens)]
    titles = tokenizer.many([title for title, _ in passages])
    texts = tokenizer.many([text for _, text in passages])
    last = tokenizer.special[1]
    for row, (title, pieces) in enumerate(zip(titles, texts, strict=True)):
        prefix, first_segment = tokenizer.reader_prefix(asked, title.ids[: min(MAX_TITLE, max_tokens // 8)])
        width = max_tokens - len(prefix) - 1
        overlap = min(OVERLAP, width // 2)
        begins, ends = _word_edges(passages[row][1], pieces)
        offsets = _places(passages[row][1], pieces)
        for first in _starts(len(pieces.ids), width, overlap):
            part = slice(first, first + width)
            tokens = TokenInput([*prefix, *pieces.ids[part], last], first_segment)
            seen = overlap if first else 0
            yield Window(row, tokens, len(prefix), offsets[part], seen, begins[part], ends[part])


def _starts(length: int, width: int, overlap: int) -> Iterator[int]:
    first = 0
    while length and (first == 0 or first + overlap < length):
        yield first
        first += width - overlap


def _places(text: str, pieces: Pieces) -> np.ndarray:
    """``[P, 2]`` characters of each wordpiece, with the marks behind them, which BERT's tokenizer drops: those of é in
    two characters, of Thai vowels, of Arabic."""
    offsets = np.asarray(pieces.offsets, dtype=np.int64).reshape(-1, 2)
    if not text.isascii():
        for row, end in enumerate(offsets[:, 1].tolist()):
            while end < len(text) and unicodedata.category(text[end]).startswith("M"):
                end += 1
            offsets[row, 1] = end
    return offsets


def _word_edges(text: str, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """``[P]`` bools: a word begins at the wordpiece, a word ends with it."""
    word = np.array([-1 if w is None else w for w in pieces.words], dtype=np.int64)
    changes = word[1:] != word[:-1]
    begins, ends = np.concatenate([[True], changes]), np.concatenate([changes, [True]])
    offsets = np.asarray(pieces.offsets, dtype=np.int64).reshape(-1, 2)
    # BERT cuts numbers at their commas and points: 12,345 must not answer "345".
    inner = [edge for match in _IN_NUMBER.finditer(text) for edge in match.span()]
    if inner:
        begins &= ~np.isin(offsets[:, 0], inner)
        ends &= ~np.isin(offsets[:, 1], inner)
    return begins, ends
