"""Format answers as text for a terminal."""

import os

from ragqa.terminal import format_bold, mark_answer, to_one_line
from ragqa.types import Answer, Source

MAX_SOURCES = 3
"""Maximum number of sources shown for an answer."""
_CONTEXT = 160
"""Number of characters of a passage shown on each side of the answer."""


def render_answer(answer: Answer) -> str:
    """Return lines with the answer, its sources, and less likely answers."""
    reason = to_one_line(answer.reason or "")
    if answer.text is None:
        title = "No answer in these documents" if answer.sources else "No answer"
        lines = [f"{format_bold(title)}: {reason}." + " The nearest passages:" * bool(answer.sources)]
    else:
        unsupported = "" if answer.supported else f"; unsupported: {reason}"
        lines = [f"{format_bold(to_one_line(answer.text))}   (confidence {answer.confidence:.2f}{unsupported})"]
    has_weights = answer.text is not None and len(answer.sources) > 1
    for number, source in enumerate(answer.sources[:MAX_SOURCES], 1):
        lines += ["", *_render_source(number, source, f" ({source.weight:.2f})" * has_weights)]
    likely = [other for other in answer.alternatives if other.confidence >= 0.005]
    if likely:
        runners_up = (f"{to_one_line(other.text)} ({other.confidence:.2f})" for other in likely)
        lines += ["", "Runners-up: " + " · ".join(runners_up)]
    if answer.note:
        lines += ["", f"Note: {to_one_line(answer.note)}."]
    if answer.missing:
        names = ", ".join(map(to_one_line, answer.missing))
        lines += ["", f"Partial: shard{'s' * (len(answer.missing) > 1)} {names} did not answer."]
    return "\n".join(lines)


def render_rest(answer: Answer, written: str) -> str:
    """Return the text to print after ``written``, the part of the answer that is already shown."""
    text = to_one_line(written)
    if answer.text is None:
        return f"\nWithdrawn. {render_answer(answer)}"
    if to_one_line(answer.text) != text:
        return f"\n{render_answer(answer)}"
    return render_answer(answer).removeprefix(format_bold(text))


def _render_source(number: int, source: Source, weight: str) -> list[str]:
    passage, span = source.hit.passage, source.span
    text = passage.text
    if span is None:
        excerpt = to_one_line(text[: 2 * _CONTEXT]) + (" …" if len(text) > 2 * _CONTEXT else "")
    else:
        start, end = span.start, span.end
        low, high = max(0, start - _CONTEXT), min(len(text), end + _CONTEXT)
        before, after = _to_one_line_with_ends(text[low:start]), _to_one_line_with_ends(text[end:high])
        answer = mark_answer(to_one_line(text[start:end]))
        excerpt = f"{'… ' if low else ''}{before}{answer}{after}{' …' if high < len(text) else ''}".strip()
    where = to_one_line(source.format_place(_shorten_path(passage.path)))
    return [f"[{number}] {to_one_line(passage.title or passage.document)}{weight}", f"    {excerpt}", f"    {where}"]


def _to_one_line_with_ends(text: str) -> str:
    """Return ``to_one_line`` of the text, but keep a space at its start and end."""
    return f"{' ' * text[:1].isspace()}{to_one_line(text)}{' ' * text[-1:].isspace()}"


def _shorten_path(path: str) -> str:
    """Return a path relative to the working directory if that is shorter."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return min(path, relative, key=len)
