"""Asking from the command line: declining, and answers as text or as JSON."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from ragqa.errors import BadInput
from ragqa.pipeline import Pipeline
from ragqa.types import Answer, Source

BATCH = 16
"""Questions of a batch that are answered together: enough to keep all cores busy."""
SHOWN = 3
"""Sources shown of an answer."""
_AROUND = 160
"""Characters of a passage shown on each side of the answer."""


class Asker:
    """A pipeline that declines below a confidence."""

    def __init__(self, pipeline: Pipeline, min_confidence: float) -> None:
        self._pipeline, self._min_confidence = pipeline, min_confidence

    def ask(self, questions: list[str]) -> list[Answer]:
        """Answers, those below the confidence declined."""
        return [decline(answer, self._min_confidence) for answer in self._pipeline.ask(questions)]

    def stream(self, questions: Iterable[str]) -> Iterator[Answer]:
        """Answers in the order of the questions, as they come."""
        rest = iter(questions)
        while batch := list(islice(rest, BATCH)):
            yield from self.ask(batch)


def decline(answer: Answer, min_confidence: float) -> Answer:
    """The answer, or the refusal in its place if it is not confident enough."""
    if answer.text is None or answer.confidence >= min_confidence:
        return answer
    return replace(answer, text=None)


def converse(asker: Asker, show: Callable[[Answer], str]) -> None:
    """Ask and answer until end of file or an empty line."""
    import readline  # noqa: F401  line editing in input()

    while True:
        try:
            question = input("question> ")
        except EOFError:
            print()
            return
        if not question.strip():
            return
        try:
            print(show(asker.ask([question])[0]), end="\n\n")
        except BadInput as error:
            print(f"ragqa: {error}", file=sys.stderr)


def as_json(answer: Answer) -> str:
    """One line: question, answer or null, confidence, sources, alternatives.

    ``start`` and ``end`` of a source are those of its ``text`` in the document at ``path``;
    ``answer_start`` and ``answer_end`` those of the answer, null where it was declined.
    """
    row = {
        "question": answer.question,
        "answer": answer.text,
        "confidence": round(answer.confidence, 4),
        "sources": [_source(source, answer.text is not None) for source in answer.sources],
        "alternatives": [
            {"answer": other.text, "confidence": round(other.confidence, 4)} for other in answer.alternatives
        ],
    }
    return json.dumps(row, ensure_ascii=False)


def _source(source: Source, answered: bool) -> dict[str, object]:
    passage = source.hit.passage
    span = source.span if answered else None
    return {
        "title": passage.title,
        "path": passage.path,
        "start": passage.start,
        "end": passage.end,
        "text": passage.text,
        "document": passage.document,
        "answer_start": passage.start + span.start if span else None,
        "answer_end": passage.start + span.end if span else None,
        "weight": round(source.weight, 4),
    }


def as_text(answer: Answer) -> str:
    """For people: the answer, its sources with the answer marked, the runners-up."""
    lines = []
    if answer.text is None:
        lines.append(_bold("No answer in these documents.") + " The nearest passages:")
    else:
        lines.append(f"{_bold(_one_line(answer.text))}   (confidence {answer.confidence:.2f})")
    for number, source in enumerate(answer.sources[:SHOWN], 1):
        lines += ["", *_citation(number, source, answer.text is not None)]
    if answer.text is not None and answer.alternatives:
        others = (f"{_one_line(o.text)} ({o.confidence:.2f})" for o in answer.alternatives)
        lines += ["", "Runners-up: " + " · ".join(others)]
    return "\n".join(lines)


def _citation(number: int, source: Source, answered: bool) -> list[str]:
    passage = source.hit.passage
    span = source.span if answered else None
    text = passage.text
    start, end = (span.start, span.end) if span else (0, 0)
    low, high = max(0, start - _AROUND), min(len(text), max(end, 1) + _AROUND)
    before = ("… " if low else "") + text[low:start]
    after = text[end:high] + (" …" if high < len(text) else "")
    shown = _one_line(before + _MARK[0] + text[start:end] + _MARK[1] + after) if span else _one_line(before + after)
    shown = shown.replace(_MARK[0], _on()).replace(_MARK[1], _off())
    where = f"{_near(passage.path)}, characters {passage.start + start}-{passage.start + end}"
    if not span:
        where = f"{_near(passage.path)}, characters {passage.start}-{passage.end}"
    return [f"[{number}] {_one_line(passage.title) or passage.document}", f"    {shown}", f"    {where}"]


_MARK = ("\ue000", "\ue001")
"""Private-use characters that stand for the marks until white space and controls are cleaned."""


def _one_line(text: str) -> str:
    """White space collapsed and control characters shown as spaces: a document cannot steer a terminal."""
    return " ".join("".join(c if c.isprintable() or c in _MARK else " " for c in text).split())


def _near(path: str) -> str:
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return min(path, relative, key=len)


def _coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _on() -> str:
    return "\x1b[1;32m" if _coloured() else "**"


def _off() -> str:
    return "\x1b[0m" if _coloured() else "**"


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _coloured() else text
