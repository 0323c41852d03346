"""Interface of language models."""

from collections.abc import Generator
from typing import Protocol

from ragqa.errors import RemoteError

CHARACTERS_PER_TOKEN = 3
"""Characters of English that count as a token where a model cannot count; most tokens have more."""
CUT, COMPLETE = "length", "stop"
"""Reasons why a reply ends: its maximum length, or the model's own end."""


class ContextOverflow(RemoteError):
    """Prompt that is longer than the language model can read."""


class LanguageModel(Protocol):
    """Model that writes the reply of a chat."""

    @property
    def name(self) -> str:
        """Name for messages."""
        ...

    @property
    def identity(self) -> str:
        """Name that distinguishes the model from others, for fingerprints and calibrations."""
        ...

    def find_context(self) -> int | None:
        """Return the number of tokens of prompt and reply together; None if the model does not tell it."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, or an estimate that is too high for English."""
        ...

    def write(self, messages: list[dict[str, str]], max_tokens: int) -> Generator[str, None, str]:
        """Yield the reply to messages in pieces; return ``COMPLETE``, ``CUT`` or another reason why it ended.

        Raises:
            ContextOverflow: the messages are too long; nothing was yielded.
            RemoteError: the server failed.
        """
        ...


def estimate_tokens(text: str) -> int:
    """Return an estimate of the number of tokens of a text, too high for English."""
    return -(-len(text.encode()) // CHARACTERS_PER_TOKEN)
