"""Format answers as text for a terminal."""

import os
import re

from ragqa.cli.excerpts import INDENT, render_excerpt, wrap
from ragqa.excerpts import MAX_SOURCES, SIDE, choose_window, find_question_words
from ragqa.terminal import format_bold, mark_answer, to_one_line
from ragqa.text import format_confidence
from ragqa.types import Alternative, Answer, Source

_BEFORE_ITEM = re.compile(r"\s*\n\s*(?=(?:[-*•–]|\d{1,3}[.)])\s)")


def render_answer(answer: Answer) -> str:
    """Return an answer, its sources and less probable answers, wrapped for the terminal."""
    start, first_lines = _get_start(answer), _wrap_lines(_format_line(answer))
    return f"{format_bold(first_lines[: len(start)])}{first_lines[len(start) :]}{_render_body(answer)}"


def render_rest(answer: Answer, written: str) -> str:
    """Return the text to print after the part of an answer that is already printed.

    If the final answer does not begin with that part, the whole answer follows on a new line. A declined answer follows
    whole as well, after the note that the part is withdrawn.

    Args:
        answer: the final answer.
        written: the part that was printed while the answer was generated.
    """
    text = _clean_lines(written) if answer.statements else to_one_line(written)
    if answer.text is None:
        return f"\nWithdrawn. {render_answer(answer)}"
    if _get_start(answer) != text:
        return f"\n{render_answer(answer)}"
    return _format_line(answer)[len(text) :] + _render_body(answer)


def _get_start(answer: Answer) -> str:
    """Return the bold part of the output, with a line for each list item of the answer."""
    if answer.text is not None:
        return _clean_lines(answer.cited_text or "") if answer.statements else to_one_line(answer.text)
    return "No answer in these documents" if answer.sources else "No answer"


def _format_line(answer: Answer) -> str:
    reason = to_one_line(answer.reason or "")
    if answer.text is None:
        return f"{_get_start(answer)}: {reason}."
    unsupported = "" if answer.supported else f"; unsupported: {reason}"
    return f"{_get_start(answer)}   (confidence {format_confidence(answer.confidence)}{unsupported})"


def _render_body(answer: Answer) -> str:
    lines = ["", f"Asked as: {to_one_line(answer.asked)}"] if answer.asked else []
    likely = [other for other in answer.alternatives if other.confidence >= 0.005]
    if answer.text is None:
        if likely and likely[0] == answer.alternatives[0]:
            lines += ["", f"Best guess: {_format_guess(likely[0])}"]
        if answer.sources:
            lines += ["", "The nearest passages:"]
    for statement in answer.statements:
        if not statement.is_supported:
            lines += ["", f'Unsupported: "{to_one_line(statement.text)}" {to_one_line(statement.reason or "")}.']
    shown = answer.sources if answer.statements else answer.sources[:MAX_SOURCES]  # statements cite any of them
    for number, source in enumerate(shown, 1):
        lines += ["", *_render_source(number, source, answer)]
    if answer.text is not None and likely:
        lines += ["", "Runners-up: " + " · ".join(map(_format_guess, likely))]
    if answer.note:
        lines += ["", f"Note: {to_one_line(answer.note)}."]
    if answer.missing:
        names = ", ".join(map(to_one_line, answer.missing))
        lines += ["", f"Partial: shard{'s' * (len(answer.missing) > 1)} {names} did not answer."]
    return "".join(f"\n{line if line.startswith(INDENT) else wrap(line, INDENT)}" for line in lines)


def _format_guess(other: Alternative) -> str:
    return f"{to_one_line(other.text)} ({format_confidence(other.confidence)})"


def _render_source(number: int, source: Source, answer: Answer) -> list[str]:
    passage, span = source.hit.passage, source.span
    if span is None:
        words = find_question_words(answer.question, passage.text)
        excerpt = render_excerpt(passage.text, choose_window(passage.text, words), words, format_bold)
    else:
        window = max(0, span.start - SIDE), min(len(passage.text), span.end + SIDE)
        excerpt = render_excerpt(passage.text, window, [(span.start, span.end)], mark_answer)
    has_weight = answer.text is not None and len(answer.sources) > 1 and not answer.statements
    weight = f" ({source.weight:.0%} of the weight)" * has_weight
    where = wrap(to_one_line(source.format_place(_shorten_path(passage.path))), INDENT)
    return [f"[{number}] {to_one_line(passage.title or passage.document)}{weight}", excerpt, f"{INDENT}{where}"]


def split_items(text: str) -> list[str]:
    """Split a text before each item of a list, and return the parts."""
    return _BEFORE_ITEM.split(text)


def _clean_lines(text: str) -> str:
    return "\n".join(map(to_one_line, split_items(text)))


def _wrap_lines(text: str) -> str:
    return "\n".join(map(wrap, text.splitlines()))


def _shorten_path(path: str) -> str:
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return min(path, relative, key=len)
