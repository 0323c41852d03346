"""Format the rows of tables as records: lines of text with a column name before each value."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest

MAX_COLUMNS = 1_000
"""Maximum number of columns of a record; the rest of a wider row is left out."""


def format_record(columns: Sequence[str], values: Sequence[str]) -> str:
    """Return a row as one line of text, such as ``Item: lamp; Stock: 42``.

    Empty cells, and cells after the first ``MAX_COLUMNS``, are left out; an empty row gives an empty string.

    Args:
        columns: names of the columns; a value whose column has no name stands alone.
        values: cells of the row.
    """
    pairs = []
    for value, name in zip_longest(values[:MAX_COLUMNS], _clean_names(tuple(columns[: len(values)])), fillvalue=""):
        if value := " ".join(value.split()):
            pairs.append(f"{name}: {value}" if name else value)
    return "; ".join(pairs)


@lru_cache(maxsize=16)  # all rows of a table have the same names
def _clean_names(columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in columns[:MAX_COLUMNS])
