"""Which of many questions a passage answers: ``metrics.has_answer`` for all of them at once."""

from collections.abc import Iterable, Iterator, Sequence

from ragqa.matching import patterns
from ragqa.matching.patterns import Search
from ragqa.metrics import joined, nfd
from ragqa.text import words

_GRAM = 3
"""Characters by which it is seen at once that a passage lacks most of what the patterns need."""


class AnswerFinder:
    """Finds, for a passage, the questions whose answers it holds.

    A passage is taken apart once, and only answers whose longest token, likely the rarest, is in it are looked for.
    A pattern is searched only where something that it needs stands.
    """

    def __init__(self, answers: Iterable[Sequence[str]], *, regex: bool = False) -> None:
        """For questions 0 … Q - 1 with these answers, patterns if ``regex``."""
        searched: dict[str, list[int]] = {}
        runs: dict[str, tuple[str, list[int]]] = {}
        for number, each in enumerate(answers):
            for answer in each:
                if regex and answer.strip():
                    searched.setdefault(nfd(answer), []).append(number)
                elif tokens := [] if regex else words(answer):
                    runs.setdefault(joined(tokens), (max(tokens, key=len), []))[1].append(number)
        self._by_token: dict[str, list[tuple[str, list[int]]]] = {}
        for run, (token, numbers) in runs.items():
            self._by_token.setdefault(token, []).append((run, numbers))
        self._patterns = _Patterns(searched)

    def held(self, text: str) -> list[int]:
        """The numbers, sorted, of the questions that have an answer in ``text``."""
        tokens = words(text) if self._by_token else []
        whole = joined(tokens)
        found: set[int] = set()
        for token in self._by_token.keys() & set(tokens):
            for run, numbers in self._by_token[token]:
                if run in whole:
                    found.update(numbers)
        for numbers in self._patterns.found(text):
            found.update(numbers)
        return sorted(found)


class _Patterns:
    """Patterns, and whose answers they are, by the first characters of what each needs."""

    def __init__(self, numbers: dict[str, list[int]]) -> None:
        self._searches: list[tuple[Search, list[int]]] = []
        self._always: list[int] = []
        self._short: list[tuple[str, int]] = []
        self._by_gram: dict[str, list[tuple[str, int]]] = {}
        for pattern, own in numbers.items():
            if search := patterns.search(pattern):
                self._add(search, own)

    def _add(self, search: Search, own: list[int]) -> None:
        at = len(self._searches)
        self._searches.append((search, own))
        if search.needed is None:
            self._always.append(at)
        for text in search.needed or ():
            place = self._by_gram.setdefault(text[:_GRAM], []) if len(text) >= _GRAM else self._short
            place.append((text, at))

    def found(self, text: str) -> Iterator[list[int]]:
        """The numbers of each pattern that is in ``text``."""
        if not self._searches:
            return
        text = nfd(text)
        low = patterns.folded(text)
        grams = {low[at : at + _GRAM] for at in range(len(low) - _GRAM + 1)}
        likely = [each for gram in self._by_gram.keys() & grams for each in self._by_gram[gram]]
        for at in {*self._always, *(at for part, at in (*likely, *self._short) if part in low)}:
            search, own = self._searches[at]
            if search.pattern.search(text):
                yield own
