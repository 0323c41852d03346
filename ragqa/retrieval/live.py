"""Retriever over an index directory, which switches to each new version of the index."""

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
    """Retriever over an index directory, which switches to each new version of the index.

    A new version is opened at the next search.

    Builds and updates replace the directory in one step, so a search can recognise a new version by its manifest.
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

        The arguments are those of ``Retriever.search``.

        Raises:
            BadInput: ``k`` is less than 1, or a pattern of the filter takes too long to match.
            ArtefactError, Mismatch: the newest version is damaged, or lacks what the settings of the first need.
        """
        return self.current().search(questions, k, filter)

    def search_terms(self, questions: list[str], k: int, filter: PassageFilter | None = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question by BM25, best first.

        If the index has no terms, these are the hits of ``search``.

        Arguments and errors are those of ``search``.
        """
        current = self.current()
        terms = getattr(current.ranker, "bm25", None)  # only a hybrid ranker has another one
        return (current if terms is None else current.with_ranker(terms)).search(questions, k, filter)

    def correct_spelling(self, question: str) -> str:
        """Return the question with its misspelt words replaced.

        It is unchanged if the index has no terms. Errors are those of ``search``.
        """
        current = self.current()
        terms = getattr(current.ranker, "bm25", current.ranker)  # of a hybrid ranker
        return correct_spelling(question, terms, current.passages) if isinstance(terms, TermIndex) else question

    def current(self) -> PassageRetriever:
        """Return a retriever over the newest version, which does not switch.

        Errors are those of ``search``.
        """
        with self._lock:
            if _read_version(self.path) != self._version:
                self._retriever, self._version = self._open(SWAP_SECONDS)
            return self._retriever

    def _open(self, patience: float) -> tuple[PassageRetriever, VersionId]:
        """Open a version of the index that is not replaced while it is being opened.

        If there is none, wait up to ``patience`` seconds for one.
        """
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
    """Open a retriever over an index, which switches to each new version of the index.

    Args:
        path: index directory.
        kind: name of a ``RetrieverKind`` that the index can serve; by default the kind for which it was made.
        encoder: another form of the encoder that made the index (its export, or its torch weights); None for the
            encoder that the index names.
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
    """Return the kind of retriever to search with.

    This is ``kind``, or by default ``index_kind``, for which the index was made.

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
