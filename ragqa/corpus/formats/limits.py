"""Limits on what a file may expand to, so that a small file can cost only little time and memory.

Three limits hold, each for another danger:

- The ratio of expansion, within a window (``ExpansionBudget``), for everything that is larger in memory than on disk:
  ``.gz``, ``.bz2``, ``.xz``, members compressed within archives, batches of Arrow and Parquet, text of a PDF. There is
  no limit on the total: a dump of Wikipedia is streamed, and may have any size. Since decompression takes time in
  proportion to its output, this limits the time of these formats, too.
- The size of what a reader holds at once: a text (``MAX_TEXT_BYTES``), a record (``MAX_RECORD_BYTES``).
- The time, for PDF only, whose pages can share their content: see ``ragqa.corpus.formats.pdf``.
"""

from collections.abc import Callable
from io import BufferedIOBase, RawIOBase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_RATIO = 200
"""Most bytes that a byte of a file may expand to. Text reaches 4 to 10, repetitive logs about 100."""
FREE_BYTES = 100 << 20
"""Bytes of a window, within which the ratio does not apply: any small file may expand to that.

At least MAX_RATIO times the bytes that are read from a file ahead, because those count when they are read.
"""
MAX_TEXT_BYTES = 500_000_000
"""Longest text of a file that is one document: held in memory several times, and its offsets fit into 32 bits."""
MAX_RECORD_BYTES = 100_000_000
"""Longest line, article or page of a file of many: 50 times the longest page that MediaWiki allows."""


class LimitError(OSError):
    """Limit that a file exceeds; one of ``READ_ERRORS``."""


class ExpansionBudget:
    """Bytes that a file may still expand to: they grow with each byte that is read from the disk.

    Args:
        tell: function that returns the bytes read from the disk so far; without it nothing is limited.
    """

    def __init__(self, tell: Callable[[], int] | None = None) -> None:
        self._tell = tell
        self._most = self._left = FREE_BYTES
        self._position = 0

    def spend(self, size: int) -> None:
        """Count bytes that the file expanded to.

        Raises:
            LimitError: they are more than MAX_RATIO times the bytes read, and more than FREE_BYTES.
        """
        if self._tell is None:
            return
        position = max(self._position, self._tell())
        self._left += MAX_RATIO * (position - self._position) - size
        self._position = position
        if self._left < 0:
            raise LimitError(f"it expands to more than {MAX_RATIO} times its size, as only a hostile file does")
        # No more than a window is saved up: else a bomb could hide behind gigabytes of text.
        self._left = min(self._left, self._most)

    def count_whole(self, size: int) -> None:
        """Count a whole file of ``size`` bytes as read: for a format whose reader goes back and forth in it."""
        self._most = self._left = FREE_BYTES + MAX_RATIO * size
        self._position = size


class LimitedStream(RawIOBase):
    """Stream whose bytes count as expanded."""

    def __init__(self, stream: BufferedIOBase, budget: ExpansionBudget) -> None:
        self._stream, self._budget = stream, budget

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read into ``buffer``, and return the number of bytes."""
        size = self._stream.readinto(buffer)
        self._budget.spend(size)
        return size


def check_size(size: int, limit: int, what: str) -> None:
    """Raise LimitError if ``what`` of ``size`` bytes is larger than ``limit`` (whole megabytes)."""
    if size > limit:
        raise LimitError(f"{what} is longer than {limit // 1_000_000} MB: split it")
