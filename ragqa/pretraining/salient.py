"""Salient spans: names, dates and numbers, which are worth to be guessed (REALM, Guu et al. 2020, section 3.4)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SalientSpan:
    """Characters ``start … end`` of a text."""

    start: int
    end: int
    kind: str


class Tagger(Protocol):
    """Finds salient spans."""

    def spans(self, text: str) -> list[SalientSpan]:
        """In order, apart from each other."""
        ...


class RuleTagger:
    """Finds nothing yet."""

    def __init__(self, titles: Iterable[str] = ()) -> None: ...

    def spans(self, text: str) -> list[SalientSpan]:
        """See ``Tagger``."""
        return []


class SpacyTagger:
    """Finds nothing yet."""

    def __init__(self, model: str) -> None: ...

    def spans(self, text: str) -> list[SalientSpan]:
        """See ``Tagger``."""
        return []
