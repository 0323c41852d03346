"""Excerpts of passages for a terminal: marked, wrapped and indented."""

import shutil
import textwrap
from collections.abc import Callable, Sequence

from ragqa.excerpts import Range, shrink_to_words
from ragqa.terminal import to_one_line

INDENT = "    "


def wrap(text: str, indent: str = "") -> str:
    """Wrap one line at the width of the terminal, 80 without a terminal; lines after the first are indented.

    Only spaces become line ends and words stay whole, so positions in the text do not change but for the indent.
    """
    width = max(20, shutil.get_terminal_size((80, 24)).columns - len(indent))
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return f"\n{indent}".join(lines)


def render_excerpt(text: str, window: Range, marked: Sequence[Range], mark: Callable[[str], str]) -> str:
    """Return a part of a text with marks, wrapped and indented.

    Args:
        text: text of a passage.
        window: part to show; it becomes smaller until it begins and ends at words.
        marked: parts to mark, in order; those outside of the window are left out.
        mark: function that marks a text.
    """
    marked = [part for part in marked if window[0] <= part[0] and part[1] <= window[1]]
    low, high = shrink_to_words(text, window)
    if marked:
        low, high = min(low, marked[0][0]), max(high, marked[-1][1])
    line, position, ranges = "… " if text[:low].strip() else "", low, []
    for start, end in marked:
        line += _to_one_line_with_ends(text[position:start])
        ranges.append((len(line), len(line) + len(to_one_line(text[start:end]))))
        line += to_one_line(text[start:end])
        position = end
    line += _to_one_line_with_ends(text[position:high])
    # Marks are made after wrapping: the styles of a terminal have no width, and a mark of several words may be broken.
    wrapped = wrap(line + (" …" if text[high:].strip() else ""), INDENT).replace(f"\n{INDENT}", "\n")
    for start, end in reversed(ranges):
        wrapped = wrapped[:start] + mark(wrapped[start:end]) + wrapped[end:]
    return textwrap.indent(wrapped, INDENT)


def _to_one_line_with_ends(text: str) -> str:
    """Return ``to_one_line`` of the text, but keep a space at its start and end."""
    line = to_one_line(text)
    return f"{' ' * text[:1].isspace()}{line}{' ' * text[-1:].isspace()}" if line else " " * bool(text)
