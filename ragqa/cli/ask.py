"""Asking from the command line: batches, a prompt, and answers as text or as JSON."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ragqa.errors import BadInput
from ragqa.pipeline import Pipeline, clean_question
from ragqa.types import Answer, Source

BATCH = 16
"""Questions of a batch that are answered together: enough to keep all cores busy."""
SHOWN = 3
"""Sources shown of an answer."""
_AROUND = 160
"""Characters of a passage shown on each side of the answer."""


@dataclass(frozen=True)
class Refusal:
    """A question of a batch that could not be asked, and why."""

    question: str
    error: str


class Asker:
    """A pipeline that declines below a confidence."""

    def __init__(self, pipeline: Pipeline, min_confidence: float) -> None:
        self._pipeline, self._min_confidence = pipeline, min_confidence

    def ask(self, questions: list[str]) -> list[Answer]:
        """Answers, those below the confidence declined; raises BadInput on a question that is none."""
        return self._pipeline.ask(questions, min_confidence=self._min_confidence)

    def written(self, question: str) -> Iterator[str | Answer]:
        """Pieces of the answer as they are written, then the answer: see ``Pipeline.stream``."""
        return self._pipeline.stream(question, min_confidence=self._min_confidence)

    def stream(self, questions: Iterable[str]) -> Iterator[Answer | Refusal]:
        """Answers in the order of the questions, as they come; one that cannot be asked stops no other."""
        rest = iter(questions)
        while batch := list(islice(rest, BATCH)):
            refused = {n: Refusal(_text(q), str(error)) for n, q in enumerate(batch) if (error := _unusable(q))}
            answers = iter(self.ask([q for n, q in enumerate(batch) if n not in refused]))
            yield from (refused[n] if n in refused else next(answers) for n in range(len(batch)))


def lines(given: Iterable[str]) -> Iterator[str]:
    """Questions, one of each line that is not blank; bytes that are no UTF-8 have been read by ``surrogateescape``."""
    return (line.rstrip("\r\n") for line in given if line.strip())


def _text(question: str) -> str:
    return question.encode("utf-8", "replace").decode("utf-8")


def _unusable(question: str) -> BadInput | None:
    try:
        if "\0" in question:  # every other byte of UTF-16
            raise BadInput("the question holds zero bytes: convert the file to UTF-8")
        if any("\udc80" <= c <= "\udcff" for c in question):
            raise BadInput("the question is not in UTF-8: convert the file")
        clean_question(question)
    except BadInput as error:
        return error
    return None


def tell(asker: Asker, question: str, show: Callable[[Answer], str], say: Callable[[str], None]) -> Answer:
    """Ask, and show the answer; to people on a terminal as it is written."""
    said = ""
    for each in asker.written(question):
        if isinstance(each, Answer):
            say(_rest(show(each), each, said) if said else show(each))
            return each
        if show is as_text and sys.stdout.isatty():
            print(_printable(each), end="", flush=True)
            said += _printable(each)
    raise AssertionError("a pipeline ends with an answer")


def _rest(shown: str, answer: Answer, said: str) -> str:
    """What of an answer is still to be shown; all of it, in lines of its own, where it was declined in the end."""
    text = _one_line(said)
    if answer.text is None:
        return f"\nTaken back. {shown}"
    if _one_line(answer.text) != text:
        return f"\n{shown}"
    return shown.removeprefix(_bold(text))


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
            tell(asker, question, show, print)
            print()
        except BadInput as error:
            print(f"ragqa: {error}", file=sys.stderr)


def as_json(answer: Answer | Refusal) -> str:
    """One line: question, answer or null, confidence, sources, alternatives, missing; or why it could not be asked.

    ``supported`` is false where a written answer stands in none of its passages, null where there is no answer;
    ``reason`` says why; ``note``, or null, what else is to be known, such as that a long question was cut;
    ``start`` and ``end`` of a source are those of its ``text`` in the document at ``path``;
    ``answer_start`` and ``answer_end`` those of the answer, null where it was declined;
    ``missing`` are the shards of a served index that did not answer.
    """
    if isinstance(answer, Refusal):
        return json.dumps(
            {"question": answer.question, "answer": None, "confidence": 0.0, "sources": [], "error": answer.error}
        )
    row = {
        "question": answer.question,
        "answer": answer.text,
        "confidence": round(answer.confidence, 4),
        "supported": answer.supported,
        "reason": answer.reason,
        "note": answer.note,
        "sources": [_source(source) for source in answer.sources],
        "alternatives": [
            {"answer": other.text, "confidence": round(other.confidence, 4)} for other in answer.alternatives
        ],
        "missing": list(answer.missing),
    }
    return _text(json.dumps(row, ensure_ascii=False))  # a question need not have been valid text


def _source(source: Source) -> dict[str, object]:
    passage, span = source.hit.passage, source.span
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


def as_text(answer: Answer | Refusal) -> str:
    """For people: the answer, its sources with the answer marked, the runners-up."""
    if isinstance(answer, Refusal):
        return f"{_one_line(answer.question)}: {answer.error}"
    if answer.text is None:
        nowhere = "No answer in these documents" if answer.sources else "No answer"
        lines = [f"{_bold(nowhere)}: {answer.reason}." + " The nearest passages:" * bool(answer.sources)]
    else:
        unsupported = "" if answer.supported else f"; unsupported: {answer.reason}"
        lines = [f"{_bold(_one_line(answer.text))}   (confidence {answer.confidence:.2f}{unsupported})"]
    for number, source in enumerate(answer.sources[:SHOWN], 1):
        shared = answer.text is not None and len(answer.sources) > 1
        lines += ["", *_citation(number, source, f" ({source.weight:.2f})" * shared)]
    others = [f"{_one_line(o.text)} ({o.confidence:.2f})" for o in answer.alternatives if o.confidence >= 0.005]
    if others:
        lines += ["", "Runners-up: " + " · ".join(others)]
    if answer.note:
        lines += ["", f"Note: {answer.note}."]
    if answer.missing:
        names = ", ".join(map(_one_line, answer.missing))
        lines += ["", f"Partial: shard{'s' * (len(answer.missing) > 1)} {names} did not answer."]
    return "\n".join(lines)


def _citation(number: int, source: Source, weight: str) -> list[str]:
    passage, span = source.hit.passage, source.span
    text = passage.text
    if span is None:
        start, end = 0, len(text)
        shown = _one_line(text[: 2 * _AROUND]) + (" …" if len(text) > 2 * _AROUND else "")
    else:
        start, end = span.start, span.end
        low, high = max(0, start - _AROUND), min(len(text), end + _AROUND)
        before, after = _spaced(text[low:start]), _spaced(text[end:high])
        answer = f"{_on()}{_one_line(text[start:end])}{_off()}"
        shown = f"{'… ' if low else ''}{before}{answer}{after}{' …' if high < len(text) else ''}".strip()
    where = _one_line(_near(passage.path))
    if passage.document != passage.path:  # one record of many in the file: its characters are counted in it
        where += f", document {_one_line(passage.document)}"
    where += f", characters {passage.start + start}-{passage.start + end}"
    return [f"[{number}] {_one_line(passage.title or passage.document)}{weight}", f"    {shown}", f"    {where}"]


def _one_line(text: str) -> str:
    """White space collapsed and control characters shown as spaces: a document cannot steer a terminal."""
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _spaced(text: str) -> str:
    """``_one_line`` that keeps a space at either end."""
    return f"{' ' * text[:1].isspace()}{_one_line(text)}{' ' * text[-1:].isspace()}"


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
