"""Reader whose answers a language model writes from the passages.

Each statement of an answer is checked against the passages that it cites.
"""

import hashlib
import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from ragqa.artefacts.paths import parse_url
from ragqa.errors import BadInput, RemoteError
from ragqa.metrics import has_answer
from ragqa.reading.base import NO_PASSAGES, Decoding, RetrieverIdentity, decline
from ragqa.reading.calibration import Calibration
from ragqa.reading.chat.confidence import ChatEvidence, load_chat_calibration
from ragqa.reading.chat.draft import Draft
from ragqa.reading.chat.language_model import COMPLETE, CUT, ContextOverflow, LanguageModel, estimate_tokens
from ragqa.reading.chat.prompt import make_messages, number_passages
from ragqa.reading.span import ExtractiveReader
from ragqa.text import is_latin
from ragqa.types import Alternative, Answer, Hit

PASSAGES = 20
"""Default number of passages per question; a language model can combine the facts of several passages."""
MAX_ANSWER = 512
"""Default maximum length of an answer in tokens."""
MAX_CHARACTERS = 24_000
"""Maximum length of all passages of a prompt in characters, if the context length of the model is unknown."""
SPAN_PASSAGES = 10
"""Maximum number of passages from which the span reader answers the question, to compare both answers."""
_REST = 600
"""Number of tokens that are reserved for the rules, the example, the question and the template of the chat."""
_DECLINED = "the language model found no answer in the passages"
_WROTE_NOTHING = "the language model wrote nothing"


@dataclass(frozen=True)
class ChatAnswer:
    """Answer of a language model with its evidence, before calibration."""

    text: str
    evidence: ChatEvidence


class ChatReader:
    """Reader whose answers a language model writes, on a server or from a file."""

    kind = "chat"
    is_closed_book = False
    can_stream = True
    passages = PASSAGES

    def __init__(
        self,
        model: LanguageModel,
        calibration: Calibration,
        *,
        is_calibrated: bool = True,
        span_reader: ExtractiveReader | None = None,
        decoding: Decoding | None = None,
    ) -> None:
        """Combine a language model with a calibration and the span reader that checks the answers.

        Args:
            model: language model that writes the answers.
            calibration: calibration that turns evidence into confidence.
            is_calibrated: False if the calibration was fitted for other models; the reader then has a warning.
            span_reader: reader that checks the statements; None for the reader of the package.
            decoding: only ``max_answer`` can be set; None for ``MAX_ANSWER``.

        Raises:
            BadInput: ``max_answer`` is less than 1, or another setting is set.
        """
        self._model, self._calibration = model, calibration
        self._span_reader, self._loading = span_reader, Lock()
        self.decoding = _check_decoding(decoding or Decoding())
        self.warning = (
            None
            if is_calibrated
            else f"{model.name} has no calibration of its own, so the confidence is a rough estimate"
        )
        identity = json.dumps([model.identity, calibration.identity], sort_keys=True)
        self.fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]

    @classmethod
    def load(
        cls,
        source: str | Path,
        kind: str | None = None,
        *,
        device: str = "cpu",
        decoding: Decoding | None = None,
        scored_by: RetrieverIdentity | None = None,
    ) -> "ChatReader":
        """Open a language model with its calibration.

        Nothing is sent to a server before the first question.

        Args:
            source: ``URL#MODEL`` of a server, or a GGUF file.
            kind: kind of reader; not used here.
            device: device of a GGUF file, ``cpu`` or ``cuda``.
            decoding: settings, as for the constructor.
            scored_by: retriever that scores the hits; not used here.

        Raises:
            BadInput: as for ``open_model`` and the constructor.
            ArtefactError, MissingExtra: as for ``open_model``.
            DamagedArtefact: the file of the model or of the calibration is damaged.
        """
        model = open_model(str(source), device=device)
        calibration, is_own = load_chat_calibration(model.identity)
        return cls(model, calibration, is_calibrated=is_own, decoding=decoding)

    @property
    def threshold(self) -> float:
        """Confidence below which answers are declined by default."""
        return self._calibration.threshold

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """Return an answer for each question, in order.

        Arguments and errors are as for ``Reader.read``.
        """
        return [self._read_one(question, own)[0] for question, own in zip(questions, hits, strict=True)]

    def find_answers(self, questions: list[str], hits: list[list[Hit]]) -> list[list[ChatAnswer]]:
        """Return a list for each question: the answer with its evidence, or nothing.

        The list is empty if the question is declined. Arguments and errors are as for ``Reader.read``.
        """
        rows = (self._read_one(question, own) for question, own in zip(questions, hits, strict=True))
        return [[ChatAnswer(answer.text, evidence)] if answer.text and evidence else [] for answer, evidence in rows]

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Yield each checked statement with its citations, and at the end the ``Answer``.

        Arguments and errors are as for ``AnswerGenerator.stream``.
        """
        for piece in self._write(question, hits):
            if isinstance(piece, str):
                yield piece
            else:
                yield piece[0]

    def _read_one(self, question: str, hits: list[Hit]) -> tuple[Answer, ChatEvidence | None]:
        *_, last = self._write(question, hits)
        assert not isinstance(last, str)
        return last

    def _write(self, question: str, hits: list[Hit]) -> Iterator[str | tuple[Answer, ChatEvidence | None]]:
        """Yield pieces of the answer, and at the end the answer with its evidence."""
        if not hits:
            yield decline(question, hits, NO_PASSAGES), None
            return
        read = self._fit_passages(hits)
        while True:
            draft = Draft(question, number_passages(read), self._ask)
            try:
                end = yield from self._receive(draft)
                break
            except ContextOverflow as error:
                if len(read) == 1:
                    raise RemoteError(f"{error}: not even one passage fits") from error
                read = read[: len(read) // 2]
        notes = (
            [f"{len(read)} of {len(hits)} passages fitted into the model's context"] if len(read) < len(hits) else []
        )
        if end == CUT:
            notes.append(f"the answer was cut at {self.decoding.max_answer} tokens (--max-answer)")
        if draft.is_repeating:
            notes.append("the language model repeats itself or does not end, so its answer is cut")
        if draft.attributed and not draft.is_declined:
            count = "one statement" if draft.attributed == 1 else f"{draft.attributed} statements"
            notes.append(f"the language model cited nothing for {count}; ragqa found the passages")
        answer, evidence = self._finish(draft, hits)
        yield replace(answer, note="; ".join(notes) or None), evidence

    def _receive(self, draft: Draft) -> Generator[str, None, str]:
        """Yield each statement of the model's reply when it is complete and checked.

        Returns:
            Reason why the reply ended, as in ``LanguageModel.write``.
        """
        assert self.decoding.max_answer is not None
        writing = self._model.write(make_messages(draft.question, draft.passages), self.decoding.max_answer)
        end = COMPLETE
        while not draft.is_repeating:
            try:
                text = draft.add(next(writing))
            except StopIteration as stop:
                end = stop.value
                break
            if text:
                yield text
        writing.close()
        if text := draft.finish():
            yield text
        return end

    def _fit_passages(self, hits: list[Hit]) -> list[Hit]:
        """Return the first hits that fit into the model's context, at least one."""
        assert self.decoding.max_answer is not None
        context = self._model.find_context()
        read = list(hits)
        while len(read) > 1:
            text = number_passages(read).text
            if context is None:
                size, room = len(text), MAX_CHARACTERS
            else:
                size, room = estimate_tokens(text), context - self.decoding.max_answer - _REST
                if size > room:
                    size = self._model.count_tokens(text)
            if size <= room:
                break
            read = read[: max(1, min(len(read) - 1, len(read) * max(0, room) // size))]
        return read

    def _ask(self, question: str, hits: list[Hit]) -> tuple[str, float] | None:
        answer = self._read_span(question, hits)
        return (answer.text, answer.confidence) if answer is not None and answer.text else None

    def _read_span(self, question: str, hits: list[Hit]) -> Answer | None:
        """Return the span reader's answer; None for a question that is not in Latin script."""
        with self._loading:
            if self._span_reader is None:
                self._span_reader = ExtractiveReader.load()
        return self._span_reader.read([question], [hits])[0] if is_latin(question) else None

    def _finish(self, draft: Draft, hits: list[Hit]) -> tuple[Answer, ChatEvidence | None]:
        span = self._read_span(draft.question, hits[:SPAN_PASSAGES])
        guess: tuple[Alternative, ...] = ()
        if span is not None and span.text:
            guess = (Alternative(span.text, span.confidence, span.sources),)
        if draft.is_declined or not draft.statements:
            reason = _DECLINED if draft.is_declined else _WROTE_NOTHING
            return replace(decline(draft.question, hits, reason), alternatives=guess), None
        agrees = bool(guess) and _agree(draft.text, guess[0].text)
        count, supported = len(draft.statements), sum(statement.is_supported for statement in draft.statements)
        evidence = ChatEvidence(
            span_confidence=guess[0].confidence if guess else 0.0,
            agrees=agrees,
            share_supported=supported / count,
            share_cited=draft.count_cited() / count,
            words=len(draft.text.split()),
        )
        confidence = self._calibration.compute_confidence(evidence)
        answer = Answer(
            draft.question,
            draft.text,
            supported / count,
            confidence,
            draft.make_sources(),
            () if agrees else guess,
            supported=supported == count,
            reason=None if supported == count else f"{count - supported} of {count} statements",
            statements=tuple(draft.statements),
        )
        return answer, evidence


def _check_decoding(decoding: Decoding) -> Decoding:
    if decoding.beams != 1 or decoding.fast or decoding.min_answer:
        raise BadInput("--beams, --fast and --min-answer are for generators in torch, not for chat: leave them out")
    if decoding.max_answer is not None and decoding.max_answer < 1:
        raise BadInput(f"max_answer = {decoding.max_answer}: at least 1 token is needed")
    return replace(decoding, max_answer=decoding.max_answer or MAX_ANSWER)


def _agree(text: str, span: str) -> bool:
    return has_answer(text, [span]) or has_answer(span, [text.rstrip(" .")])


def open_model(source: str, *, device: str = "cpu") -> LanguageModel:
    """Open a language model on a server or in a file, without loading it or sending a request.

    Args:
        source: ``URL#MODEL`` of a server, or the path of a GGUF file.
        device: device of a GGUF file, ``cpu`` or ``cuda``.

    Raises:
        BadInput: the source is neither, the URL is malformed, or the key of the server cannot be used.
        ArtefactError, DamagedArtefact, MissingExtra: as for ``LocalModel``.
    """
    url, _, model = source.partition("#")
    if address := parse_url(url):
        from ragqa.reading.chat.server import ChatServer

        return ChatServer(address, model)
    if source.lower().endswith(".gguf"):
        from ragqa.reading.chat.local_model import LocalModel

        return LocalModel(source, device=device)
    raise BadInput(f"--reader chat:{source}: name a server and a model (chat:URL#MODEL), or a file (chat:FILE.gguf)")
