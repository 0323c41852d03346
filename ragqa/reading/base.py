"""Interfaces of readers, and settings of answer generation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from ragqa.types import Answer, Hit, Source

DEFAULT_PASSAGES = 30
"""Default number of passages of a span reader; on held-out questions, 10 or 20 gave fewer right answers."""
ALTERNATIVES = 4
"""Maximum number of alternatives of an answer."""
NO_PASSAGES = "no passages were found"
"""Reason that every reader gives when it declines a question without passages."""
ONLY_ENGLISH = "only English is read well"
"""Reason why a span reader declines a question in a script that its model does not know."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Settings with which a generator decodes answers."""

    beams: int = 1
    """Number of beams of beam search; 1 is greedy search."""
    fast: bool = False
    """True for fast decoding of RAG-Sequence (Lewis et al. 2020, section 2.5).

    Fast decoding scores a candidate only under the passages whose search found the candidate.
    """
    max_answer: int | None = None
    """Maximum answer length in tokens, including the end; None for the reader's default."""
    min_answer: int = 0
    """Minimum number of tokens before the end of an answer."""

    @classmethod
    def from_options(cls, **options: int | bool | None) -> Self | None:
        """Make settings from command-line options, or return None if no option is set.

        Args:
            options: fields of the class by name; None for an option that is not set.
        """
        values = {name: value for name, value in options.items() if value is not None}
        return cls(**values) if values else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class RetrieverIdentity:
    """Identity of the retriever whose hits a reader reads."""

    kind: str
    """Name of the retriever, for messages."""
    encoder: str | None
    """Fingerprint of the encoder whose inner products are the scores; None for other scores."""


class Reader(Protocol):
    """Reader that answers questions from retrieved passages, or declines them."""

    kind: str
    """Key of ``ragqa.reading.registry.READERS``."""
    fingerprint: str
    """Text that identifies the model and its calibration (torch generators: only the model).

    A saved pipeline records it, to notice a changed reader.
    """

    @property
    def threshold(self) -> float:
        """Confidence below which answers are declined by default, from 0 to 1."""
        ...

    @property
    def is_closed_book(self) -> bool:
        """True for a reader that answers from memory, without passages."""
        ...

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """Return an answer for each question, in order.

        A question without hits is declined, except by a closed-book reader.

        Args:
            questions: texts of the questions.
            hits: passages of each question, best first.

        Raises:
            BadInput: the reader has no room for a passage, or a server needs the name of a model.
            ArtefactError, DamagedArtefact: a model that is loaded with the first question is missing or damaged.
            RemoteError: the server of a language model fails, or not even one passage fits into its context.
        """
        ...


@runtime_checkable
class AnswerGenerator(Protocol):
    """Reader that generates its answers; some settings allow it to stream them."""

    decoding: Decoding
    """Settings in use; no field is None."""
    warning: str | None
    """Warning for the user: another retriever than in training, or no calibration of the model; otherwise None."""

    @property
    def passages(self) -> int:
        """Default number of passages per question; for a trained generator, the number in training."""
        ...

    @property
    def can_stream(self) -> bool:
        """True if the reader can stream answers with its decoding settings."""
        ...

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Yield the text of the answer in pieces, and at the end the complete ``Answer``.

        Args:
            question: text of the question.
            hits: passages of the question, best first.

        Raises:
            RagqaError: as for ``Reader.read``.
        """
        ...


@runtime_checkable
class LatinReader(Protocol):
    """Reader whose model can be limited to questions in Latin script."""

    def can_read(self, question: str) -> bool:
        """Return True if the model can read the script of the question."""
        ...


def get_default_passages(reader: object) -> int:
    """Return the default number of passages per question of a reader."""
    return reader.passages if isinstance(reader, AnswerGenerator) else DEFAULT_PASSAGES


def decline(question: str, hits: Sequence[Hit], reason: str, note: str | None = None) -> Answer:
    """Return a declined answer with confidence 0.

    Args:
        question: text of the question.
        hits: nearest passages, which become the sources.
        reason: short reason for declining.
        note: remark for the user.
    """
    nearest = tuple(Source(hit, None, 0.0) for hit in hits)
    return Answer(question, None, float("-inf"), 0.0, nearest, supported=None, reason=reason, note=note)
