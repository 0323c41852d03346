"""Search a passage for the answers to many questions by the rule of ``has_answer``."""

from collections.abc import Iterable, Iterator, Sequence

from ragqa.matching import patterns
from ragqa.matching.patterns import Search
from ragqa.text import join_tokens, split_words, to_nfd

_GRAM = 3
"""Length in characters of the prefixes by which needed texts are looked up."""


class AnswerFinder:
    """Finder of the questions that have an answer in a passage.

    A passage is tokenized once. It is searched for an answer only if it has the answer's longest token, which is
    probably the rarest, and for a pattern only if it has a text that the pattern needs (``ragqa.matching.patterns``).
    """

    def __init__(self, answers: Iterable[Sequence[str]], *, regex: bool = False) -> None:
        """Index the answers.

        Args:
            answers: gold answers of each question; questions are numbered from 0 in this order.
            regex: True if the answers are patterns; invalid patterns are ignored.
        """
        questions_of_pattern: dict[str, list[int]] = {}
        sequences: dict[str, tuple[str, list[int]]] = {}
        for number, answers_of_question in enumerate(answers):
            for answer in answers_of_question:
                if regex and answer.strip():
                    questions_of_pattern.setdefault(to_nfd(answer), []).append(number)
                elif tokens := [] if regex else split_words(answer):
                    sequences.setdefault(join_tokens(tokens), (max(tokens, key=len), []))[1].append(number)
        self._by_token: dict[str, list[tuple[str, list[int]]]] = {}
        for sequence, (token, numbers) in sequences.items():
            self._by_token.setdefault(token, []).append((sequence, numbers))
        self._patterns = _PatternIndex(questions_of_pattern)

    def find_questions(self, text: str) -> list[int]:
        """Return the sorted numbers of the questions that have an answer in ``text``.

        Raises:
            SlowPattern: a pattern takes too long.
        """
        tokens = split_words(text) if self._by_token else []
        joined_text = join_tokens(tokens)
        questions: set[int] = set()
        for token in self._by_token.keys() & set(tokens):
            for sequence, numbers in self._by_token[token]:
                if sequence in joined_text:
                    questions.update(numbers)
        for numbers in self._patterns.find(text):
            questions.update(numbers)
        return sorted(questions)


class _PatternIndex:
    """Index of patterns with the numbers of their questions, by the prefix of needed texts."""

    def __init__(self, numbers: dict[str, list[int]]) -> None:
        self._searches: list[tuple[Search, list[int]]] = []
        self._short: list[tuple[str, int]] = []
        self._by_gram: dict[str, list[tuple[str, int]]] = {}
        for pattern, questions in numbers.items():
            if search := patterns.compile_search(pattern):
                self._add(search, questions)

    def _add(self, search: Search, numbers: list[int]) -> None:
        position = len(self._searches)
        self._searches.append((search, numbers))
        # Every text contains the empty text, so a pattern without needed texts is always searched.
        for text in search.needed_texts or [""]:
            entries = self._by_gram.setdefault(text[:_GRAM], []) if len(text) >= _GRAM else self._short
            entries.append((text, position))

    def find(self, text: str) -> Iterator[list[int]]:
        if not self._searches:
            return
        text = to_nfd(text)
        folded = patterns.fold_case(text)
        grams = {folded[start : start + _GRAM] for start in range(len(folded) - _GRAM + 1)}
        entries = [entry for gram in self._by_gram.keys() & grams for entry in self._by_gram[gram]]
        for position in {position for needed, position in (*entries, *self._short) if needed in folded}:
            search, numbers = self._searches[position]
            if search.pattern.search(text):
                yield numbers
