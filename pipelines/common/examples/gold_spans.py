"""Gold spans: positions in wordpieces where a passage contains an answer to a question."""

from collections.abc import Iterator, Sequence

import numpy as np

from ragqa.matching.patterns import compile_pattern
from ragqa.metrics import exact_match
from ragqa.reading.windows import Window
from ragqa.runtime.tokens import TextTokenizer
from ragqa.text import split_words, to_nfd

WordpieceSpan = tuple[int, int]
"""First and last wordpiece of a span, counted from 0 in the passage part of a window."""


class GoldSpans:
    """Finder of all occurrences of the answers to a question, as whole words.

    A plain answer is compared by its wordpieces, as in the released code of ORQA. A regular expression is matched in
    the text. Its span ends with the last word of the match, and counts if ``metrics.exact_match`` accepts its text.
    """

    def __init__(self, tokenizer: TextTokenizer, answers: Sequence[str], *, regex: bool = False) -> None:
        """Prepare to find the answers of one question.

        Args:
            tokenizer: the reader's tokenizer.
            answers: gold answers of a question.
            regex: True if the answers are regular expressions.
        """
        self._answers = answers
        self._patterns = [pattern for answer in answers if regex and (pattern := compile_pattern(to_nfd(answer)))]
        self._sequences: dict[tuple[int, ...], list[str] | None] = {}
        # A byte-level vocabulary splits a word after a space differently, so both forms are searched.
        for answer in () if regex else answers:
            for pieces in tokenizer.tokenize_batch([answer.strip(), f" {answer.strip()}"]):
                has_unknown = tokenizer.unknown_id in pieces.ids
                self._sequences[tuple(pieces.ids)] = split_words(answer) if has_unknown else None
        self._sequences.pop((), None)

    def find(self, window: Window, text: str) -> set[WordpieceSpan]:
        """Return the gold spans in a window of a passage.

        Args:
            window: window of the passage.
            text: text of the passage.

        Raises:
            SlowPattern: an answer is a pattern that takes too long.
        """
        candidates = self._find_matches(window, text) if self._patterns else self._find_wordpieces(window, text)
        begins, ends, in_words = window.begins, window.ends, window.is_word
        return {
            (first, last)
            for first, last in candidates
            if begins[first] and ends[last] and in_words[first : last + 1].all()
        }

    def _find_wordpieces(self, window: Window, text: str) -> Iterator[WordpieceSpan]:
        ids = list(window.tokens.ids[window.offset : window.offset + len(window.offsets)])
        for sequence, tokens in self._sequences.items():
            for first in range(len(ids) - len(sequence) + 1):
                last = first + len(sequence) - 1
                is_equal = tuple(ids[first : last + 1]) == sequence
                # All unknown wordpieces have the same id, so the words themselves must also be equal.
                if is_equal and (tokens is None or tokens == split_words(_text_of(window, text, first, last))):
                    yield first, last

    def _find_matches(self, window: Window, text: str) -> Iterator[WordpieceSpan]:
        decomposed = to_nfd(text)
        # Position in ``text`` of each character of ``decomposed``.
        positions = [place for place, character in enumerate(text) for _ in to_nfd(character)]
        for pattern in self._patterns:
            for start, end in pattern.find_all(decomposed):
                if start == end:
                    continue
                for first, last in _cover(window, positions[start], positions[end - 1]):
                    if exact_match(_text_of(window, text, first, last), self._answers, regex=True):
                        yield first, last


def _cover(window: Window, begin: int, end: int) -> Iterator[WordpieceSpan]:
    """Yield the span from the word that begins at ``begin`` to the word that contains ``end``."""
    starts, ends = window.offsets[:, 0], window.offsets[:, 1]
    first = np.flatnonzero((starts == begin) & window.begins)
    last = np.flatnonzero((ends > end) & window.ends)
    if len(first) and len(last) and last[0] >= first[0]:
        yield int(first[0]), int(last[0])


def _text_of(window: Window, text: str, first: int, last: int) -> str:
    return text[window.offsets[first, 0] : window.offsets[last, 1]]
