"""Format excerpts of passages for a terminal, with marks, line ends and an indent."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence

from ragqa.excerpts import Range, shrink_to_words
from ragqa.terminal import to_one_line

INDENT = "    "


def wrap(text: str, indent: str = "") -> str:
    """Return a text wrapped at the terminal's width, or at 80 characters without a terminal.

    Line ends replace spaces, and words stay whole. So without an indent, positions in the text do not change.

    Args:
        text: one line with single spaces.
        indent: white space before each line but the first; its length reduces the width of all lines.
    """
    width = max(20, shutil.get_terminal_size((80, 24)).columns - len(indent))
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return f"\n{indent}".join(lines)


def wrap_report(text: str) -> str:
    """Wrap the lines of a report for a terminal, but not for programs, which need whole lines."""
    return "\n".join(wrap(line, INDENT) for line in text.splitlines()) if sys.stdout.isatty() else text


def render_excerpt(text: str, window: Range, marked: Sequence[Range], mark: Callable[[str], str]) -> str:
    """Return a part of a text with marks, as wrapped lines for a terminal.

    Each line begins with ``INDENT``. Only a single long word can exceed the width of the terminal.

    Args:
        text: text of a passage.
        window: part to show; its ends move inwards to the ends of words, but stay around marked parts.
        marked: parts to mark, in order; parts that are not entirely in the window stay unmarked.
        mark: function that adds the style of a mark to a text, as ``mark_answer`` does.
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
    # The text is marked after it is wrapped, because styles have no width and a mark can go over a line end.
    wrapped = wrap(line + (" …" if text[high:].strip() else ""), INDENT).replace(f"\n{INDENT}", "\n")
    for start, end in reversed(ranges):
        wrapped = wrapped[:start] + mark(wrapped[start:end]) + wrapped[end:]
    return textwrap.indent(wrapped, INDENT)


def _to_one_line_with_ends(text: str) -> str:
    """Return the text as one line, with a space in place of white space at its ends."""
    line = to_one_line(text)
    return f"{' ' * text[:1].isspace()}{line}{' ' * text[-1:].isspace()}" if line else " " * bool(text)
