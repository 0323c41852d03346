"""Interfaces of retrieval: rankers score rows of passages, retrievers return the passages."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from ragqa.artefacts import Manifest
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.types import Hit

if TYPE_CHECKING:
    from ragqa.retrieval.filters import PassageFilter
    from ragqa.runtime.encoder import TextEncoder

Encoders: TypeAlias = "dict[str, TextEncoder]"
"""Loaded encoders by name; all versions of an index share them, since loading takes long."""
Rows = npt.NDArray[np.int64]
"""Row numbers of passages."""
Scores = npt.NDArray[np.float32]
"""Scores of rows; higher is better."""
DEFAULT_RESULTS = 10
"""Default number of passages that a search over HTTP returns for a question."""
_CACHED_FILTERS = 16
"""Number of filters whose rows are cached for later questions."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Ranked passages of one question, best first; rows of equal score are in ascending order."""

    rows: Rows
    """Row numbers [K] of the passages, int64; K is less than the requested k if fewer passages match."""
    scores: Scores
    """Scores [K], float32."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Scoring:
    """Origin of a ranker's scores; scores of different origins are not comparable."""

    retriever: str
    """Name of the ``RetrieverKind``."""
    encoder: str | None = None
    """Fingerprint of the encoder; None if the ranker has no encoder."""
    engine: str | None = None
    """Name of the ``TermEngine``; None if the ranker does not use BM25."""


class Ranker(Protocol):
    """Interface of rankers, which score the rows of a passage store."""

    @property
    def scoring(self) -> Scoring:
        """Origin of the scores."""

    def rank(self, questions: list[str], k: int, rows: Rows | None = None) -> list[Ranking]:
        """Return at most ``k`` rows for each question, best first.

        Args:
            questions: texts of the questions.
            k: maximum number of rows.
            rows: sorted rows to rank; None for all rows.

        Raises:
            BadInput: ``k`` is less than 1.
            BadInput, DamagedArtefact: as for ``DenseRanker.search``, if the ranker uses vectors.
        """


class Retriever(Protocol):
    """Interface of retrievers, which find passages for questions."""

    def search(self, questions: list[str], k: int, filter: "PassageFilter | None" = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question, best first.

        The hits of a question are ``PartialHits`` if a shard is missing, ``NoHits`` if ``filter`` allows no document.

        Args:
            questions: texts of the questions.
            k: maximum number of hits of a question.
            filter: documents to search; None for all documents.

        Raises:
            BadInput: ``k`` is less than 1, or the retriever cannot use the filter.
            RagqaError: the index, its encoder or its server cannot be used.
        """


@runtime_checkable
class TermRetriever(Protocol):
    """Interface of retrievers that can also search by BM25 alone and correct misspelt words.

    Dense retrievers do neither: ``search_terms`` does the same as ``search``, and questions stay unchanged.
    """

    def correct_spelling(self, question: str) -> str:
        """Return the question with corrected spelling; errors: as for ``Retriever.search``."""

    def search_terms(self, questions: list[str], k: int, filter: "PassageFilter | None" = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question by BM25, best first.

        Arguments and errors: as for ``Retriever.search``.
        """


@dataclass(frozen=True)
class IndexVersion:
    """One version of an index directory, with the settings of its search."""

    path: Path
    manifest: Manifest
    passages: PassageStore
    encoder: str | None
    """Encoder to load: another form of the weights of the manifest's encoder; None for the manifest's encoder."""
    device: str
    """``cpu``, ``cuda`` or ``cuda:N``."""
    fusion: str | None
    """Fusion of a hybrid retriever; None for the default."""
    encoders: Encoders

    @property
    def config(self) -> dict[str, Any]:
        """Settings of the index, from its manifest."""
        return self.manifest.config

    @property
    def rows(self) -> int:
        """Number of rows of the passage store, including the rows of deleted passages."""
        return int(self.config.get("rows", self.config["passages"]))


class PartialHits(list[Hit]):
    """Hits of a search to which some shards of a collection did not contribute."""

    def __init__(self, hits: Iterable[Hit], missing: tuple[str, ...]) -> None:
        super().__init__(hits)
        self.missing = missing
        """Names of the shards that did not answer."""


class NoHits(list[Hit]):
    """Empty list of hits of a search whose filter allows no document."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason
        """Reason, for the user, why no document matches the filter."""


def get_missing_shards(hits: list[Hit]) -> tuple[str, ...]:
    """Return the names of the shards that did not contribute to ``hits``."""
    return hits.missing if isinstance(hits, PartialHits) else ()


class PassageRetriever:
    """Retriever that returns the passages of the rows that a ranker finds."""

    def __init__(self, ranker: Ranker, passages: PassageStore, folders: Iterable[str] = ()) -> None:
        """Combine a ranker and the passages that it ranks.

        Args:
            ranker: ranker of the rows of the passages.
            passages: passages of an index.
            folders: indexed folders and files; filters match a path from the name of its folder on.
        """
        self.ranker, self.passages, self._folders = ranker, passages, tuple(folders)
        self._find_rows = lru_cache(_CACHED_FILTERS)(lambda wanted: wanted.find_rows(passages, self._folders))

    def with_ranker(self, ranker: Ranker) -> "PassageRetriever":
        """Return a retriever over the same passages with another ranker."""
        return PassageRetriever(ranker, self.passages, self._folders)

    def search(self, questions: list[str], k: int, filter: "PassageFilter | None" = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question, best first.

        The hits are ``NoHits`` if ``filter`` allows no document. Arguments: as for ``Retriever.search``.

        Raises:
            BadInput: a pattern of the filter takes too long to match, or as for ``Ranker.rank``.
            DamagedArtefact: the file of a passage is damaged, or as for ``Ranker.rank``.
        """
        check_k(k)
        # Engines reserve memory for k results, so k is at most the number of passages.
        k = min(k, max(1, len(self.passages)))
        if filter:
            rows = self._find_rows(filter)
            if not len(rows):
                return [NoHits(filter.explain_empty(self.passages, self._folders)) for _ in questions]
            rankings = self.ranker.rank(questions, k, rows)
        else:
            rankings = self.ranker.rank(questions, k)
        results = [(self.passages.get(ranking.rows.tolist()), ranking.scores.tolist()) for ranking in rankings]
        return [[Hit(*pair) for pair in zip(*lists, strict=True)] for lists in results]


def select_best(rows: npt.ArrayLike, scores: npt.ArrayLike, k: int) -> Ranking:
    """Return the ``k`` rows with the highest scores, best first, then by row number.

    Args:
        rows: row numbers [N].
        scores: scores of the rows [N].
        k: maximum number of rows to return.
    """
    all_rows, all_scores = np.asarray(rows, np.int64), np.asarray(scores, np.float32)
    if len(all_rows) > 4 * k:  # for speed, sort only the rows that can be among the best, including ties with the k-th
        is_candidate = all_scores >= np.partition(all_scores, -k)[-k]
        all_rows, all_scores = all_rows[is_candidate], all_scores[is_candidate]
    order = np.lexsort((all_rows, -all_scores))[:k]
    return Ranking(all_rows[order], all_scores[order])


def merge_rankings(first: Ranking, second: Ranking, k: int) -> Ranking:
    """Return the best ``k`` rows of two rankings without common rows, best first."""
    return select_best(np.concatenate([first.rows, second.rows]), np.concatenate([first.scores, second.scores]), k)


def check_k(k: int) -> None:
    """Raise BadInput if ``k`` is less than 1."""
    if k < 1:
        raise BadInput(f"k = {k}: at least one passage must be asked for")
