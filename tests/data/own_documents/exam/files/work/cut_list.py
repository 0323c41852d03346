"""Make the cut list of a piece of furniture: parts, board lengths and waste.

Written by Nuala Sethi in November 2022, after a whole oak plank had been cut 30 mm too short.
"""

from dataclasses import dataclass

SAW_KERF_MM = 3.2
"""Width of the saw cut. The old blade took 4 mm; it was sold to the boat club."""
TRIM_MM = 25
"""Cut off at both ends of a board, because the ends of a dried board are cracked."""
BOARD_LENGTHS_MM = (2450, 3100, 4200)
MAX_WASTE = 0.28
"""Above this share the list is refused, and Casimir Oake has to sign it by hand."""


@dataclass(frozen=True)
class Part:
    """Part of a piece, with its finished size in millimetres."""

    name: str
    length: float
    width: float
    count: int = 1


HERON_BOOKCASE = (
    Part("side", 1980, 280, 2),
    Part("shelf", 864, 265, 6),
    Part("plinth", 864, 90),
    Part("back rail", 864, 110, 2),
)
PIPPIN_STOOL = (Part("seat", 340, 340), Part("leg", 455, 38, 3))


def count_boards(parts: tuple[Part, ...], board: int) -> int:
    """Return the number of boards that the parts need, the longest part first."""
    rests: list[float] = []
    for part in sorted(parts, key=lambda p: -p.length):
        for _ in range(part.count):
            need = part.length + SAW_KERF_MM
            fitting = [n for n, rest in enumerate(rests) if rest >= need]
            if fitting:
                rests[fitting[0]] -= need
            else:
                rests.append(board - 2 * TRIM_MM - need)
    return len(rests)


def choose_board(parts: tuple[Part, ...]) -> tuple[int, float]:
    """Return the board length with the least waste, and the share of waste.

    Raises:
        ValueError: the waste is above the limit for each length.
    """
    used = sum(part.length * part.count for part in parts)
    waste, board = min((1 - used / (count_boards(parts, b) * b), b) for b in BOARD_LENGTHS_MM)
    if waste > MAX_WASTE:
        raise ValueError(f"waste of {waste:.0%}: combine the list with another piece")
    return board, waste


if __name__ == "__main__":
    print(choose_board(HERON_BOOKCASE))
