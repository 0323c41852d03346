"""Interface of language models that write answers."""

from collections.abc import Generator
from typing import Protocol

from ragqa.errors import RemoteError

BYTES_PER_TOKEN = 3
"""Bytes of UTF-8 that count as one token if the model cannot count tokens; most English tokens have more."""
CUT, COMPLETE = "length", "stop"
"""Reasons why a reply ends: the reply has the maximum length, or the model ended the reply itself."""


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
        """Return the maximum number of tokens of prompt and reply together; None if unknown.

        Raises:
            DamagedArtefact: the file of the model cannot be loaded.
            BadInput: the server has several models or none, and none is named.
            RemoteError: a model in a file is still writing another reply.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, or an estimate; errors as for ``find_context``."""
        ...

    def write(self, messages: list[dict[str, str]], max_tokens: int) -> Generator[str, None, str]:
        """Yield the reply to messages in pieces; return the reason why it ended.

        Args:
            messages: messages of the chat, each with ``role`` and ``content``.
            max_tokens: maximum length of the reply in tokens.

        Returns:
            ``COMPLETE``, ``CUT`` or another reason of the server or of llama.cpp.

        Raises:
            ContextOverflow: the messages are too long; nothing was yielded.
            RemoteError: the server failed, or as for ``find_context``.
            DamagedArtefact, BadInput: as for ``find_context``.
        """
        ...


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text from its size in UTF-8.

    The estimate is usually too high for English.
    """
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
