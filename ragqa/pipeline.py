"""A question-answering system: retrieve, read, answer."""

import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, overload

from ragqa import artefacts
from ragqa.artefacts.paths import parse_url
from ragqa.errors import BadInput, Mismatch, RemoteError
from ragqa.reading import registry
from ragqa.reading.base import AnswerGenerator, Decoding, Reader, RetrieverIdentity, get_default_passages
from ragqa.retrieval.base import Retriever, missing_shards
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import DEFAULT_FUSION, RetrieverKind
from ragqa.types import Answer, Hit, Source

MAX_QUESTION_CHARS = 10_000
"""Characters of a question that count; more is not a question."""


@dataclass(frozen=True)
class Searched:
    """An index as a pipeline was loaded with it: a directory, or one that is served."""

    retriever: Retriever
    origin: str | None
    """Fingerprint, the same for all versions that updates make of it; None where part of a served one is missing."""
    facts: dict[str, Any]
    """What ``describe`` says of it."""


class Pipeline:
    """Answers questions from the passages its retriever finds with what its reader marks or writes."""

    def __init__(self, retriever: Retriever, reader: Reader, *, k: int | None = None) -> None:
        """``k`` passages are read for a question; by default as many as the reader was trained with, or 10."""
        self.retriever, self.reader = retriever, reader
        self.k = get_default_passages(reader) if k is None else k
        self.note: str | None = None
        """What whoever asks should know of how its parts go together, in a line."""
        self._settings: dict[str, Any] | None = None
        self._parts: tuple[object, ...] = ()
        self._index: Searched | None = None

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
        """The pipeline of an index directory or a served index (with the default reader), or of a pipeline directory.

        Args:
            path: an index or a pipeline directory, or ``http://host:port`` of an index that is served.
            retriever: ``dense``, ``bm25`` or ``hybrid``; by default all that the index can do. A served index is
                searched as its server was told: other wishes than that are refused.
            reader: a reader in place of the pipeline's own: a directory, the name of one of its ``readers``, or
                ``KIND:SOURCE`` for a seq2seq that is used as rag-token, rag-sequence, fid or closed-book.
            encoder: another form of the encoder that made the index: its export, its torch weights.
            fusion: of a hybrid retriever: ``weighted`` (the default) or ``rrf``.
            k: passages to read for a question; by default what the pipeline says of its own reader, or what the reader
                was trained with.
            readers: readers by the names span, rag-token, rag-sequence, fid, closed-book, which ``save`` keeps.
            decoding: of a reader that writes its answers; by default what the pipeline says of its own.
            device: where the index is searched and torch models run; exports run on the CPU.

        Raises:
            ArtefactError, DamagedArtefact: no such directory, or not whole.
            Mismatch: the index was made with another encoder, or lacks what ``retriever`` needs.
            BadInput: ``decoding`` is not for this reader, there is no reader of this name, or ``readers`` gives one
                another.
            RemoteError: no such server, or it does not answer.
        """
        if not isinstance(path, str | Path):
            raise BadInput(f"an index or a pipeline directory is needed, and not {path!r:.80}")
        url, path = parse_url(path), Path(path)
        settings: dict[str, Any] = dict.fromkeys(("reader", "retriever", "encoder", "fusion", "k", "decoding"))
        settings.update(index=url or str(path), readers={})
        parents: dict[str, str] = {}
        if not url and artefacts.peek_manifest(path).kind == "pipeline":
            parents = artefacts.read_manifest(path, "pipeline").parents
            saved = json.loads((path / "pipeline.json").read_text())
            settings.update({key: value for key, value in saved.items() if key in settings})
            for part in ("index", "encoder"):
                if settings[part] and _is_place(part, settings[part]):
                    settings[part] = str(path / settings[part])

            def absolute(place: str) -> str:
                return str(path / place)

            settings["reader"] = settings["reader"] and registry.relocate_setting(settings["reader"], absolute)
            settings["readers"] = {
                name: registry.relocate_setting(setting, absolute) for name, setting in settings["readers"].items()
            }
        if unknown := sorted(set(readers or ()) - set(registry.ReaderKind)):
            raise BadInput(f"readers={{{unknown[0]!r}: …}}: the names are {', '.join(registry.ReaderKind)}")
        settings["readers"].update({name: str(each) for name, each in (readers or {}).items()})
        own = settings["reader"]
        if reader is not None:
            settings["reader"] = registry.resolve_name(str(reader), settings["readers"], path)
        if own != settings["reader"]:
            settings.update(k=None, decoding=None)  # what was said of the pipeline's own reader
        given: dict[str, Any] = {"retriever": retriever, "encoder": encoder, "fusion": fusion, "k": k}
        given["decoding"] = asdict(decoding) if decoding else None
        settings.update({key: value for key, value in given.items() if value is not None})
        index = _served(settings) if parse_url(settings["index"]) else _opened(settings, device)
        decoding = Decoding(**settings["decoding"]) if settings["decoding"] else None
        facts = index.facts
        # Only scores of dense retrieval alone are inner products of an encoder's vectors.
        scorer = facts["encoder"] if facts["retriever"] == RetrieverKind.DENSE else None
        scored_by = RetrieverIdentity(facts["retriever"], scorer)
        chosen = registry.open_reader(settings["reader"], decoding=decoding, device=device, scored_by=scored_by)
        now = {"index": index.origin, "reader": chosen.fingerprint}
        for part, fingerprint in parents.items():
            if now[part] != fingerprint and (part == "index" or own == settings["reader"]):
                raise Mismatch(f"the {part} of {path} is not the one it was saved with: save the pipeline again")
        pipeline = cls(index.retriever, chosen, k=settings["k"])
        if isinstance(chosen, AnswerGenerator):
            pipeline.note = chosen.prior_warning
        pipeline._settings, pipeline._index = settings, index
        pipeline._parts = (pipeline.retriever, pipeline.reader)
        return pipeline

    def save(self, path: str | Path) -> None:
        """Write a pipeline directory that names this pipeline's index, reader and settings.

        Raises:
            BadInput: the pipeline was put together by hand, so nothing names its parts.
            RemoteError: a part of its served index was missing when it was loaded.
        """
        import os

        if self._settings is None or self._index is None:
            raise BadInput("only a pipeline that was loaded from directories can be saved")
        if self._index.origin is None:
            raise RemoteError(
                f"a part of {self._settings['index']} was missing: load the pipeline again once it is back"
            )
        target = Path(path)
        artefacts.check_replaceable(target, "pipeline")
        saved = dict(self._settings)

        def relative(place: str) -> str:  # so that the directory that holds the pipeline and its parts can be moved
            return os.path.join(".", os.path.relpath(Path(place).resolve(), target.resolve()))

        for part in ("index", "encoder"):
            if saved[part] and not parse_url(saved[part]) and (part != "encoder" or Path(saved[part]).exists()):
                saved[part] = relative(saved[part])
        saved["reader"] = saved["reader"] and registry.relocate_setting(saved["reader"], relative)
        saved["readers"] = {name: registry.relocate_setting(each, relative) for name, each in saved["readers"].items()}
        with artefacts.replace_directory(target) as folder:
            (folder / "pipeline.json").write_text(json.dumps(saved, indent=1) + "\n")
            # The index may be updated, as it may be under a pipeline that is loaded; another must not take its place.
            parents = {"index": self._index.origin, "reader": self.reader.fingerprint}
            artefacts.write_manifest(folder, "pipeline", {}, parents)

    @property
    def loaded(self) -> bool:
        """Whether this pipeline is what ``load`` made of its directories: then ``describe`` says all of it."""
        return self._index is not None and self._parts == (self.retriever, self.reader)

    def describe(self) -> dict[str, Any]:
        """What this pipeline is made of, by fingerprint; of one that was put together by hand it knows little."""
        parts: dict[str, Any] = {"k": self.k, "reader": self.reader.fingerprint}
        if isinstance(self.reader, AnswerGenerator):
            parts["decoding"] = asdict(self.reader.decoding)
        if not self.loaded:
            return {**parts, "retriever": type(self.retriever).__name__}
        assert self._index is not None
        return {**parts, **self._index.facts}

    def stream(self, question: str, *, k: int | None = None, min_confidence: float = 0.0) -> Iterator[str | Answer]:
        """Pieces of the answer as a reader writes it, then the answer; arguments and errors as those of ``ask``.

        Of a reader that cannot say an answer before it has it, the answer alone. One that is declined in the end may
        have been said by then.
        """
        if not isinstance(self.reader, AnswerGenerator) or not self.reader.can_stream:
            yield self.ask(question, k=k, min_confidence=min_confidence)
            return
        asked, hits = self._found([question], k, min_confidence)
        for each in self.reader.stream(asked[0], hits[0]):
            yield each if isinstance(each, str) else _given(question, each, hits[0], min_confidence)

    @overload
    def ask(self, questions: str, *, k: int | None = None, min_confidence: float = 0.0) -> Answer: ...
    @overload
    def ask(self, questions: list[str], *, k: int | None = None, min_confidence: float = 0.0) -> list[Answer]: ...
    def ask(
        self, questions: str | list[str], *, k: int | None = None, min_confidence: float = 0.0
    ) -> Answer | list[Answer]:
        """The answer to a question, or the answers to a list of them in its order.

        Args:
            questions: one, or a list.
            k: passages to read for each; by default the pipeline's own.
            min_confidence: an answer below it is declined: its ``text`` is None, its sources the
                nearest passages.

        Raises:
            BadInput: a question is empty or no text, ``k`` is less than 1, or ``min_confidence`` is no share.
        """
        if not isinstance(questions, list | tuple):
            return self.ask([questions], k=k, min_confidence=min_confidence)[0]
        asked, hits = self._found(questions, k, min_confidence)
        answers = self.reader.read(asked, hits) if asked else []
        return [_given(*each, min_confidence) for each in zip(questions, answers, hits, strict=True)]

    def _found(self, questions: list[str], k: int | None, least: float) -> tuple[list[str], list[list[Hit]]]:
        """The questions as they are asked, and what is found for each; nothing where the book is closed."""
        depth = self.k if k is None else k
        if not isinstance(depth, int) or depth < 1:
            raise BadInput(f"k = {depth!r}: at least one passage must be read, a whole number of them")
        if not 0 <= least <= 1:
            raise BadInput(f"min_confidence = {least}: from 0 to 1 is needed")
        asked = [clean_question(question) for question in questions]
        if not asked or self.reader.is_closed_book:
            return asked, [[] for _ in asked]
        return asked, self.retriever.search(asked, depth)


def _given(question: str, answer: Answer, hits: list[Hit], min_confidence: float) -> Answer:
    """What is said to a question: the answer, or that there is none that is sure enough."""
    if answer.text is not None and answer.confidence < min_confidence:
        answer = declined(answer, hits, f"the best has confidence {answer.confidence:.2f}, below {min_confidence:.2f}")
    return replace(answer, question=question, missing=missing_shards(hits))


def _is_place(part: str, saved: str) -> bool:
    """Whether what a pipeline directory says of a part is a path from there; an encoder may have a hub's name."""
    return not parse_url(saved) and (part != "encoder" or saved.startswith("."))


def _opened(settings: dict[str, Any], device: str) -> Searched:
    """The index directory of a pipeline's settings."""
    path, wanted, fusion = Path(settings["index"]), settings["retriever"], settings["fusion"]
    found = open_retriever(path, wanted, encoder=settings["encoder"], fusion=fusion, device=device)
    index = artefacts.peek_manifest(path)
    retriever = wanted or index.config["retriever"]
    dense = RetrieverKind(retriever).needs_vectors
    facts = {
        "retriever": retriever,
        "fusion": (fusion or DEFAULT_FUSION) if retriever == RetrieverKind.HYBRID else None,
        "kind": index.config["kind"] if dense else None,
        "encoder": index.parents["encoder"] if dense else None,
        "index": index.fingerprint,
        "passages": index.config["passages"],
        "corpus": index.parents["corpus"],
        "sources": [Path(source).name for source in index.config["sources"]],
    }
    return Searched(found, index.origin, facts)


def _served(settings: dict[str, Any]) -> Searched:
    """The served index of a pipeline's settings, which must not wish for another search than its server's."""
    from ragqa.retrieval.remote import RemoteRetriever

    url = settings["index"]
    found = RemoteRetriever(url)
    now = found.collection()
    for name, is_so in {"retriever": now.retriever, "fusion": now.fusion, "encoder": None}.items():
        if settings[name] not in (None, is_so):
            raise BadInput(f"{name} {settings[name]}: {url} is searched as its server was told to; leave it out")
    return Searched(found, now.origin, now.describe())


def declined(answer: Answer, hits: list[Hit], reason: str) -> Answer:
    """The refusal to give ``answer``: nothing but its confidence, why, and the nearest passages."""
    nearest = tuple(Source(hit, None, 0.0) for hit in hits)
    return replace(answer, text=None, sources=nearest, alternatives=(), supported=None, reason=reason)


def clean_question(question: str) -> str:
    """One line of text: control characters become spaces, an absurd length is cut.

    Raises:
        BadInput: nothing is left, or it is no text.
    """
    if not isinstance(question, str):
        raise BadInput(f"a question is text, and not {question!r:.80}")
    text = question[:MAX_QUESTION_CHARS].encode("utf-8", "replace").decode("utf-8")
    text = "".join(" " if unicodedata.category(c) in {"Cc", "Cs"} else c for c in text)
    text = " ".join(text.split())
    if not text:
        raise BadInput("the question is empty: ask something")
    return text
