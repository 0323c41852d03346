"""Near misses: questions changed by rule, so that their passage no longer answers them.

A name, a date, a number or a relation of the question is replaced ("the first president" becomes "the last president").
From these questions a reader learns to decline if a passage almost answers. In SQuAD 2.0, annotators wrote questions of
this kind (Rajpurkar et al. 2018, section 3).
"""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ragqa.pretraining.salient import RuleTagger, SalientSpan

_RELATED_WORDS = (
    "first second third last, largest smallest, biggest smallest, most least, north south east west, northern "
    "southern eastern western, won lost, win lose, winner loser, oldest youngest, older younger, earliest latest, "
    "increase decrease, increased decreased, maximum minimum, male female, men women, above below, longest shortest, "
    "best worst, upper lower, inside outside, import export, allies enemies, attacked defended, founded dissolved, "
    "rural urban, positive negative, rich poor, public private, majority minority, top bottom, mother father husband "
    "wife son daughter brother sister uncle, born married buried elected arrested, die marry retire resign, built "
    "destroyed opened closed designed sold bought painted repaired, wrote translated directed, architect owner "
    "captain president mayor author king bishop editor, tall heavy deep fast, height weight width depth speed price "
    "temperature, red blue green yellow white black"
)
"""Groups of words; if one word of a group replaces another, a question asks for something else."""
_ALTERNATIVES = {
    word: [other for group in _RELATED_WORDS.split(", ") if word in group.split() for other in group.split()]
    for word in _RELATED_WORDS.replace(",", "").split()
    if word != "last"  # often a verb: "how long did it last"
}
_STEM = 5
"""Number of first letters that count when a word is looked for in a passage: "married" is found in "marriage"."""
_WORD = re.compile(r"[A-Za-z]+")
_DIGITS = re.compile(r"\d+")
_QUESTION_WORDS = frozenset("how what when where which who whom whose why".split())  # noqa: SIM905


class NearMissMaker:
    """Maker of near misses by three rules: for names, for numbers and for relations."""

    def __init__(self) -> None:
        self._tagger = RuleTagger()

    def find_names(self, questions: Sequence[str]) -> list[str]:
        """Return the different names in questions, in the order of their first occurrence."""
        names = (text[span.start : span.end] for text in questions for span in self._find(text, "name"))
        return list(dict.fromkeys(names))

    def make(self, question: str, passage: str, names: Sequence[str], rng: np.random.Generator) -> str | None:
        """Change a question so that its passage no longer answers it.

        One part of the question is replaced: a name or number that is in the passage, or a word of
        ``_RELATED_WORDS``. The replacement is not in the passage.

        Args:
            question: text of the question.
            passage: text that answers the question.
            names: names to choose a replacement from, for example names in questions about the same article.
            rng: random generator.

        Returns:
            The changed question, or None if no rule applies.
        """
        makers: list[Callable[[], Iterator[tuple[int, int, str]]]] = [
            lambda: self._change_names(question, passage, names, rng),
            lambda: self._change_numbers(question, passage, rng),
            lambda: _change_relations(question, passage),
        ]
        for place in rng.permutation(len(makers)):
            if changes := list(makers[place]()):
                start, end, text = changes[rng.integers(len(changes))]
                return question[:start] + text + question[end:]
        return None

    def _find(self, text: str, *kinds: str) -> list[SalientSpan]:
        return [
            span
            for span in self._tagger.find_spans(text)
            if span.kind in kinds and text[span.start : span.end].lower() not in _QUESTION_WORDS
        ]

    def _change_names(
        self, question: str, passage: str, names: Sequence[str], rng: np.random.Generator
    ) -> Iterator[tuple[int, int, str]]:
        lower = passage.lower()
        for span in self._find(question, "name"):
            name = question[span.start : span.end]
            others = [other for other in names if other.lower() not in lower and other.lower() not in question.lower()]
            same_length = [other for other in others if len(other.split()) == len(name.split())]
            if name.lower() in lower and (choices := same_length or others):
                yield span.start, span.end, choices[rng.integers(len(choices))]

    def _change_numbers(self, question: str, passage: str, rng: np.random.Generator) -> Iterator[tuple[int, int, str]]:
        for span in self._find(question, "date", "number"):
            for match in _DIGITS.finditer(question, span.start, span.end):
                value, digits = int(match[0]), match[0]
                if digits in passage and len(digits) < 10:
                    step = int(rng.integers(1, 30 if len(digits) == 4 else 5 + value))
                    changed = str(max(1, value + (step if rng.random() < 0.5 else -step))).zfill(len(digits))
                    if changed not in passage and changed != digits:
                        yield match.start(), match.end(), changed


def _change_relations(question: str, passage: str) -> Iterator[tuple[int, int, str]]:
    stems = {word.lower()[:_STEM] for word in _WORD.findall(passage)}
    for match in _WORD.finditer(question):
        if match[0].islower():
            for other in _ALTERNATIVES.get(match[0], ()):
                if other != match[0] and other[:_STEM] not in stems:
                    yield match.start(), match.end(), other
