"""Which of many questions a passage answers: ``metrics.has_answer`` for all of them at once."""

from collections.abc import Iterable, Sequence

from ragqa.metrics import compiled, joined, nfd
from ragqa.text import words


class AnswerFinder:
    """Finds, for a passage, the questions whose answers it holds.

    A passage is taken apart once, and only answers whose longest token, likely the rarest, is in it are looked for.
    Patterns cost a search each in every passage.
    """

    def __init__(self, answers: Iterable[Sequence[str]], *, regex: bool = False) -> None:
        """For questions 0 … Q - 1 with these answers, patterns if ``regex``."""
        self._patterns: dict[str, list[int]] = {}
        runs: dict[str, tuple[str, list[int]]] = {}
        for number, each in enumerate(answers):
            for answer in each:
                if regex and answer.strip():
                    self._patterns.setdefault(nfd(answer), []).append(number)
                elif tokens := [] if regex else words(answer):
                    runs.setdefault(joined(tokens), (max(tokens, key=len), []))[1].append(number)
        self._by_token: dict[str, list[tuple[str, list[int]]]] = {}
        for run, (token, numbers) in runs.items():
            self._by_token.setdefault(token, []).append((run, numbers))

    def held(self, text: str) -> list[int]:
        """The numbers, sorted, of the questions that have an answer in ``text``."""
        tokens = words(text) if self._by_token else []
        whole = joined(tokens)
        found: set[int] = set()
        for token in self._by_token.keys() & set(tokens):
            for run, numbers in self._by_token[token]:
                if run in whole:
                    found.update(numbers)
        if self._patterns:
            text = nfd(text)
            for answer, numbers in self._patterns.items():
                if (pattern := compiled(answer)) and pattern.search(text):
                    found.update(numbers)
        return sorted(found)
