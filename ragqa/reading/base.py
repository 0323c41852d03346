"""What every reader is to the pipeline."""

from typing import Protocol

from ragqa.types import Answer, Hit


class Reader(Protocol):
    """Reads the hits of each question and answers it, or declines."""

    fingerprint: str

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """One answer a question, in order; a question without hits is declined."""
        ...
