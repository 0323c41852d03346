"""Limits on the expanded size of files, so that a small file costs little time and memory.

There are three limits:

- The ratio of expanded to compressed size (``ExpansionBudget``). It applies to ``.gz``, ``.bz2``, ``.xz``, compressed
  members of archives, batches of Arrow and Parquet, and the text of a PDF. The total size has no limit, since a dump of
  Wikipedia is streamed. Decompression takes time in proportion to its output, so the ratio also limits the time.
- The size of what a parser holds in memory at once: a text (``MAX_TEXT_BYTES``) or a record (``MAX_RECORD_BYTES``).
- The time and the memory, for the files that ``ragqa.corpus.formats.office`` reads: pages of a PDF can share their
  content, so a small PDF can take very long.
"""

from collections.abc import Callable
from io import BufferedIOBase, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK_BYTES = 512
"""Size in bytes of the blocks that ``st_blocks`` counts, on every file system."""
MAX_RATIO = 200
"""Maximum number of expanded bytes per byte of a file; text has 4 to 10, repetitive logs about 100."""
FREE_BYTES = 100 << 20
"""Number of expanded bytes that are always allowed, whatever the ratio.

It must be at least MAX_RATIO times the size of read buffers, because the ratio counts bytes when they are read.
"""
MAX_TEXT_BYTES = 500_000_000
"""Maximum size of a file that is one document: copies of it must fit into memory, and its offsets into 32 bits."""
MAX_RECORD_BYTES = 100_000_000
"""Maximum size of a line, article, mail or header: 50 times the longest page that MediaWiki allows."""


class LimitError(OSError):
    """File that exceeds a limit of this module; as an OSError, it is one of ``READ_ERRORS``."""


def check_size_on_disk(path: Path) -> None:
    """Raise LimitError if a file is sparse: much larger than its blocks on the disk.

    A sparse file reads as endless zeros. A file for which the file system counts no blocks passes.
    """
    state = path.stat()
    on_disk = state.st_blocks * _BLOCK_BYTES
    if on_disk and state.st_size > FREE_BYTES + MAX_RATIO * on_disk:
        raise LimitError(f"it is sparse: only {on_disk:,} of its {state.st_size:,} bytes are on the disk")


class ExpansionBudget:
    """Number of bytes to which a file can still expand.

    The budget begins with FREE_BYTES, its maximum. It grows by MAX_RATIO for each byte that is read from the disk.

    Args:
        tell: function that returns the number of bytes read from the disk so far; None for no limit.
    """

    def __init__(self, tell: Callable[[], int] | None = None) -> None:
        self._tell = tell
        self._most = self._left = FREE_BYTES
        self._position = 0

    def spend(self, size: int) -> None:
        """Subtract ``size`` expanded bytes from the budget.

        Raises:
            LimitError: the budget is too small.
        """
        if self._tell is None:
            return
        position = max(self._position, self._tell())
        self._left += MAX_RATIO * (position - self._position) - size
        self._position = position
        if self._left < 0:
            raise LimitError(f"it expands to more than {MAX_RATIO} times its size, as only a hostile file does")
        # Without a maximum, a bomb could hide behind gigabytes of text.
        self._left = min(self._left, self._most)

    def count_whole(self, size: int) -> None:
        """Set the budget and its maximum for a file of ``size`` bytes that is not read in order."""
        self._most = self._left = FREE_BYTES + MAX_RATIO * size
        self._position = size


class LimitedStream(RawIOBase):
    """Stream of decompressed bytes, each of which spends a byte of a budget."""

    def __init__(self, stream: BufferedIOBase, budget: ExpansionBudget) -> None:
        self._stream, self._budget = stream, budget

    def readable(self) -> bool:
        """Return True, as ``BufferedReader`` requires."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read bytes into ``buffer``, and return their number.

        Raises:
            LimitError: the budget is too small.
        """
        size = self._stream.readinto(buffer)
        self._budget.spend(size)
        return size


def check_size(size: int, limit: int, what: str) -> None:
    """Raise LimitError if ``size`` is larger than ``limit``.

    Args:
        size: size in bytes.
        limit: maximum size in bytes, a multiple of 1,000,000.
        what: noun phrase for the measured text, which begins the message.
    """
    if size > limit:
        raise LimitError(f"{what} is longer than {limit // 1_000_000} MB: split it")
