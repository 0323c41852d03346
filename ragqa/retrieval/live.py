"""Retriever over an index directory that builds and updates can replace at any time."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import monotonic, sleep

from ragqa import artefacts
from ragqa.artefacts.paths import make_encoder_absolute
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch
from ragqa.retrieval.base import Encoders, IndexVersion, PassageRetriever, Ranker
from ragqa.retrieval.filters import PassageFilter
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.spelling import TermIndex, correct_spelling
from ragqa.types import Hit

SWAP_SECONDS = 1.0
"""Seconds to wait for an index that has disappeared: some file systems cannot swap two directories in one step."""

VersionId = tuple[int, int] | None
"""Inode and modification time (nanoseconds) of a manifest; None if there is no manifest."""


class LiveRetriever:
    """Retriever over an index directory; each search uses the newest version of the index.

    Builds and updates replace the whole directory, so each version has a manifest file of its own.
    """

    def __init__(self, path: Path, load: Callable[[], PassageRetriever]) -> None:
        """Open the newest version of an index.

        Args:
            path: directory of the index.
            load: function that opens the version that is now at ``path``.

        Raises:
            RagqaError: as for ``load``.
        """
        self.path = path
        """Directory of the index."""
        self._load = load
        self._lock = Lock()
        self._retriever, self._version = self._open(0.0)

    @property
    def ranker(self) -> Ranker:
        """Ranker of the version that is open."""
        return self._retriever.ranker

    @property
    def passages(self) -> PassageStore:
        """Passages of the version that is open."""
        return self._retriever.passages

    def search(self, questions: list[str], k: int, filter: PassageFilter | None = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question, best first, from the newest version.

        Arguments: as for ``Retriever.search``.

        Raises:
            RagqaError: as for ``PassageRetriever.search`` and, if there is a new version, for ``open_retriever``.
        """
        return self.current().search(questions, k, filter)

    def search_terms(self, questions: list[str], k: int, filter: PassageFilter | None = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question by BM25, best first.

        With a dense ranker, this is ``search``. Arguments and errors: as for ``search``.
        """
        current = self.current()
        terms = getattr(current.ranker, "bm25", None)  # None unless the ranker is hybrid
        return (current if terms is None else current.with_ranker(terms)).search(questions, k, filter)

    def correct_spelling(self, question: str) -> str:
        """Return the question with its misspelt words replaced.

        Dense retrievers and the BM25 engine Lucene do not change the question. Errors: as for ``search``.
        """
        current = self.current()
        terms = getattr(current.ranker, "bm25", current.ranker)  # the BM25 part of a hybrid ranker
        return correct_spelling(question, terms, current.passages) if isinstance(terms, TermIndex) else question

    def current(self) -> PassageRetriever:
        """Return a retriever over the newest version, which does not follow later versions.

        Errors: as for ``open_retriever``.
        """
        with self._lock:
            if _read_version(self.path) != self._version:
                self._retriever, self._version = self._open(SWAP_SECONDS)
            return self._retriever

    def _open(self, patience: float) -> tuple[PassageRetriever, VersionId]:
        """Open the newest version of the index; wait up to ``patience`` seconds if there is none."""
        end = monotonic() + patience
        while True:
            version = _read_version(self.path)
            try:
                retriever = self._load()
                if _read_version(self.path) == version:  # otherwise the index was replaced while it was being opened
                    return retriever, version
            except (ArtefactError, OSError):
                if _read_version(self.path) == version and (version is not None or monotonic() >= end):
                    raise
            sleep(0.001)


def _read_version(path: Path) -> VersionId:
    """Return a value that changes with every version of the artefact at ``path``."""
    try:
        stat = (path / artefacts.MANIFEST).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def open_retriever(
    path: Path,
    kind: str | None = None,
    *,
    encoder: str | None = None,
    fusion: str | None = None,
    device: str = "cpu",
) -> LiveRetriever:
    """Open a retriever over an index directory; it follows later versions of the index.

    Args:
        path: index directory.
        kind: name of a ``RetrieverKind`` that the index can serve; None for the kind for which it was made.
        encoder: directory or hub name of the encoder that made the index, to use its export or its torch weights; None
            for the encoder that the index names.
        fusion: name of a ``Fusion``, for a hybrid retriever only; None for the default.
        device: ``cpu``, ``cuda`` or ``cuda:N`` for torch encoders and vector search.

    Raises:
        ArtefactError: there is no index at ``path``, or no encoder.
        DamagedArtefact: a file of the index is missing or damaged.
        Mismatch: another encoder or another version of ragqa made the index, or it lacks what ``kind`` needs.
        BadInput: the kind, fusion or device is unknown, or ``fusion`` is set and the retriever is not hybrid.
        MissingExtra: a library that the index needs is not installed.
    """
    path = path.absolute()  # the index is opened again later, possibly from another working directory
    encoder = make_encoder_absolute(encoder) if encoder else None
    encoders: Encoders = {}

    def open_version() -> PassageRetriever:
        with artefacts.report_damage(path):
            manifest = artefacts.read_manifest(path, "index")
            chosen = _choose_kind(path, manifest.config["retriever"], kind)
            if fusion and not chosen.can_fuse:
                raise BadInput(f"fusion {fusion}: there is nothing to fuse in retriever {chosen}")
            passages = PassageStore.open(path / "passages")
            index = IndexVersion(path, manifest, passages, encoder, device, fusion, encoders)
            if len(passages) != index.rows:
                raise DamagedArtefact(f"{path} holds {len(passages)} passages instead of {index.rows}: make it again")
            return PassageRetriever(chosen.open_ranker(index), passages, manifest.config["sources"])

    return LiveRetriever(path, open_version)


def _choose_kind(path: Path, index_kind: str, kind: str | None) -> RetrieverKind:
    for name in (kind or index_kind, index_kind):
        if name not in list(RetrieverKind):
            raise BadInput(f"retriever '{name}': choose one of {', '.join(RetrieverKind)}")
    chosen = RetrieverKind(kind or index_kind)
    if not RetrieverKind(index_kind).can_search_as(chosen):
        raise Mismatch(f"{path} was made with --retriever {index_kind} and cannot do {chosen}: index it again")
    return chosen
