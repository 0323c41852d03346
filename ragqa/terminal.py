"""Print to terminals, so that text from elsewhere cannot control the terminal.

All other modules of the package print through this one. Text from files, archives, servers and models can contain
control characters, which a terminal obeys, and bidirectional controls, which change the order of the words. This module
replaces both by visible escapes, for example ``\\x1b`` and ``\\u202e``.
"""

import json
import logging
import os
import re
import sys
import traceback
import warnings
from types import TracebackType
from typing import Any, TextIO

_INVISIBLE = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""DEL, C1 controls, bidirectional controls, and Unicode's line and paragraph separators."""
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f{_INVISIBLE}\ud800-\udfff]")
_BOLD, _GREEN, _PLAIN = "\x1b[1m", "\x1b[1;32m", "\x1b[0m"
_STYLE_OR_CONTROL = re.compile(rf"(?P<style>\x1b\[(?:1|1;32|0)m)|{_CONTROL.pattern}")


def escape_controls(text: str) -> str:
    """Return a text with visible escapes for control characters and lone surrogates.

    Bidirectional controls and Unicode's line separators are also escaped; line feeds and tabs stay.
    """
    return _CONTROL.sub(_escape, text)


def to_one_line(text: str) -> str:
    """Return a text as one line with single spaces and escaped control characters."""
    return escape_controls(" ".join(text.split()))


def _escape(control: re.Match[str]) -> str:
    code = ord(control[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON in which no character can control a terminal.

    Unicode's line and paragraph separators are also escaped, because some programs read them as line ends. Lone
    surrogates, which UTF-8 cannot encode, become question marks.

    Args:
        value: value of JSON's types.
        indent: number of spaces per level; None for one line.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8", "replace").decode("utf-8")
    return re.sub(f"[{_INVISIBLE}]", lambda match: f"\\u{ord(match[0]):04x}", text)


def print_text(text: str, *, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a text with visible escapes for control characters, and flush the stream.

    Args:
        text: lines to print.
        file: stream to print to; by default standard output. If the process has none, nothing is printed.
        end: text to print after ``text``.
    """
    _write(escape_controls(text), sys.stdout if file is None else file, end)


def print_styled(text: str) -> None:
    """Print a text to standard output, with the styles of ``format_bold`` and ``mark_answer``.

    Other control characters are escaped. Pass text from documents through ``to_one_line`` first; otherwise a document
    could imitate the styles.
    """
    _write(_STYLE_OR_CONTROL.sub(lambda match: match["style"] or _escape(match), text), sys.stdout, "\n")


def print_json(value: Any, *, file: TextIO | None = None, indent: int | None = None) -> None:
    """Print a value as ``to_json`` formats it; ``file`` is as for ``print_text``."""
    print_text(to_json(value, indent=indent), file=file)


def print_error(program: str, message: str) -> None:
    """Print one line, ``PROGRAM: MESSAGE``, to standard error."""
    print_note(f"{program}: {message}")


def print_note(line: str) -> None:
    """Print a text as one line to standard error, if the process has one."""
    if sys.stderr is not None:
        print_text(to_one_line(line), file=sys.stderr)


def _write(text: str, stream: TextIO | None, end: str) -> None:
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # A file name can be invalid text, and the encoding of a terminal need not be UTF-8.
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + end)
    stream.flush()


def has_colours() -> bool:
    """Return True if standard output is a terminal and ``NO_COLOR`` is not set."""
    return sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ


def mark_answer(text: str) -> str:
    """Return a text in bold green if ``has_colours``, or else between double asterisks."""
    return f"{_GREEN}{text}{_PLAIN}" if has_colours() else f"**{text}**"


def format_bold(text: str) -> str:
    """Return a text in bold if ``has_colours``, or else unchanged."""
    return f"{_BOLD}{text}{_PLAIN}" if has_colours() else text


def make_error_console() -> Any:
    """Return a Rich console on standard error, for progress bars.

    Rich does not escape control characters, so pass texts through ``to_one_line`` first.
    """
    from rich.console import Console

    return Console(stderr=True)


def print_traceback() -> None:
    """Print the traceback of the current exception to standard error."""
    print_text(traceback.format_exc().rstrip("\n"), file=sys.stderr)  # the message can quote a document


def escape_messages() -> None:
    """Make Python escape control characters in its warnings, tracebacks and logs.

    Logs for which a program sets a handler do not change.
    """
    warnings.showwarning = _show_warning
    sys.excepthook = _show_exception
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_EscapingFormatter())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    text = warnings.formatwarning(message, category, filename, lineno, line)
    print_text(text, file=sys.stderr if file is None else file, end="")


def _show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    print_text("".join(traceback.format_exception(kind, error, trace)), file=sys.stderr, end="")


class _EscapingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))
