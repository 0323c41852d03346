"""Question-answering pipelines, which retrieve passages and answer questions from them."""

import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, overload

from ragqa import artefacts
from ragqa.artefacts.paths import parse_url
from ragqa.errors import BadInput, Mismatch, RemoteError
from ragqa.opened_index import OpenedIndex, open_directory, open_served
from ragqa.pipeline_settings import PipelineSettings, read_settings
from ragqa.reading import registry
from ragqa.reading.base import AnswerGenerator, Decoding, LatinReader, Reader, get_default_passages
from ragqa.retrieval.base import NoHits, Retriever, TermRetriever, get_missing_shards
from ragqa.retrieval.filters import PassageFilter
from ragqa.text import describe_low_confidence
from ragqa.types import Alternative, Answer, Hit, Source

MAX_QUESTION_CHARS = 10_000
"""Maximum length of a question in characters; the rest is cut."""


@dataclass(frozen=True)
class RetrievedQuestion:
    """Question with the passages from which a reader answers it."""

    question: str
    """Question as the user typed it."""
    asked: str
    """Question as it is searched and read; see ``Pipeline.prepare_question``."""
    hits: list[Hit]
    """Retrieved passages, best first; empty for a closed-book reader."""


class Pipeline:
    """Question-answering system: a retriever finds passages, and a reader answers from them."""

    def __init__(self, retriever: Retriever, reader: Reader, *, k: int | None = None) -> None:
        """Combine a retriever and a reader.

        Args:
            retriever: retriever that finds the passages.
            reader: reader that answers from the passages.
            k: number of passages to read for a question; by default the ``passages`` of a generative reader, or 30 for
                a span reader.
        """
        self.retriever, self.reader = retriever, reader
        self.k = get_default_passages(reader) if k is None else k
        self.notes: tuple[str, ...] = ()
        """Warnings for the user, for example that the reader was trained with another retriever."""
        self.filter: PassageFilter | None = None
        """Documents to search for a question that is asked without a filter; None for all documents."""
        self._settings: PipelineSettings | None = None
        self._loaded_parts: tuple[object, ...] = ()
        self._index: OpenedIndex | None = None
        self._index_threshold: float | None = None

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        retriever: str | None = None,
        reader: str | Path | None = None,
        encoder: str | None = None,
        fusion: str | None = None,
        k: int | None = None,
        readers: Mapping[str, str | Path] | None = None,
        decoding: Decoding | None = None,
        device: str = "cpu",
    ) -> "Pipeline":
        """Load a pipeline directory, or an index together with the default reader.

        A threshold that ``ragqa calibrate`` stored with the index for this reader replaces the threshold of the reader.

        Args:
            path: an index or a pipeline directory, or ``http://host:port`` of a served index.
            retriever: kind of retriever, a ``RetrieverKind``; by default the kind saved in the pipeline, or else the
                kind of the index. A served index is always searched with its server's kind.
            reader: reader to use instead of the pipeline's own: a directory, the kind of a reader in ``readers`` or
                saved in the pipeline, or ``KIND:SOURCE`` for a model to use as this kind.
            encoder: another form of the encoder that made the index: its export, or its torch weights.
            fusion: fusion of scores in a hybrid retriever, ``weighted`` (the default) or ``rrf``.
            k: number of passages to read for a question; by default the number saved in the pipeline, or else the
                default of ``__init__``.
            readers: readers to add to the pipeline by their kinds (keys of ``ragqa.reading.registry.READERS``).
            decoding: settings with which a generative reader decodes answers; by default the settings saved in the
                pipeline, or else the reader's defaults.
            device: ``cpu``, ``cuda`` or ``cuda:N`` for index search and torch models; exports run on the CPU.

        Raises:
            ArtefactError: a directory or model does not exist, is of another kind, or is not on this machine.
            DamagedArtefact: a file is missing or damaged.
            Mismatch: another encoder made the index, the index lacks what ``retriever`` needs, the index or reader is
                not the one with which the pipeline was saved, or a newer version of ragqa wrote a directory.
            BadInput: ``path`` is not a path, an option is unknown or out of range, or does not fit the reader, the
                retriever or the server.
            MissingExtra: a package that the index, the encoder or the reader needs is not installed.
            RemoteError: the server of a served index cannot be reached or answers incorrectly.
        """
        if not isinstance(path, str | Path):
            raise BadInput(f"expected an index or a pipeline directory, not {path!r:.80}")
        saved, parents = read_settings(path)
        options = {"retriever": retriever, "encoder": encoder, "fusion": fusion, "k": k, "decoding": decoding}
        settings = saved.override(path, reader, readers, **options)
        local = settings.find_local_models({encoder, str(reader), *map(str, (readers or {}).values())})
        index = open_served(settings) if parse_url(settings.index) else open_directory(local, device)
        opened_reader = registry.open_reader(
            local.reader, decoding=settings.decoding, device=device, scored_by=index.identity
        )
        fingerprints = {"index": index.origin}
        if settings.reader == saved.reader:
            fingerprints["reader"] = opened_reader.fingerprint
        for part, fingerprint in fingerprints.items():
            if parents.get(part, fingerprint) != fingerprint:
                raise Mismatch(f"the {part} of {path} is not the {part} it was saved with: save the pipeline again")
        pipeline = cls(index.retriever, opened_reader, k=settings.k)
        notes: list[str | None] = []
        if isinstance(opened_reader, AnswerGenerator):
            notes = [opened_reader.warning]
        if parse_url(settings.index) and not parse_url(path):  # a name that the user did not type
            notes.append(f"{path} sends the questions to {settings.index}")
        if stored := index.threshold:
            if changed := stored.find_mismatch(opened_reader.fingerprint, index.encoder):
                notes.append(f"the threshold stored with {settings.index} is not used: it is of another {changed}")
            else:
                pipeline._index_threshold = stored.threshold
        pipeline.notes = tuple(note for note in notes if note)
        pipeline._settings, pipeline._index = settings, index
        pipeline._loaded_parts = (pipeline.retriever, pipeline.reader)
        return pipeline

    def save(self, path: str | Path) -> None:
        """Write a pipeline directory with the settings with which ``load`` opened the pipeline.

        It names the index and the reader. A later change of ``k``, and the ``filter``, are not saved.

        Raises:
            BadInput: ``load`` did not open the pipeline or one of its parts, so the part has no path; or ``path`` holds
                something other than a pipeline, or cannot be written.
            RemoteError: a shard of the served index was missing when the pipeline was loaded.
        """
        if self._settings is None or self._index is None or not self.is_loaded:
            raise BadInput("only a pipeline whose parts were loaded from directories can be saved")
        if self._index.origin is None:
            raise RemoteError(f"a part of {self._settings.index} was missing: load the pipeline again once it is back")
        target = Path(path)
        artefacts.check_replaceable(target, "pipeline")
        with artefacts.replace_directory(target) as folder:
            (folder / "pipeline.json").write_text(json.dumps(self._settings.to_json(target), indent=1) + "\n")
            # The origin, not the fingerprint: the index can be updated later, but another index is refused.
            parents = {"index": self._index.origin, "reader": self.reader.fingerprint}
            artefacts.write_manifest(folder, "pipeline", {}, parents)

    @property
    def is_loaded(self) -> bool:
        """True if retriever and reader are the objects that ``load`` opened."""
        return self._index is not None and self._loaded_parts == (self.retriever, self.reader)

    @property
    def threshold(self) -> float:
        """Confidence below which answers are declined by default, of the index or else the reader."""
        if self._index_threshold is not None and self.is_loaded:
            return self._index_threshold
        return self.reader.threshold

    @property
    def index_directory(self) -> Path | None:
        """Directory of the index; None for a served index, and unless ``is_loaded``."""
        if self._settings is None or not self.is_loaded or parse_url(self._settings.index):
            return None
        return Path(self._settings.index)

    def describe(self) -> dict[str, Any]:
        """Return the settings of the pipeline and the fingerprints of its parts, by name.

        Unless ``is_loaded``, ``retriever`` is the name of a class, and other entries about the index are missing.
        """
        parts: dict[str, Any] = {"k": self.k, "reader": self.reader.fingerprint, "reader_kind": self.reader.kind}
        if self.filter:
            parts["filter"] = asdict(self.filter)
        if isinstance(self.reader, AnswerGenerator):
            parts["decoding"] = asdict(self.reader.decoding)
        if not self.is_loaded:
            return {**parts, "retriever": type(self.retriever).__name__}
        assert self._index is not None
        return {**parts, **self._index.description}

    def stream(
        self,
        question: str,
        *,
        k: int | None = None,
        min_confidence: float | None = None,
        filter: PassageFilter | None = None,
    ) -> Iterator[str | Answer]:
        """Yield pieces of the answer while the reader generates it, then the answer.

        If the reader cannot stream, only the answer is yielded. The answer can be declined even after pieces of it were
        yielded. Arguments and errors: as for ``ask``.
        """
        self._choose_threshold(min_confidence)  # raises the error before any work
        return self.stream_answer(self.retrieve([question], k=k, filter=filter)[0], min_confidence=min_confidence)

    @property
    def can_stream(self) -> bool:
        """True if the reader generates its answers and can stream them."""
        return isinstance(self.reader, AnswerGenerator) and self.reader.can_stream

    def stream_answer(
        self, retrieved: RetrievedQuestion, *, min_confidence: float | None = None
    ) -> Iterator[str | Answer]:
        """Yield the pieces and the answer, as ``stream`` does, from passages already retrieved.

        Args:
            retrieved: a result of ``retrieve``.
            min_confidence: confidence below which the answer is declined, as in ``ask``.

        Raises:
            BadInput, ArtefactError, DamagedArtefact, RemoteError: as for ``read``.
        """
        if not isinstance(self.reader, AnswerGenerator) or not self.reader.can_stream:
            yield self.read([retrieved], min_confidence=min_confidence)[0]
            return
        threshold = self._choose_threshold(min_confidence)
        for piece in self.reader.stream(retrieved.asked, retrieved.hits):
            yield piece if isinstance(piece, str) else _finish_answer(retrieved, piece, threshold)

    @overload
    def ask(
        self,
        questions: str,
        *,
        k: int | None = None,
        min_confidence: float | None = None,
        filter: PassageFilter | None = None,
    ) -> Answer: ...
    @overload
    def ask(
        self,
        questions: list[str],
        *,
        k: int | None = None,
        min_confidence: float | None = None,
        filter: PassageFilter | None = None,
    ) -> list[Answer]: ...
    def ask(
        self,
        questions: str | list[str],
        *,
        k: int | None = None,
        min_confidence: float | None = None,
        filter: PassageFilter | None = None,
    ) -> Answer | list[Answer]:
        """Answer a question, or a list of questions in order.

        Args:
            questions: one question, or a list of questions.
            k: number of passages to read for each question; by default the pipeline's ``k``.
            min_confidence: confidence, in [0, 1], below which an answer is declined: its ``text`` is None, and its
                sources are the nearest passages. The default is the pipeline's ``threshold``. With 0, a question is
                declined only if the reader itself declines it.
            filter: documents to search; by default those of the pipeline's ``filter``.

        Returns:
            One answer for one question, or a list of answers.

        Raises:
            BadInput, ArtefactError, DamagedArtefact, Mismatch, RemoteError: as for ``retrieve`` and ``read``.
        """
        if not isinstance(questions, list | tuple):
            return self.ask([questions], k=k, min_confidence=min_confidence, filter=filter)[0]
        self._choose_threshold(min_confidence)  # raises the error before any work
        return self.read(self.retrieve(questions, k=k, filter=filter), min_confidence=min_confidence)

    def read(self, retrieved: list[RetrievedQuestion], *, min_confidence: float | None = None) -> list[Answer]:
        """Answer questions from passages already retrieved, in order.

        Args:
            retrieved: results of ``retrieve``.
            min_confidence: confidence below which an answer is declined, as in ``ask``.

        Raises:
            BadInput: ``min_confidence`` is not in [0, 1].
            BadInput, ArtefactError, DamagedArtefact, RemoteError: as for ``Reader.read``.
        """
        threshold = self._choose_threshold(min_confidence)
        answers = self.reader.read([q.asked for q in retrieved], [q.hits for q in retrieved]) if retrieved else []
        return [_finish_answer(*row, threshold) for row in zip(retrieved, answers, strict=True)]

    def prepare_question(self, question: str) -> str:
        """Return the question as it is searched and read: cleaned and with corrected spelling.

        Only a retriever with a term index corrects words, and only if the reader is not closed-book.

        Raises:
            BadInput: the question is empty, or is not text.
            ArtefactError, DamagedArtefact, Mismatch: as for ``find_passages``.
        """
        cleaned = clean_question(question)
        if self.reader.is_closed_book or not isinstance(self.retriever, TermRetriever):
            return cleaned
        return self.retriever.correct_spelling(cleaned)

    def _choose_threshold(self, min_confidence: float | None) -> float:
        threshold = self.threshold if min_confidence is None else min_confidence
        if not 0 <= threshold <= 1:
            raise BadInput(f"min_confidence = {threshold}: it must be between 0 and 1")
        return threshold

    def find_passages(self, questions: list[str], k: int, filter: PassageFilter | None = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question, best first.

        Args:
            questions: results of ``prepare_question``.
            k: maximum number of hits for each question, at least 1.
            filter: documents to search; by default those of the pipeline's ``filter``.

        Raises:
            BadInput: ``k`` is less than 1, ``filter`` is not a PassageFilter, or the retriever cannot use it.
            ArtefactError, DamagedArtefact, Mismatch: a file of the index is damaged, or the index was replaced and its
                new version cannot be searched.
            RemoteError: the server of a served index cannot be reached or answers incorrectly.
        """
        if filter is not None and not isinstance(filter, PassageFilter):
            raise BadInput(f"filter = {filter!r:.40}: it must be a PassageFilter")
        wanted = filter or self.filter
        # A retriever from another program can lack the parameter for a filter.
        return self.retriever.search(questions, k, wanted) if wanted else self.retriever.search(questions, k)

    def retrieve(
        self, questions: list[str], *, k: int | None = None, filter: PassageFilter | None = None
    ) -> list[RetrievedQuestion]:
        """Return each question with the passages to read, in order.

        A closed-book reader gets no passages.

        Args:
            questions: the questions.
            k: number of passages for each question; by default the pipeline's ``k``.
            filter: documents to search; by default those of the pipeline's ``filter``.

        Raises:
            BadInput: a question is empty or not text, ``k`` is less than 1, or ``filter`` cannot be used.
            ArtefactError, DamagedArtefact, Mismatch, RemoteError: as for ``find_passages``.
        """
        depth = self.k if k is None else k
        if not isinstance(depth, int) or depth < 1:
            raise BadInput(f"k = {depth!r}: it must be a whole number of at least 1")
        asked = [self.prepare_question(question) for question in questions]
        if not asked or self.reader.is_closed_book:
            return [RetrievedQuestion(*pair, []) for pair in zip(questions, asked, strict=True)]
        hits = self.find_passages(asked, depth, filter)
        if isinstance(self.reader, LatinReader) and isinstance(self.retriever, TermRetriever):
            for number, question in enumerate(asked):
                if not self.reader.can_read(question):  # the encoder cannot read it either, but terms can match
                    hits[number] = self.retriever.search_terms([question], depth, filter or self.filter)[0]
        return [RetrievedQuestion(*row) for row in zip(questions, asked, hits, strict=True)]


def _finish_answer(retrieved: RetrievedQuestion, answer: Answer, threshold: float) -> Answer:
    hits = retrieved.hits
    if answer.text is not None and answer.confidence < threshold:
        reason = describe_low_confidence(answer.confidence, threshold)
        nearest = tuple(Source(hit, None, 0.0) for hit in hits)
        guesses = (Alternative(answer.text, answer.confidence, answer.sources), *answer.alternatives)
        answer = replace(
            answer, text=None, sources=nearest, alternatives=guesses, supported=None, reason=reason, statements=()
        )
    if isinstance(hits, NoHits):
        answer = replace(answer, reason=hits.reason)
    asked = retrieved.asked if retrieved.asked != clean_question(retrieved.question) else None
    return replace(answer, question=retrieved.question, asked=asked, missing=get_missing_shards(hits))


def clean_question(question: str) -> str:
    """Return the question, cut to ``MAX_QUESTION_CHARS``, as a line without control characters.

    Raises:
        BadInput: the question is not text, or the result is empty.
    """
    if not isinstance(question, str):
        raise BadInput(f"a question must be text, not {question!r:.80}")
    text = question[:MAX_QUESTION_CHARS].encode("utf-8", "replace").decode("utf-8")
    text = "".join(" " if unicodedata.category(c) in {"Cc", "Cs"} else c for c in text)
    text = " ".join(text.split())
    if not text:
        raise BadInput("the question is empty: ask something")
    return text
