"""What every reader is to the pipeline."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from ragqa.types import Answer, Hit

PASSAGES = 10
"""Passages that are read for a question where nobody says how many: more cost time and, on SQuAD, gained little."""

NOTHING_FOUND = "no passages were found"
"""Why a question is declined, whatever reads."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How a reader that writes its answers looks for them."""

    beams: int = 1
    """Of beam search; 1 is greedy."""
    fast: bool = False
    """Of RAG-Sequence: a candidate counts only under the passages whose search found it (Lewis et al. 2020, section
    2.5); by default it is scored under all of them."""
    max_answer: int | None = None
    """Tokens of an answer at most, its end included; None is what the generator was trained with."""
    min_answer: int = 0
    """Tokens before an answer may end."""

    @classmethod
    def given(cls, **options: int | bool | None) -> Self | None:
        """Of options on a command line; None where none is given."""
        said = {name: value for name, value in options.items() if value is not None}
        return cls(**said) if said else None  # type: ignore[arg-type]


class Reader(Protocol):
    """Reads the hits of each question and answers it, or declines."""

    fingerprint: str

    @property
    def threshold(self) -> float:
        """Confidence below which its answers are declined where nobody says another."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it answers from what it has learned, without passages."""
        ...

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """One answer a question, in order; a question without hits is declined, unless the reader is closed."""
        ...


@runtime_checkable
class Writes(Protocol):
    """A reader that writes its answers, and can say them meanwhile."""

    decoding: Decoding
    """As it is set, no part of it None."""

    @property
    def passages(self) -> int:
        """Passages of a question that it was trained with."""
        ...

    @property
    def streams(self) -> bool:
        """Whether it says its answers while it writes them, as it is set."""
        ...

    def weighs(self, retriever: str, encoder: str | None) -> str | None:
        """Be told whose scores its hits have: the retriever's kind and its encoder's fingerprint.

        A line where they are not those that it learned with.
        """
        ...

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Pieces of the answer, which joined are its text, then the answer."""
        ...


def passages_of(reader: object) -> int:
    """Passages that a reader is given for a question where nobody says how many."""
    return reader.passages if isinstance(reader, Writes) else PASSAGES
