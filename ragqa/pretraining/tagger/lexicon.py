"""Lexicon of names and ordinary words, learned from titles and sample texts of a corpus."""

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np

_IN_BRACKETS = re.compile(r"\s*\([^()]*\)\s*\Z")
_WORD = re.compile(r"[^\W\d_]+")
# Only words after a word, comma or semicolon: elsewhere a sentence may begin, with a capital for any word.
_WORD_INSIDE = re.compile(r"(?<=[\w,;] )[^\W\d_]+")


class HashedStrings:
    """Set of strings that stores only 8-byte hashes.

    A set of six million strings seems to contain another string with probability 3 · 10⁻¹³.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        numbers = np.unique(np.fromiter(map(_hash_string, strings), np.uint64))
        self._sorted = array("Q", numbers.tobytes())

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, string: str) -> bool:
        number = _hash_string(string)
        position = bisect_left(self._sorted, number)
        return position < len(self._sorted) and self._sorted[position] == number


class Lexicon:
    """Titles of a corpus, and the usual case of its words within a sentence.

    Args:
        titles: titles of the corpus's documents.
        texts: sample of the corpus's texts, which shows how often a word has a capital.
    """

    def __init__(self, titles: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
        case_counts: Counter[str] = Counter()  # times in lower case minus times with a capital
        self._titles = HashedStrings(_iter_phrases(titles, case_counts))
        for text in texts:
            _count_case(_WORD_INSIDE.findall(text), case_counts)
        self._ordinary = HashedStrings(word for word, count in case_counts.items() if count > 0)
        self._proper = HashedStrings(word for word, count in case_counts.items() if count < 0)

    def is_title(self, phrase: str) -> bool:
        """Return True if a phrase is the title of a document of the corpus.

        The phrase has no ending in brackets, even if the title does; final words in lower case are optional.
        """
        return phrase in self._titles

    def is_ordinary(self, word: str) -> bool:
        """Return True if the corpus writes the word mostly in lower case."""
        return word.lower() in self._ordinary

    def is_proper(self, word: str) -> bool:
        """Return True if the corpus writes the word mostly with a capital."""
        return word.lower() in self._proper


def _hash_string(string: str) -> int:
    return int.from_bytes(blake2b(string.encode(errors="surrogatepass"), digest_size=8).digest())


def _iter_phrases(titles: Iterable[str], case_counts: Counter[str]) -> Iterator[str]:
    """Yield the forms of each title to look up; count the case of its words except the first."""
    for title in titles:
        words = _IN_BRACKETS.sub("", title).split()
        _count_case((word for rest in words[1:] for word in _WORD.findall(rest)[:1]), case_counts)
        yield " ".join(words)
        while words and words[-1].islower():  # Arts and Crafts movement
            words.pop()
        yield " ".join(words)


def _count_case(words: Iterable[str], case_counts: Counter[str]) -> None:
    for word in words:
        case_counts[word.lower()] += 1 if word.islower() else -1
