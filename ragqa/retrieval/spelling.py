"""Correction of misspelt words in questions, by the words of the passages.

A word counts as misspelt if the index lacks its term, and the vocabulary of the shipped encoder, which has the frequent
English words, lacks the word too. The correction is the nearest word in passages with a similar term; the 20 passages
that match the question best are read.
"""

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ragqa.artefacts.paths import get_weights_dir
from ragqa.corpus.store import PassageStore
from ragqa.retrieval.base import Ranking
from ragqa.text import FUNCTION_WORDS

if TYPE_CHECKING:
    from ragqa.runtime.tokens import TextTokenizer

_WORD = re.compile(r"\w+")
_SHORTEST, _LONG = 4, 8
"""Minimum length in letters of a word to correct, and of a word that can have two mistakes."""
_PASSAGES = 20
"""Number of passages in which to look for the right spelling."""
_SUBSTITUTION, _TRANSPOSITION = 1.1, 0.9
"""Costs of a wrong letter and of two swapped letters; an additional or missing letter costs 1."""
_MARGIN = 3
"""Minimum ratio of the counts of two equally near words to choose the more frequent one."""


@runtime_checkable
class TermIndex(Protocol):
    """Interface of rankers that can look up their terms."""

    def has_term(self, word: str) -> bool:
        """Return True if a passage contains the term of a word.

        The result is also True for a word that is not indexed, such as a stop word, and if terms cannot be looked up.
        """

    def rank_similar(self, word: str, question: str, k: int) -> Ranking:
        """Return at most ``k`` rows with a term similar to a word, as ``BM25.rank_similar`` does."""


def correct_spelling(question: str, terms: TermIndex, passages: PassageStore) -> str:
    """Return the question with misspelt words replaced, if their right spelling is certain.

    Function words, words of fewer than four letters, and words with characters other than ASCII letters never change.

    Args:
        question: question in one line.
        terms: ranker over the terms of the passages.
        passages: passages that ``terms`` ranks.
    """

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        if len(word) < _SHORTEST or not word.isalpha() or not word.isascii() or word.lower() in FUNCTION_WORDS:
            return word
        if terms.has_term(word) or _is_english(word):
            return word
        rows = terms.rank_similar(word, question, _PASSAGES).rows
        texts = [passage.titled_text for passage in passages.get(rows.tolist())]
        if word[0].isupper():  # a name that is in no passage must not become another name with a similar spelling
            subject = {other.lower() for other in _WORD.findall(question) if other != word} - FUNCTION_WORDS
            texts = [text for text in texts if subject & set(_WORD.findall(text.lower()))]
        return choose_word(word, texts) or word

    return _WORD.sub(replace, question)


def choose_word(word: str, texts: list[str]) -> str | None:
    """Return the right spelling of a word, or None if it is not certain.

    The first letter counts as right.

    Args:
        word: misspelt word.
        texts: texts in which to look for the right word; function words are also candidates.
    """
    lower, limit = word.lower(), 2 if len(word) >= _LONG else 1
    counts = Counter(found for text in texts for found in _WORD.findall(text) if found[0].lower() == lower[0])
    forms = dict(sorted(((form.lower(), form) for form in counts), key=lambda pair: counts[pair[1]]))
    candidates = Counter({found.lower(): 0 for found in counts} | dict.fromkeys(FUNCTION_WORDS, 1))
    for found, count in counts.items():
        candidates[found.lower()] += count
    near: dict[str, float] = {}
    for found in candidates:
        # A word can have an ending that is in no passage: "miler" is not a misspelling of "mile".
        if found[0] == lower[0] and found.isalpha() and not lower.startswith(found) and len(found) > 2:
            distance = measure_distance(lower, found)
            if distance < limit + 0.5:
                near[found] = distance
    if not near:
        return None
    best, *others = sorted(near, key=lambda found: (near[found], -candidates[found]))
    if others and near[others[0]] == near[best] and candidates[best] < _MARGIN * candidates[others[0]]:
        return None
    if not word[0].isupper():
        return best
    form = forms.get(best, best)
    return form.capitalize() if form.islower() else form


def measure_distance(word: str, other: str) -> float:
    """Return the lowest total cost of mistakes that change one word to the other.

    This is the optimal string alignment distance (Damerau, Communications of the ACM 1964), with a cost for each kind
    of mistake.
    """
    before: list[float] = []
    last: list[float] = [float(n) for n in range(len(other) + 1)]
    for i, letter in enumerate(word, 1):
        row = [float(i)]
        for j, target in enumerate(other, 1):
            same = last[j - 1] + (0 if letter == target else _SUBSTITUTION)
            row.append(min(same, last[j] + 1, row[-1] + 1))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == target:
                row[-1] = min(row[-1], before[j - 2] + _TRANSPOSITION)
        before, last = last, row
    return last[-1]


def _is_english(word: str) -> bool:
    """Return True if the vocabulary of the shipped encoder has the word as one piece."""
    return len(_load_tokenizer().tokenize(word).ids) == 1


@cache
def _load_tokenizer() -> "TextTokenizer":
    from ragqa.runtime.tokens import TextTokenizer

    return TextTokenizer(get_weights_dir() / "encoder")
