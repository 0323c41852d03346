"""Set of digests that takes little memory, to find duplicates among millions of documents."""

from array import array
from struct import unpack

_FIRST_SLOTS = 1024


class DigestSet:
    """Set of 16-byte digests that takes 24 to 48 bytes per digest, and at least 16 KiB.

    A Python ``set`` takes over 80 bytes per digest. This set is a hash table with open addressing and linear probing.
    A slot consists of two numbers of 64 bits; the first number of a free slot is zero.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(16 * _FIRST_SLOTS))
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def __contains__(self, digest: bytes) -> bool:
        first, second = _split_digest(digest)
        slot = self._find_slot(first, second)
        return self._slots[slot] == first

    def add(self, digest: bytes) -> None:
        """Add a digest of 16 bytes to the set."""
        first, second = _split_digest(digest)
        slot = self._find_slot(first, second)
        if self._slots[slot]:
            return
        self._slots[slot], self._slots[slot + 1] = first, second
        self._used += 1
        if 6 * self._used > 2 * len(self._slots):  # two thirds of the slots
            self._grow()

    def _find_slot(self, first: int, second: int) -> int:
        """Return the index of a digest's first number, or of the free slot where it belongs."""
        slots = self._slots
        last = len(slots) - 2
        slot = (second << 1) & last
        while slots[slot] and (slots[slot] != first or slots[slot + 1] != second):
            slot = (slot + 2) & last
        return slot

    def _grow(self) -> None:
        old = self._slots
        self._slots = array("Q", bytes(2 * old.itemsize * len(old)))
        for first, second in zip(old[::2], old[1::2], strict=True):
            if first:
                slot = self._find_slot(first, second)
                self._slots[slot], self._slots[slot + 1] = first, second


def _split_digest(digest: bytes) -> tuple[int, int]:
    first, second = unpack("<QQ", digest)
    return first | 1, second  # zero marks a free slot
