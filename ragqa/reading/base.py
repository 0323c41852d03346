"""What every reader is to the pipeline."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from ragqa.types import Answer, Hit


class Reader(Protocol):
    """Reads the hits of each question and answers it, or declines."""

    fingerprint: str

    @property
    def closed(self) -> bool:
        """Whether it answers from what it has learned, without passages."""
        ...

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """One answer a question, in order; a question without hits is declined, unless the reader is closed."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A reader that writes its answers can say them meanwhile."""

    @property
    def streams(self) -> bool:
        """Whether it does, as it is set."""
        ...

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Pieces of the answer, which joined are its text, then the answer."""
        ...
