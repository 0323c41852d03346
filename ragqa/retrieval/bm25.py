"""BM25 over the terms of passages, by the engine Tantivy or Lucene."""

from collections.abc import Callable, Iterable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.retrieval.base import IndexVersion, Ranking, Rows, Scoring, check_k
from ragqa.retrieval.registry import DEFAULT_ENGINE, TERM_ENGINES, TERMS_FOLDER, RetrieverKind, TermEngine
from ragqa.types import Passage


class BM25:
    """Ranker that scores passages by BM25 (Robertson and Zaragoza 2009).

    Both engines convert terms to lower case, stem English words (Lucene: Porter, Tantivy: Porter2) and leave out 33
    stop words. Lucene uses k1 = 0.9 and b = 0.4, as in the literature on open-domain question answering. Tantivy's
    k1 = 1.2 and b = 0.75 cannot be changed.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def scoring(self) -> Scoring:
        """Origin of the scores: BM25 by this engine."""
        return Scoring(RetrieverKind.BM25, engine=self._engine.name)

    @classmethod
    def build(
        cls,
        passages: PassageStore,
        folder: Path,
        *,
        engine: str = DEFAULT_ENGINE,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Index the title, headings and text of all passages.

        Args:
            passages: passages to index, none of them deleted; rankings return their row numbers.
            folder: empty directory to write; it is created if it does not exist.
            engine: name of a ``TermEngine``.
            progress: function called with the number of passages indexed so far.

        Raises:
            BadInput: the engine is unknown, or a file cannot be written.
            MissingExtra: the engine is not installed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        _load_engine(engine).build(passages, folder, progress or (lambda done: None))

    @classmethod
    def open(cls, folder: Path, *, engine: str) -> "BM25":
        """Open the index in a folder.

        Args:
            folder: directory of the index.
            engine: name of the ``TermEngine`` that built the index.

        Raises:
            BadInput: the engine is unknown.
            MissingExtra: the engine is not installed.
            DamagedArtefact: the folder has no complete index of this engine.
        """
        return cls(_load_engine(engine).open(folder))

    @classmethod
    def update(cls, folder: Path, *, engine: str, deleted: Rows, added: Iterable[Passage]) -> None:
        """Delete rows from the index in a folder and add passages to it, in one step.

        Args:
            folder: directory of the index.
            engine: name of the ``TermEngine`` that built the index.
            deleted: sorted rows to delete.
            added: passages to add; their ids are their rows.

        Raises:
            BadInput: the engine is unknown or cannot update an index, or a file cannot be written.
            MissingExtra: the engine is not installed.
        """
        _load_engine(engine).update(folder, deleted, added)

    def rank(self, questions: list[str], k: int, rows: Rows | None = None) -> list[Ranking]:
        """Return at most ``k`` rows for each question, best first.

        A question without terms has no rows. Arguments: as for ``Ranker.rank``.

        Raises:
            BadInput: ``k`` is less than 1.
        """
        check_k(k)
        # Neither engine accepts a lone surrogate, which a badly encoded command line can contain.
        texts = [question.encode("utf-8", "replace").decode() for question in questions]
        if rows is not None:
            return [self._rank_within(text, k, rows) for text in texts]
        rankings: list[Ranking] = self._engine.rank(texts, k) if texts else []
        return rankings

    def has_term(self, word: str) -> bool:
        """Return True if a passage has the term of a word, or if this cannot be looked up.

        Stop words are not indexed, and Lucene cannot look up any term.
        """
        return not hasattr(self._engine, "has_term") or bool(self._engine.has_term(word))

    def rank_similar(self, word: str, question: str, k: int) -> Ranking:
        """Return at most ``k`` rows with a term that is similar to a word.

        Rows with terms of the question come first. The engine must have ``rank_similar``, as Tantivy has.

        Args:
            word: word that may be misspelt; its stem can have one wrong, additional, missing or swapped letter, or two
                if the stem has more than six letters.
            question: question that contains the word.
            k: maximum number of rows.
        """
        ranking: Ranking = self._engine.rank_similar(word, question, k)
        return ranking

    def _rank_within(self, text: str, k: int, rows: Rows) -> Ranking:
        # Tantivy cannot search within a set of rows, because the field of the rows is not indexed. So rank more and
        # more rows until k of the given rows are among them.
        limit = 4 * k
        while True:
            ranking: Ranking = self._engine.rank([text], limit)[0]
            is_allowed = np.isin(ranking.rows, rows)
            if np.count_nonzero(is_allowed) >= k or len(ranking) < limit:
                return Ranking(ranking.rows[is_allowed][:k], ranking.scores[is_allowed][:k])
            limit *= 4


def open_ranker(index: IndexVersion) -> BM25:
    """Open the BM25 ranker over the terms of an index; errors: as for ``BM25.open``."""
    return BM25.open(index.path / TERMS_FOLDER, engine=index.config["engine"])


def check_engine(name: str) -> None:
    """Raise BadInput if an engine is unknown, and MissingExtra if it is not installed."""
    _load_engine(name).check_installed()


def _load_engine(name: str) -> Any:
    if name not in list(TermEngine):
        raise BadInput(f"engine {name}: choose one of {', '.join(TermEngine)}")
    return resolve_name(TERM_ENGINES[TermEngine(name)])
