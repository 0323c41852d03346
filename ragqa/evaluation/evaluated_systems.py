"""Systems to evaluate: a pipeline, a reader without a retriever, or a file of predictions."""

import json
import math
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from ragqa import artefacts
from ragqa.artefacts.paths import resolve_input_file
from ragqa.errors import BadInput, BadLine, Mismatch, RemoteError
from ragqa.evaluation.rows import SystemResult
from ragqa.pipeline import Pipeline, clean_question
from ragqa.reading.base import Reader
from ragqa.retrieval.base import get_missing_shards
from ragqa.types import Answer, Hit, Passage, Question


class System(Protocol):
    """System that answers questions in batches, in the order of the question set."""

    is_identified: bool = True
    """True if ``describe`` identifies the system, so that an interrupted run can be continued."""

    def answer_batch(self, questions: list[Question]) -> list[SystemResult]:
        """Return the result for each question, in order.

        Raises:
            RagqaError: a question cannot be answered.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return a description of the system; an interrupted run continues only if it is the same.

        The report uses these keys, all optional:

        - ``depth``: number of hits that are scored; without it, retrieval is not scored
        - ``k``: number of hits that are read
        - ``reader``, ``reader_kind``: fingerprint and kind of the reader; None if only retrieval is scored
        - ``retriever``, ``fusion``, ``kind``, ``encoder``, ``index``: parts of the retriever
        - ``passages``, ``sources``, ``corpus``: number of passages, files and fingerprint of the corpus
        """
        ...

    def skip(self, question: Question) -> None:
        """Skip a question that an interrupted run has answered; by default do nothing."""
        return

    def finish(self) -> None:
        """Check, after the last question, that no results are left over; by default do nothing."""
        return


class EvaluatedPipeline(System):
    """Pipeline to evaluate, with a number of hits to score for each question."""

    def __init__(self, pipeline: Pipeline, *, k: int | None, depth: int, read: bool) -> None:
        """Prepare a pipeline for an evaluation.

        Args:
            pipeline: the pipeline.
            k: number of passages to read for each question; None for the pipeline's own number.
            depth: number of hits of each question that are searched for gold answers.
            read: True to answer the questions; False to score retrieval alone.

        Raises:
            BadInput: ``k`` or ``depth`` is less than 1.
        """
        self._pipeline, self._depth, self._read = pipeline, depth, read
        self.is_identified = pipeline.is_loaded
        self._k = pipeline.k if k is None else k
        if min(self._k, depth) < 1:
            raise BadInput(f"k = {self._k}, depth = {depth}: at least one passage is needed")

    def describe(self) -> dict[str, Any]:
        """Return a description of the pipeline's parts, with ``k`` and ``depth``.

        Raises:
            RemoteError: a shard of a served index is missing.
        """
        parts = {**self._pipeline.describe(), "k": self._k, "depth": self._depth}
        _check_complete(parts.get("missing", ()))
        return parts if self._read else {**parts, "k": 0, "reader": None, "reader_kind": None}

    def answer_batch(self, questions: list[Question]) -> list[SystemResult]:
        """Answer the questions; the time of the batch is divided equally among them.

        Raises:
            BadInput: a question is empty.
            RemoteError: a shard of a served index, or the server of a language model, did not answer.
            ArtefactError, DamagedArtefact, Mismatch: as for ``Pipeline.find_passages``.
        """
        texts, share = [self._pipeline.prepare_question(question.text) for question in questions], 1 / len(questions)
        start = perf_counter()
        hits = self._search(texts, self._k if self._read else self._depth)
        retrieved = perf_counter()
        retrieve_seconds = (retrieved - start) * share
        if not self._read:
            return [SystemResult(None, [], question_hits, retrieve_seconds) for question_hits in hits]
        answers = self._pipeline.reader.read(texts, hits)
        read_seconds = (perf_counter() - retrieved) * share
        # An approximate index can find other passages for a larger k, so the hits to score have their own search.
        deep = self._search(texts, self._depth) if self._depth > self._k else hits
        return [
            SystemResult(answer, read, deeper[: self._depth], retrieve_seconds, read_seconds)
            for answer, read, deeper in zip(answers, hits, deep, strict=True)
        ]

    def _search(self, texts: list[str], k: int) -> list[list[Hit]]:
        hits_per_text = self._pipeline.find_passages(texts, k)
        _check_complete({shard: None for hits in hits_per_text for shard in get_missing_shards(hits)})
        return hits_per_text


def _check_complete(shards: Iterable[str]) -> None:
    """Raise RemoteError for missing shards, since the scores would apply to a smaller corpus."""
    if names := ", ".join(shards):
        raise RemoteError(
            f"no answer from {names}: scores on a part of the index would be wrong; the rows so far are kept, so run "
            "the same command again when the shard is back"
        )


class GoldPassages(System):
    """Reader that reads the gold passages of each question, as in SQuAD, without a retriever."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def describe(self) -> dict[str, Any]:
        """Return the fingerprint and the kind of the reader, and the origin of the passages."""
        reader = {"reader": self.reader.fingerprint, "reader_kind": self.reader.kind}
        return {**reader, "retriever": "gold passages", "sources": ["the gold passages"]}

    def answer_batch(self, questions: list[Question]) -> list[SystemResult]:
        """Answer from the gold passages; the time of the batch is divided equally.

        Raises:
            BadInput: a question is empty, or has no gold passage.
            RemoteError: the server of a language model did not answer.
        """
        if without := [question.text for question in questions if not question.passages]:
            raise BadInput(f"question '{without[0]}' names no gold passage to be read")
        hits = [[_make_hit(n, {"text": text}) for n, text in enumerate(question.passages)] for question in questions]
        start = perf_counter()
        answers = self.reader.read([clean_question(question.text) for question in questions], hits)
        seconds = (perf_counter() - start) / len(questions)
        return [SystemResult(answer, own, own, None, seconds) for answer, own in zip(answers, hits, strict=True)]


class Predictions(System):
    """Predictions of another system in a file.

    The file has an answer for each question and, optionally, passages. Its name ends with the format:

    - ``.json``: one object from question id to answer, as for SQuAD's script
    - ``.jsonl``, ``.ndjson``: one object per line and question, in the order of the questions, with ``prediction``
      (null means no answer) and, optionally, ``question`` (the same as in the set), ``confidence`` (0 to 1) and
      ``ctxs`` (the passages, best first, each with ``text`` and, optionally, ``id``, ``title`` and ``score``)
    """

    def __init__(self, file: Path, *, depth: int = 100, read: bool = True, is_complete: bool = True) -> None:
        """Open a file of predictions.

        Args:
            file: the predictions.
            depth: number of passages of a prediction that are scored and count as read.
            read: True to score the answers; False to score the passages alone.
            is_complete: True if the run has all questions, so that more lines than questions are an error.

        Raises:
            BadInput: the file cannot be read, has another ending, or is a ``.json`` that is not one object.
        """
        self._file, self._depth, self._read, self._is_complete = file, depth, read, is_complete
        self._by_id: dict[str, Any] | None = None
        try:
            source = resolve_input_file(file)
            self._sha256 = artefacts.checksum(source)
            if file.suffix == ".json":
                self._by_id = json.loads(source.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{file} is not JSON: {error}") from error
        if file.suffix not in (".json", ".jsonl", ".ndjson"):
            raise BadInput(f"{file}: predictions are read from .json (id to answer) or .jsonl files")
        if self._by_id is not None and not isinstance(self._by_id, dict):
            raise BadInput(f"{file} must be an object of question id to answer")
        self._lines = _read_lines(source) if self._by_id is None else iter(())

    def describe(self) -> dict[str, Any]:
        """Return the name and the checksum of the file, and the depth."""
        parts = {"predictions": self._file.name, "sha256": self._sha256, "depth": self._depth}
        return parts if self._read else {**parts, "reader": None}

    def skip(self, question: Question) -> None:
        """Skip the prediction for ``question``; errors: as for ``answer_batch``."""
        self.answer_batch([question])

    def finish(self) -> None:
        """Raise Mismatch if a complete run has left lines of the file unread."""
        if self._is_complete and (number := next(self._lines, (0, b""))[0]):
            raise Mismatch(f"{self._file}:{number}: there are more predictions than questions")

    def check_ids(self, questions: Iterable[Question]) -> None:
        """Raise BadInput if a ``.json`` file has no prediction for any of the questions."""
        ids = (question.id for question in questions)
        first = next(ids, None)
        if self._by_id is None or first is None or any(name in self._by_id for name in chain([first], ids)):
            return
        own = f"its ids are such as {next(iter(self._by_id))!r:.80}" if self._by_id else "it is empty"
        raise BadInput(
            f"{self._file}: no prediction belongs to a question: {own}, those of the questions such as {first!r:.80}"
        )

    def answer_batch(self, questions: list[Question]) -> list[SystemResult]:
        """Return the prediction for each question; a question missing in a ``.json`` has no answer.

        Raises:
            BadInput, BadLine: a prediction has the wrong format.
            Mismatch: the file has fewer lines than questions, or a line answers another question.
        """
        predict = self._read_next if self._by_id is None else self._look_up
        return [predict(question) for question in questions]

    def _look_up(self, question: Question) -> SystemResult:
        assert self._by_id is not None
        try:
            return SystemResult(_make_answer(question.text, self._by_id.get(question.id), None), [], [])
        except TypeError as error:
            raise BadInput(f"{self._file}, id {question.id}: {error}") from error

    def _read_next(self, question: Question) -> SystemResult:
        number, line = next(self._lines, (0, b""))
        if not number:
            raise Mismatch(f"{self._file} ends before the questions do: a prediction for each is needed")
        where = f"{self._file}:{number}"
        try:
            row = json.loads(line)
            hits = [_make_hit(n, ctx) for n, ctx in enumerate((row.get("ctxs") or [])[: self._depth])]
            if self._read and "prediction" not in row:
                raise ValueError("no prediction; give null where there is none, or leave reading out")
            answer = _make_answer(question.text, row.get("prediction"), row.get("confidence"))
            own_question = row.get("question") or question.text
            if own_question.strip() != question.text.strip():
                raise Mismatch(f"{where}: it answers '{own_question}', but the question here is '{question.text}'")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadLine(f"{where}: not a prediction: {_describe_error(error)}") from error
        return SystemResult(answer if self._read else None, hits, hits)


def _describe_error(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"a passage has no {error}"
    if isinstance(error, AttributeError) or "indices must be" in str(error) or "unhashable" in str(error):
        return "an object with prediction, and with ctxs as a list of objects, is needed"
    return str(error)


def _read_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as lines:
        yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _make_answer(question: str, text: Any, confidence: Any) -> Answer:
    if text is not None and not isinstance(text, str):
        raise TypeError(f"the prediction must be a text, not {text!r}")
    probability = math.nan if confidence is None else float(confidence)
    if not (math.isnan(probability) or 0 <= probability <= 1):
        raise TypeError(f"the confidence must be between 0 and 1, not {confidence!r}")
    return Answer(question, text, 0.0, probability)


def _make_hit(number: int, ctx: dict[str, Any]) -> Hit:
    text = ctx["text"]
    if not isinstance(text, str):
        raise TypeError("the text of a passage must be a text")
    score = float(ctx.get("score") or 0.0)
    if not math.isfinite(score):  # JSON has no such numbers, so other programs could not read the rows of the report
        raise TypeError(f"the score of a passage must be a finite number, not {score}")
    passage = Passage(number, str(ctx.get("id", number)), str(ctx.get("title") or ""), text, "", 0, len(text))
    return Hit(passage, score)
