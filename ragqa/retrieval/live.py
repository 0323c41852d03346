"""Retriever of an index directory: ``open_retriever`` opens it, and it switches to each new version of the index."""

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
"""Seconds to wait for an index that just disappeared: some file systems cannot swap two directories in one step."""

VersionId = tuple[int, int] | None
"""Inode and modification time (nanoseconds) of a manifest; None if there is no manifest."""


class LiveRetriever:
    """Retriever over an index directory, which opens every new version of the index.

    Builds and updates replace the directory in one step, so the next search finds a different manifest.
    """

    def __init__(self, path: Path, load: Callable[[], PassageRetriever]) -> None:
        """Open the newest version of an index.

        Args:
            path: directory of the index.
            load: function that opens the version that is now at ``path``.
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

        Raises:
            BadInput: ``k`` is less than 1.
            ArtefactError, Mismatch: the newest version cannot be searched with the settings of the first version.
        """
        return self.current().search(questions, k, filter)

    def search_terms(self, questions: list[str], k: int, filter: PassageFilter | None = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question by BM25, or by the ranker of an index without words."""
        current = self.current()
        terms = getattr(current.ranker, "bm25", None)  # only a hybrid ranker has another one
        return (current if terms is None else current.with_ranker(terms)).search(questions, k, filter)

    def correct_spelling(self, question: str) -> str:
        """Return the question with its misspelt words replaced; unchanged if the index has no terms."""
        current = self.current()
        terms = getattr(current.ranker, "bm25", current.ranker)  # of a hybrid ranker
        return correct_spelling(question, terms, current.passages) if isinstance(terms, TermIndex) else question

    def current(self) -> PassageRetriever:
        """Return a retriever over the newest version only; raises the same errors as ``search``."""
        with self._lock:
            if _read_version(self.path) != self._version:
                self._retriever, self._version = self._open(SWAP_SECONDS)
            return self._retriever

    def _open(self, patience: float) -> tuple[PassageRetriever, VersionId]:
        """Open a consistent version; wait up to ``patience`` seconds if there is none."""
        end = monotonic() + patience
        while True:
            version = _read_version(self.path)
            try:
                retriever = self._load()
                if _read_version(self.path) == version:  # else the index was replaced while it was being opened
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
    """Open a retriever over the index at ``path``, which switches to new versions of the index.

    Args:
        path: index directory.
        kind: a ``RetrieverKind`` that the index can serve; by default the kind for which it was made.
        encoder: another form of the encoder that made the index: its export, or its torch weights.
        fusion: a ``Fusion``, for a hybrid retriever only.
        device: ``cpu``, ``cuda`` or ``cuda:N`` for torch encoders and FAISS.

    Raises:
        ArtefactError: there is no index at ``path``.
        DamagedArtefact: a file of the index is missing or damaged.
        Mismatch: the index was made with another encoder, or lacks what ``kind`` needs.
        BadInput: the kind, fusion or device is unknown.
    """
    path = path.absolute()  # the index is opened again later, possibly from another working directory
    encoder = make_encoder_absolute(encoder) if encoder else None
    encoders: Encoders = {}
    return LiveRetriever(path, lambda: _open_version(path, kind, encoder, fusion, device, encoders))


def _open_version(
    path: Path, kind: str | None, encoder: str | None, fusion: str | None, device: str, encoders: Encoders
) -> PassageRetriever:
    with artefacts.report_damage(path):
        return _open_index(path, kind, encoder, fusion, device, encoders)


def _open_index(
    path: Path, kind: str | None, encoder: str | None, fusion: str | None, device: str, encoders: Encoders
) -> PassageRetriever:
    manifest = artefacts.read_manifest(path, "index")
    chosen = _choose_kind(path, manifest.config["retriever"], kind)
    if fusion and not chosen.can_fuse:
        raise BadInput(f"fusion {fusion}: there is nothing to fuse in retriever {chosen}")
    passages = PassageStore.open(path / "passages")
    index = IndexVersion(path, manifest, passages, encoder, device, fusion, encoders)
    if len(passages) != index.rows:
        raise DamagedArtefact(f"{path} holds {len(passages)} passages instead of {index.rows}: make it again")
    return PassageRetriever(chosen.open_ranker(index), passages, manifest.config["sources"])


def _choose_kind(path: Path, index_kind: str, kind: str | None) -> RetrieverKind:
    """Return the kind to search with: ``kind``, or else ``index_kind``, which made the index.

    Raises:
        BadInput: a kind is unknown.
        Mismatch: the index lacks the vectors or terms that the kind needs.
    """
    for name in (kind or index_kind, index_kind):
        if name not in list(RetrieverKind):
            raise BadInput(f"retriever '{name}': choose one of {', '.join(RetrieverKind)}")
    chosen = RetrieverKind(kind or index_kind)
    if not RetrieverKind(index_kind).can_search_as(chosen):
        raise Mismatch(f"{path} was made with --retriever {index_kind} and cannot do {chosen}: index it again")
    return chosen
