"""A set of digests that 21 million passages can afford."""

from array import array
from struct import unpack

_FIRST_SLOTS = 1024


class DigestSet:
    """A set of 16-byte digests in 24 to 48 bytes each; a ``set`` of ``bytes`` takes more than 100.

    Open addressing with linear probing; two numbers a slot, the first zero where it is free.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(16 * _FIRST_SLOTS))
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def __contains__(self, digest: bytes) -> bool:
        first, second = _numbers(digest)
        at = self._find(first, second)
        return self._slots[at] == first

    def add(self, digest: bytes) -> None:
        """Put a digest into the set, if it is not there."""
        first, second = _numbers(digest)
        at = self._find(first, second)
        if self._slots[at]:
            return
        self._slots[at], self._slots[at + 1] = first, second
        self._used += 1
        if 6 * self._used > 2 * len(self._slots):  # two thirds of the slots
            self._grow()

    def _find(self, first: int, second: int) -> int:
        """Where the digest is, or the free slot where it belongs."""
        slots = self._slots
        last = len(slots) - 2
        at = (second << 1) & last
        while slots[at] and (slots[at] != first or slots[at + 1] != second):
            at = (at + 2) & last
        return at

    def _grow(self) -> None:
        old = self._slots
        self._slots = array("Q", bytes(2 * old.itemsize * len(old)))
        for at in range(0, len(old), 2):
            if old[at]:
                place = self._find(old[at], old[at + 1])
                self._slots[place], self._slots[place + 1] = old[at], old[at + 1]


def _numbers(digest: bytes) -> tuple[int, int]:
    """A digest as two numbers, the first of them never zero."""
    first, second = unpack("<QQ", digest)
    return first | 1, second
