"""Windows: question, title and part of a passage as one sequence of tokens.

A passage longer than the model's limit is read in overlapping windows. Answers begin and end at the edges of words,
which each window marks for answering and for training.

Legend: P wordpieces of a window, W longest span in wordpieces.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ragqa.errors import BadInput
from ragqa.runtime.tokens import MAX_QUESTION, MAX_TITLE, Pieces, TextTokenizer, TokenInput

OVERLAP = 32
"""Number of wordpieces that two neighbouring windows of a passage share, unless windows are very short."""
LONGEST_WORD = 100
"""Maximum length in characters of a wordpiece that can be part of an answer."""
MIN_WINDOW = 16
"""Smallest maximum length of windows in wordpieces: room for question, title and passage."""
_CHARACTERS_PER_PIECE = 10
"""Number of characters that are tokenized per wordpiece if the number of windows is limited; English has about four."""
_SEPARATOR_IN_NUMBER = re.compile(r"(?<=\d)[.,](?=\d)")


@dataclass(frozen=True)
class Window:
    """Part of a passage, ready to be scored."""

    passage: int
    """Position of the passage among the hits of its question."""
    tokens: TokenInput
    offset: int
    """Position of the first passage wordpiece in the sequence."""
    offsets: np.ndarray
    """[P, 2] start and end of each passage wordpiece, in characters of the passage's text."""
    overlap: int
    """Number of leading passage wordpieces shared with the previous window."""
    begins: np.ndarray
    """[P] bool, true where a word begins."""
    ends: np.ndarray
    """[P] bool, true where a word ends."""
    is_cut: bool = False
    """True for the last window of a passage that is too long to be read to the end."""

    @property
    def is_word(self) -> np.ndarray:
        """[P] bool, true for wordpieces of at most ``LONGEST_WORD`` characters."""
        mask: np.ndarray = self.offsets[:, 1] - self.offsets[:, 0] <= LONGEST_WORD
        return mask

    def find_possible_spans(self, width: int) -> np.ndarray:
        """Return [P, W] bool, true if the span of w + 1 wordpieces from p can be an answer.

        Spans that end in the overlap are false, because they belong to the previous window.

        Args:
            width: longest span in wordpieces, W.
        """
        ends = np.zeros(len(self.ends) + width - 1, dtype=bool)
        ends[self.overlap : len(self.ends)] = self.ends[self.overlap :]
        possible: np.ndarray = self.begins[:, None] & np.lib.stride_tricks.sliding_window_view(ends, width)
        if not (is_word := self.is_word).all():
            is_word = np.concatenate([is_word, np.ones(width - 1, dtype=bool)])
            views = np.lib.stride_tricks.sliding_window_view(is_word, width)
            possible &= np.logical_and.accumulate(views, axis=1)
        return possible


def count_question_room(max_tokens: int) -> int:
    """Return the maximum number of question wordpieces in a window of ``max_tokens``."""
    return min(MAX_QUESTION, max_tokens // 4)


def make_windows(
    tokenizer: TextTokenizer,
    question: str,
    passages: list[tuple[str, str]],
    max_tokens: int,
    *,
    max_windows: int | None = None,
) -> Iterator[Window]:
    """Yield the windows of all passages, in order; a passage without wordpieces has no window.

    Args:
        tokenizer: tokenizer of the reader.
        question: text of the question.
        passages: title and text of each passage.
        max_tokens: maximum length of a window in wordpieces, all parts together.
        max_windows: maximum number of windows per passage, after which its rest is not read; None for no limit.

    Raises:
        BadInput: ``max_tokens`` is less than ``MIN_WINDOW``.
        ArtefactError: the tokenizer has no tokens that begin a sequence and end a segment.
    """
    if max_tokens < MIN_WINDOW:
        raise BadInput(
            f"a reader of {max_tokens} wordpieces has no room for a passage: at least {MIN_WINDOW} are needed"
        )
    question_ids = tokenizer.tokenize(question).ids[: count_question_room(max_tokens)]
    titles = tokenizer.tokenize_batch([title[: MAX_TITLE * LONGEST_WORD] for title, _ in passages])
    # Without this limit, a passage of megabytes needs gigabytes for its wordpieces.
    room = None if max_windows is None else max_windows * max_tokens * _CHARACTERS_PER_PIECE
    texts = tokenizer.tokenize_batch([text[:room] for _, text in passages])
    last = tokenizer.special_ids[1]
    for row, (title, pieces) in enumerate(zip(titles, texts, strict=True)):
        title_ids = title.ids[: min(MAX_TITLE, max_tokens // 8)]
        prefix, first_segment = tokenizer.make_reader_prefix(question_ids, title_ids)
        width = max_tokens - len(prefix) - 1
        overlap = min(OVERLAP, width // 2)
        text, is_long = passages[row][1][:room], room is not None and len(passages[row][1]) > room
        begins, ends = _find_word_edges(text, pieces)
        offsets = _find_offsets(text, pieces)
        count = len(pieces.ids)
        # No window begins within the last ``overlap`` wordpieces, since the window before has read them.
        starts = range(0, max(count - overlap, min(count, 1)), width - overlap)
        for first in starts[:max_windows]:
            part = slice(first, first + width)
            tokens = TokenInput([*prefix, *pieces.ids[part], last], first_segment)
            shared = overlap if first else 0
            is_last = first == starts[:max_windows][-1]
            is_cut = is_last and (is_long or first != starts[-1])
            yield Window(row, tokens, len(prefix), offsets[part], shared, begins[part], ends[part], is_cut)


def _find_offsets(text: str, pieces: Pieces) -> np.ndarray:
    """Return the start and end of each wordpiece in characters, [P, 2].

    The end includes the combining marks after the wordpiece, which BERT's tokenizer drops (the accent of a
    two-character é, Thai vowels, Arabic points). Without them, an answer would lose the mark of its last letter.
    """
    offsets = np.asarray(pieces.offsets, dtype=np.int64).reshape(-1, 2)
    if not text.isascii():
        for row, end in enumerate(offsets[:, 1].tolist()):
            while end < len(text) and unicodedata.category(text[end]).startswith("M"):
                end += 1
            offsets[row, 1] = end
    return offsets


def _find_word_edges(text: str, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """Return two [P] bool arrays, true where a word begins and where a word ends."""
    word = np.array([-1 if w is None else w for w in pieces.words], dtype=np.int64)
    changes = word[1:] != word[:-1]
    begins, ends = np.concatenate([[True], changes]), np.concatenate([changes, [True]])
    offsets = np.asarray(pieces.offsets, dtype=np.int64).reshape(-1, 2)
    # BERT splits numbers at commas and points, but the answer in 12,345 must not be "345".
    inner = [edge for match in _SEPARATOR_IN_NUMBER.finditer(text) for edge in match.span()]
    if inner:
        begins &= ~np.isin(offsets[:, 0], inner)
        ends &= ~np.isin(offsets[:, 1], inner)
    return begins, ends
