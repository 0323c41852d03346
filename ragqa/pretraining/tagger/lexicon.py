"""What a corpus's own titles, and if wanted its texts, tell of names: which phrases and which words are some."""

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np

_IN_BRACKETS = re.compile(r"\s*\([^()]*\)\s*\Z")
_WORD = re.compile(r"[^\W\d_]+")
# Not where a sentence may begin: only a word, a comma or a semicolon stands before.
_INSIDE = re.compile(r"(?<=[\w,;] )[^\W\d_]+")


class HashedStrings:
    """A set of strings in 8 bytes each: only their hashes. One of 10¹² strings is wrongly found among six million."""

    def __init__(self, strings: Iterable[str]) -> None:
        numbers = np.unique(np.fromiter(map(_hash, strings), np.uint64))
        self._sorted = array("Q", numbers.tobytes())

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, string: str) -> bool:
        number = _hash(string)
        at = bisect_left(self._sorted, number)
        return at < len(self._sorted) and self._sorted[at] == number


class Lexicon:
    """The titles of a corpus, and how it writes a word where no sentence begins."""

    def __init__(self, titles: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
        written: Counter[str] = Counter()
        self._titles = HashedStrings(_phrases(titles, written))
        for text in texts:
            _count(_INSIDE.findall(text), written)
        self._ordinary = HashedStrings(word for word, count in written.items() if count > 0)
        self._proper = HashedStrings(word for word, count in written.items() if count < 0)

    def is_title(self, phrase: str) -> bool:
        """Whether a title reads so; what it has in brackets, and words in lower case at its end, left aside."""
        return phrase in self._titles

    def is_ordinary(self, word: str) -> bool:
        """Whether the corpus writes the word in lower case more often than with a capital."""
        return word.lower() in self._ordinary

    def is_proper(self, word: str) -> bool:
        """Whether the corpus writes the word with a capital more often than in lower case."""
        return word.lower() in self._proper


def _hash(string: str) -> int:
    return int.from_bytes(blake2b(string.encode(errors="surrogatepass"), digest_size=8).digest())


def _phrases(titles: Iterable[str], written: Counter[str]) -> Iterator[str]:
    """Each title in the forms that are looked up; what its words look like is counted on the way."""
    for title in titles:
        words = _IN_BRACKETS.sub("", title).split()
        _count((word for rest in words[1:] for word in _WORD.findall(rest)[:1]), written)
        yield " ".join(words)
        while words and words[-1].islower():  # Arts and Crafts movement
            words.pop()
        yield " ".join(words)


def _count(words: Iterable[str], written: Counter[str]) -> None:
    for word in words:
        written[word.lower()] += 1 if word.islower() else -1
