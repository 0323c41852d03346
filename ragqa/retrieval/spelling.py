"""Correction of misspelt words in questions, by the words of the passages.

A word is suspect if the index does not know its term and if it is no English word, that is, no whole word of the
vocabulary of the shipped encoder. It is replaced by the nearest word of the passages that fit the rest of the question.
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
"""Shortest word that is corrected, and shortest word that may have two mistakes, in letters."""
_PASSAGES = 20
"""Number of passages in which to look for the right spelling."""
_SUBSTITUTION, _TRANSPOSITION = 1.1, 0.9
"""Costs of another letter and of two letters in the wrong order; a letter too many or too few costs 1."""
_MARGIN = 3
"""How often the best of two equally near words must occur for each time of the other."""


@runtime_checkable
class TermIndex(Protocol):
    """Interface of rankers that know their terms."""

    def has_term(self, word: str) -> bool:
        """Return True if a passage contains the term of a word, or if the word is not indexed."""

    def rank_similar(self, word: str, question: str, k: int) -> Ranking:
        """Return at most ``k`` rows with a term that is similar to ``word``, those that fit the question first."""


def correct_spelling(question: str, terms: TermIndex, passages: PassageStore) -> str:
    """Return the question with its misspelt words replaced, where the right word is certain.

    Words with digits and words of fewer than four letters never change.

    Args:
        question: question in one line.
        terms: index of the terms of the passages.
        passages: passages, by the rows of ``terms``.
    """

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        if len(word) < _SHORTEST or not word.isalpha() or not word.isascii() or word.lower() in FUNCTION_WORDS:
            return word
        if terms.has_term(word) or _is_english(word):
            return word
        rows = terms.rank_similar(word, question, _PASSAGES).rows
        texts = [passage.titled_text for passage in passages.get(rows.tolist())]
        if word[0].isupper():  # a name that the passages lack must not become any name that is spelt alike
            subject = {other.lower() for other in _WORD.findall(question) if other != word} - FUNCTION_WORDS
            texts = [text for text in texts if subject & set(_WORD.findall(text.lower()))]
        return choose_word(word, texts) or word

    return _WORD.sub(replace, question)


def choose_word(word: str, texts: list[str]) -> str | None:
    """Return the word of the texts, or the function word, of which ``word`` is a misspelling; None if not certain.

    Args:
        word: misspelt word.
        texts: texts that can contain the right word.
    """
    lower, limit = word.lower(), 2 if len(word) >= _LONG else 1
    counts = Counter(found for text in texts for found in _WORD.findall(text) if found[0].lower() == lower[0])
    forms = dict(sorted(((form.lower(), form) for form in counts), key=lambda pair: counts[pair[1]]))
    candidates = Counter({found.lower(): 0 for found in counts} | dict.fromkeys(FUNCTION_WORDS, 1))
    for found, count in counts.items():
        candidates[found.lower()] += count
    near: dict[str, float] = {}
    for found in candidates:
        # An ending can be right although the passages lack it: a "miler" is no misspelt "mile".
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
    """Return the cost of the mistakes that turn one word into the other (optimal string alignment).

    Source: Damerau, Communications of the ACM 1964, with costs by kind of mistake.
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
    """Return True if a word is one piece in the vocabulary of the shipped encoder, as frequent words and names are."""
    return len(_load_tokenizer().tokenize(word).ids) == 1


@cache
def _load_tokenizer() -> "TextTokenizer":
    from ragqa.runtime.tokens import TextTokenizer

    return TextTokenizer(get_weights_dir() / "encoder")
