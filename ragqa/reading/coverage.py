"""Measure which words of a question the passages contain, as evidence for an answer."""

import re
from collections.abc import Iterable

from ragqa.text import FUNCTION_WORDS

_WORD = re.compile(r"[^\W_]+")
_ENDING = 3
"""Number of last letters by which two forms of a word may differ, as in "invented" and "inventor"."""
_SHORTEST_STEM = 4
_MOST_WORDS = 64
"""Number of main words that are looked up; readers read no more of a question, and more words take more time."""


def measure_coverage(question: str, texts: Iterable[str]) -> float:
    """Return the share of a question's main words that at least one of the texts contains.

    Main words are the first 64 words that are not function words. A word is also found with another
    ending of up to three letters. ``ragqa.excerpts.find_question_words`` also gives places, but takes longer.

    Args:
        question: text of the question.
        texts: texts to search.

    Returns:
        Share from 0 to 1; 1 if the question has no main words.
    """
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(question)))
    words = [word for word in words if word not in FUNCTION_WORDS][:_MOST_WORDS]
    if not words:
        return 1.0
    pattern = re.compile(rf"\b(?:{'|'.join(map(_make_pattern, words))})\b", re.IGNORECASE)
    # The number of the group is the number of the word.
    return len({match.lastindex for text in texts for match in pattern.finditer(text)}) / len(words)


def _make_pattern(word: str) -> str:
    if not word.isalpha() or len(word) < _SHORTEST_STEM:
        return f"({word})"
    stem = word[: max(_SHORTEST_STEM, len(word) - _ENDING)]
    return rf"({stem}\w{{0,{len(word) - len(stem) + _ENDING}}})"
