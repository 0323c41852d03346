"""Align the words of a quotation with the most similar part of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_PREFIX = 16
"""Number of first characters of two words that are compared."""


class Word(NamedTuple):
    """Word with its place in a text: characters ``start`` to ``end`` (exclusive)."""

    text: str
    start: int
    end: int


class AlignedWords(NamedTuple):
    """Run of words that are all equal or all different, as word numbers in both texts."""

    is_equal: bool
    quote: range
    text: range


@dataclass(frozen=True)
class Alignment:
    """Alignment of all words of a quotation with consecutive words of a text.

    The words of each side are numbered from 0.
    """

    steps: list[AlignedWords]
    """Runs of words, in order."""
    cost: int
    """Cost as in ``align_words``, about the number of different characters."""
    similarity: float
    """Share of equal words in the aligned words of both sides, weighted by their characters, from 0 to 1."""
    first: int
    """Number of the first aligned word of the text."""
    last: int
    """Number of the last aligned word of the text."""


def align_words(quote: Sequence[Word], text: Sequence[Word]) -> Alignment:
    """Return the cheapest alignment of a quotation with consecutive words of a text.

    - A word that is only on one side costs its length in characters.
    - A changed word costs the length of the longer word without the common prefix; at least 1, and at most the length
      of the quotation's word, so that a changed last word does not count as missing.
    - Words of the text before and after the aligned part cost nothing.

    Time and memory are proportional to the product of the two numbers of words.

    Args:
        quote: words of the quotation, at least one.
        text: words of the text, at least one.
    """
    numbers: dict[str, int] = {}
    numbers_text = np.array([numbers.setdefault(word.text, len(numbers)) for word in text])
    lengths_text = np.array([len(word.text) for word in text], np.int32)
    letters = np.array([_pad(word.text) for word in text])
    insertion = np.concatenate(([0], np.cumsum(lengths_text)), dtype=np.int32)
    costs = np.zeros((len(quote) + 1, len(text) + 1), np.int32)
    changes = np.zeros((len(quote), len(text)), np.int32)
    costs_of_word: dict[str, np.ndarray] = {}
    for row, word in enumerate(quote):
        if word.text not in costs_of_word:
            is_equal = numbers_text == numbers.get(word.text)
            costs_of_word[word.text] = np.where(is_equal, 0, _compare(word.text, letters, lengths_text))
        changes[row] = costs_of_word[word.text]
        deleted = costs[row] + len(word.text)
        best = deleted.copy()
        best[1:] = np.minimum(deleted[1:], costs[row, :-1] + changes[row])
        # A word that only the text has costs its length, so the cost is a minimum over all columns to the left.
        costs[row + 1] = insertion + np.minimum.accumulate(best - insertion)
    return _trace_back(quote, text, costs, changes)


def _pad(word: str) -> list[int]:
    return [ord(character) for character in word[:_PREFIX].ljust(_PREFIX, "\0")]


def _compare(word: str, letters: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the cost [N] of each of the N words of a text in place of ``word``."""
    common = np.cumprod((letters == _pad(word)) & (letters != 0), axis=1).sum(axis=1)
    return np.asarray(np.clip(np.maximum(lengths, len(word)) - common, 1, len(word)))


def _trace_back(quote: Sequence[Word], text: Sequence[Word], costs: np.ndarray, changes: np.ndarray) -> Alignment:
    row, column = len(quote), int(costs[-1].argmin())
    cost, end = int(costs[row, column]), column
    pairs: list[tuple[bool, int, int]] = []  # equal, words of the quotation, words of the text; from the end
    while row:
        if column and costs[row, column] == costs[row - 1, column - 1] + changes[row - 1, column - 1]:
            row, column = row - 1, column - 1
            pairs.append((changes[row, column] == 0, 1, 1))
        elif costs[row, column] == costs[row - 1, column] + len(quote[row - 1].text):
            row -= 1
            pairs.append((False, 1, 0))
        else:
            column -= 1
            pairs.append((False, 0, 1))
    steps: list[AlignedWords] = []
    at_quote, at_text = 0, column
    for is_equal, words, others in reversed(pairs):
        if steps and steps[-1].is_equal == is_equal:
            first_word, first_other = steps[-1].quote.start, steps[-1].text.start
            steps.pop()
        else:
            first_word, first_other = at_quote, at_text
        at_quote, at_text = at_quote + words, at_text + others
        steps.append(AlignedWords(bool(is_equal), range(first_word, at_quote), range(first_other, at_text)))
    shared = sum(len(text[number].text) for step in steps if step.is_equal for number in step.text)
    total = sum(len(word.text) for word in quote) + sum(len(word.text) for word in text[column:end])
    return Alignment(steps, cost, 2 * shared / total, min(column, len(text) - 1), max(column, end - 1))
