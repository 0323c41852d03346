"""What is examined: a pipeline, a reader alone, or the predictions that another system left in a file."""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from ragqa import artefacts
from ragqa.errors import BadInput, BadLine, Mismatch, RemoteError
from ragqa.evaluation.rows import Examined
from ragqa.pipeline import Pipeline, clean_question
from ragqa.reading.base import Reader
from ragqa.retrieval.base import missing_shards
from ragqa.types import Answer, Hit, Passage, Question


class System(Protocol):
    """Answers questions, a batch at a time, in the order of the question set."""

    is_identified: bool
    """Whether ``describe`` distinguishes the system from any other, so that a run can be continued with it."""

    def examine(self, questions: list[Question]) -> list[Examined]:
        """What the system gives for each question."""
        ...

    def skip(self, question: Question) -> None:
        """This question was examined by an earlier run."""
        ...

    def finish(self) -> None:
        """There are no more questions; raises where the system has more to say."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the system is; a run goes on only with the same one.

        Keys that the report knows: ``depth``, hits that are scored (without it there is no answer recall); ``k``,
        hits that are read; ``reader``, None where retrieval alone is scored; ``retriever``, ``fusion``, ``kind``,
        ``encoder``, ``index``; ``passages`` and ``sources`` of the corpus, and ``corpus``, its fingerprint.
        """
        ...


class EvaluatedPipeline:
    """A pipeline, asked as ``Pipeline.ask`` asks it, and searched deeper for retrieval's own scores."""

    def __init__(self, pipeline: Pipeline, *, k: int | None, depth: int, read: bool) -> None:
        """Examine ``pipeline``.

        Args:
            pipeline: what is asked.
            k: passages to read; by default the pipeline's own number.
            depth: hits that are scored for answers.
            read: whether questions are answered at all, or retrieval alone is scored.
        """
        self._pipeline, self._depth, self._read = pipeline, depth, read
        self.is_identified = pipeline.is_loaded
        self._k = pipeline.k if k is None else k
        if min(self._k, depth) < 1:
            raise BadInput(f"k = {self._k}, depth = {depth}: at least one passage is needed")

    def describe(self) -> dict[str, Any]:
        """What the pipeline is made of; raises RemoteError where a shard of its index is missing."""
        parts = {**self._pipeline.describe(), "k": self._k, "depth": self._depth}
        _refuse_partial(parts.get("missing", ()))
        return parts if self._read else {**parts, "k": 0, "reader": None}

    def skip(self, question: Question) -> None:
        """Nothing to do: a question does not depend on those before it."""

    def finish(self) -> None:
        """Nothing to do."""

    def examine(self, questions: list[Question]) -> list[Examined]:
        """Ask; the seconds of a batch are divided evenly among its questions.

        Raises:
            RemoteError: a shard of a served index did not answer.
        """
        texts = [clean_question(question.text) for question in questions]
        share = 1 / len(questions)
        began = perf_counter()
        hits = self._search(texts, self._k if self._read else self._depth)
        retrieved = perf_counter()
        retrieve_seconds = (retrieved - began) * share
        if not self._read:
            return [Examined(None, [], found, retrieve_seconds) for found in hits]
        answers = self._pipeline.reader.read(texts, hits)
        read_seconds = (perf_counter() - retrieved) * share
        # An approximate index may find other passages when it is asked for more: what is read is what is asked for.
        deep = self._search(texts, self._depth) if self._depth > self._k else hits
        return [
            Examined(answer, read, found[: self._depth], retrieve_seconds, read_seconds)
            for answer, read, found in zip(answers, hits, deep, strict=True)
        ]

    def _search(self, texts: list[str], k: int) -> list[list[Hit]]:
        found = self._pipeline.retriever.search(texts, k)
        _refuse_partial({shard: None for hits in found for shard in missing_shards(hits)})
        return found


def _refuse_partial(shards: Iterable[str]) -> None:
    """Raise RemoteError where there are any: the scores would be those of another, smaller collection."""
    if names := ", ".join(shards):
        raise RemoteError(
            f"no answer from {names}: a part of the index is not scored as the whole; the rows so far are kept, start "
            "again once it is back"
        )


class GoldPassages:
    """A reader alone: each question is read beside its gold passages (SQuAD's own task)."""

    is_identified = True

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def describe(self) -> dict[str, Any]:
        """The reader."""
        return {"reader": self.reader.fingerprint, "retriever": "gold passages", "sources": ["the gold passages"]}

    def skip(self, question: Question) -> None:
        """Nothing to do: a question does not depend on those before it."""

    def finish(self) -> None:
        """Nothing to do."""

    def examine(self, questions: list[Question]) -> list[Examined]:
        """Read; the seconds of a batch are divided evenly among its questions.

        Raises:
            BadInput: a question names no gold passage.
        """
        for question in questions:
            if not question.passages:
                raise BadInput(f"question '{question.text}' names no gold passage to be read")
        hits = [[_hit(n, {"text": text}) for n, text in enumerate(question.passages)] for question in questions]
        began = perf_counter()
        answers = self.reader.read([clean_question(question.text) for question in questions], hits)
        seconds = (perf_counter() - began) / len(questions)
        return [Examined(answer, found, found, None, seconds) for answer, found in zip(answers, hits, strict=True)]


class Predictions:
    """Answers, and passages if there are any, that another system wrote to a file.

    - ``.json``: an object of question id to answer, as SQuAD's script takes it
    - ``.jsonl``: an object a line, in the order of the questions and as many: ``prediction`` (null is no
      answer) and, if there are, ``question`` (checked), ``confidence`` (0 to 1) and ``ctxs`` (the passages in
      order, each with ``text``, ``title``, ``score``, as DPR and FiD have them)
    """

    is_identified = True

    def __init__(self, file: Path, *, depth: int = 100, read: bool = True, all_asked: bool = True) -> None:
        """Open ``file``.

        Args:
            file: the predictions.
            depth: the first so many passages of a prediction are scored, and count as read.
            read: False to score the passages alone.
            all_asked: every line of a ``.jsonl`` has its question; False where only the first ones are asked.

        Raises:
            BadInput: the file cannot be read or is of neither form.
        """
        self._file, self._depth, self._read, self._all_asked = file, depth, read, all_asked
        self._by_id: dict[str, Any] | None = None
        try:
            self._sha256 = artefacts.checksum(file)
            if file.suffix == ".json":
                self._by_id = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{file} is not JSON: {error}") from error
        if file.suffix not in (".json", ".jsonl", ".ndjson"):
            raise BadInput(f"{file}: predictions are read from .json (id to answer) or .jsonl files")
        if self._by_id is not None and not isinstance(self._by_id, dict):
            raise BadInput(f"{file} must be an object of question id to answer")
        self._lines = _lines(file) if self._by_id is None else iter(())

    def describe(self) -> dict[str, Any]:
        """The file, by its checksum."""
        parts = {"predictions": self._file.name, "sha256": self._sha256, "depth": self._depth}
        return parts if self._read else {**parts, "reader": None}

    def skip(self, question: Question) -> None:
        """Pass over the line of this question."""
        self.examine([question])

    def finish(self) -> None:
        """Raises Mismatch where lines are left."""
        if self._all_asked and (number := next(self._lines, (0, b""))[0]):
            raise Mismatch(f"{self._file}:{number}: there are more predictions than questions")

    def examine(self, questions: list[Question]) -> list[Examined]:
        """The predictions for these questions; one that is missing is no answer."""
        if self._by_id is not None:
            return [self._of_id(question) for question in questions]
        return [self._next(question) for question in questions]

    def _of_id(self, question: Question) -> Examined:
        assert self._by_id is not None
        try:
            return Examined(_answer(question.text, self._by_id.get(question.id), None), [], [])
        except TypeError as error:
            raise BadInput(f"{self._file}, id {question.id}: {error}") from error

    def _next(self, question: Question) -> Examined:
        number, line = next(self._lines, (0, b""))
        if not number:
            raise Mismatch(f"{self._file} ends before the questions do: a prediction for each is needed")
        where = f"{self._file}:{number}"
        try:
            row = json.loads(line)
            hits = [_hit(n, ctx) for n, ctx in enumerate((row.get("ctxs") or [])[: self._depth])]
            if self._read and "prediction" not in row:
                raise ValueError("no prediction; give null where there is none, or leave reading out")
            answer = _answer(question.text, row.get("prediction"), row.get("confidence"))
            asked = row.get("question") or question.text
            if asked.strip() != question.text.strip():
                raise Mismatch(f"{where}: it answers '{asked}', but the question here is '{question.text}'")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadLine(f"{where}: not a prediction: {_reason(error)}") from error
        return Examined(answer if self._read else None, hits, hits)


def _reason(error: Exception) -> str:
    """What is wrong with a line, without Python's own words where they would say nothing."""
    if isinstance(error, KeyError):
        return f"a passage has no {error}"
    if isinstance(error, AttributeError) or "indices must be" in str(error) or "unhashable" in str(error):
        return "an object with prediction, and with ctxs as a list of objects, is needed"
    return str(error)


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as lines:
        yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _answer(question: str, text: Any, confidence: Any) -> Answer:
    if text is not None and not isinstance(text, str):
        raise TypeError(f"the prediction must be a text, not {text!r}")
    said = math.nan if confidence is None else float(confidence)
    if not (math.isnan(said) or 0 <= said <= 1):
        raise TypeError(f"the confidence must be between 0 and 1, not {confidence!r}")
    return Answer(question, text, 0.0, said)


def _hit(number: int, ctx: dict[str, Any]) -> Hit:
    text = ctx["text"]
    if not isinstance(text, str):
        raise TypeError("the text of a passage must be a text")
    passage = Passage(number, str(ctx.get("id", number)), str(ctx.get("title") or ""), text, "", 0, len(text))
    return Hit(passage, float(ctx.get("score") or 0.0))
