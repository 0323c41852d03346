"""Tables as records: one line a row, in which each value stands with the name of its column."""

from collections.abc import Sequence

MAX_COLUMNS = 1_000
"""Number of columns that are read; the rest of a wider row is left out."""


def format_record(columns: Sequence[str], values: Sequence[str]) -> str:
    """Return a row as one line of text, ``Item: lamp; Stock: 42``; an empty string for an empty row.

    Args:
        columns: names of the columns; a value without a name stands alone.
        values: cells of the row.
    """
    pairs = []
    for position, value in enumerate(values[:MAX_COLUMNS]):
        value, name = (" ".join(text.split()) for text in (value, columns[position] if position < len(columns) else ""))
        if value:
            pairs.append(f"{name}: {value}" if name else value)
    return "; ".join(pairs)
