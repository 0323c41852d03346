"""Kinds of generators and default lengths, without importing torch."""

from enum import StrEnum

MAX_INPUT = 300
"""Default maximum length of question and passage together, in tokens (RAG's ``max_combined_length``)."""
MAX_ANSWER = 32
"""Default maximum length of an answer in tokens, including the end token."""


class GeneratorKind(StrEnum):
    """Kind of generator; values are the names on command lines and in saved generators."""

    RAG_TOKEN = "rag-token"
    RAG_SEQUENCE = "rag-sequence"
    FID = "fid"
    CLOSED_BOOK = "closed-book"

    @property
    def uses_scores(self) -> bool:
        """True for RAG, whose prior over passages was trained with the scores of one retriever."""
        return self in (GeneratorKind.RAG_TOKEN, GeneratorKind.RAG_SEQUENCE)
