"""Which spans of a passage are a gold answer, in wordpieces: what a reader is to choose."""

from collections.abc import Iterator, Sequence

import numpy as np

from ragqa.metrics import compiled, exact_match, nfd
from ragqa.reading.windows import Window
from ragqa.runtime.tokens import TextTokenizer
from ragqa.text import words

Place = tuple[int, int]
"""First and last wordpiece of a span, counted among the passage's own in a window."""


class GoldSpans:
    """Finds every occurrence of the answers of a question, on whole words.

    Answers are compared by their wordpieces, as in the released code of ORQA. Patterns are matched on the text, and
    the span is the whole words from where a match begins to where it ends, if ``metrics.exact_match`` takes it for
    right.
    """

    def __init__(self, tokenizer: TextTokenizer, answers: Sequence[str], *, regex: bool = False) -> None:
        self._answers = answers
        self._patterns = [pattern for answer in answers if regex and (pattern := compiled(nfd(answer)))]
        self._runs: dict[tuple[int, ...], list[str] | None] = {}
        # Byte-level vocabularies have other pieces for a word after a space.
        for answer in () if regex else answers:
            for pieces in tokenizer.many([answer.strip(), f" {answer.strip()}"]):
                unknown = tokenizer.unknown in pieces.ids
                self._runs[tuple(pieces.ids)] = words(answer) if unknown else None
        self._runs.pop((), None)

    def spans(self, window: Window, text: str) -> set[Place]:
        """The spans in a window of the passage ``text``."""
        found = self._matches(window, text) if self._patterns else self._equal(window, text)
        begins, ends, of_words = window.begins, window.ends, window.is_word
        return {
            (first, last) for first, last in found if begins[first] and ends[last] and of_words[first : last + 1].all()
        }

    def _equal(self, window: Window, text: str) -> Iterator[Place]:
        ids = list(window.tokens.ids[window.offset : window.offset + len(window.offsets)])
        for run, tokens in self._runs.items():
            for first in range(len(ids) - len(run) + 1):
                last = first + len(run) - 1
                same = tuple(ids[first : last + 1]) == run
                if same and (tokens is None or tokens == words(_text(window, text, first, last))):
                    yield first, last

    def _matches(self, window: Window, text: str) -> Iterator[Place]:
        decomposed = nfd(text)
        places = [at for at, character in enumerate(text) for _ in nfd(character)]  # of its characters in the text
        for pattern in self._patterns:
            for match in pattern.finditer(decomposed):
                if match.end() == match.start():
                    continue
                for first, last in _around(window, places[match.start()], places[match.end() - 1]):
                    if exact_match(_text(window, text, first, last), self._answers, regex=True):
                        yield first, last


def _around(window: Window, begin: int, end: int) -> Iterator[Place]:
    """The span of whole words that begins at a character and reaches to another."""
    starts, ends = window.offsets[:, 0], window.offsets[:, 1]
    first = np.flatnonzero((starts == begin) & window.begins)
    last = np.flatnonzero((ends > end) & window.ends)
    if len(first) and len(last) and last[0] >= first[0]:
        yield int(first[0]), int(last[0])


def _text(window: Window, text: str, first: int, last: int) -> str:
    return text[window.offsets[first, 0] : window.offsets[last, 1]]
