"""BM25 by Tantivy, in the core, or by Lucene, with the extra ``lucene``: one interface."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np
import tantivy

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.retrieval.base import Ranker, Ranking, Rows, best, check_k
from ragqa.types import Passage

ENGINES = ("tantivy", "lucene")
MAX_TERMS = 256
"""Different terms of a question that are searched: each opens a list of passages, a pasted book all."""
_MAX_TERM_BYTES = 255
"""Longer runs of letters and digits are no words and not indexed; Lucene draws the line there too."""
_THREADS = 2
_HEAP = 128_000_000
"""Bytes of postings that a build holds before it writes a segment, all threads together."""


class BM25:
    """Ranks passages by the question's terms (Robertson and Zaragoza 2009).

    Both engines lower-case, stem English words (Porter) and leave out 33 stop words. Lucene has
    k1 = 0.9, b = 0.4, as the literature on open-domain question answering; Tantivy has k1 = 1.2,
    b = 0.75, which it does not let anybody change.
    """

    def __init__(self, engine: Ranker) -> None:
        self._engine = engine

    @property
    def engine(self) -> str:
        """One of ``ENGINES``: scores of the two do not compare."""
        return type(self._engine).__name__.lower()

    @classmethod
    def build(
        cls,
        passages: PassageStore,
        folder: Path,
        *,
        engine: str = "tantivy",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Index the title and text of all passages into the empty ``folder``.

        Args:
            passages: row i of them is row i of every ranking.
            folder: made if need be.
            engine: one of ``ENGINES``.
            progress: told the number of passages that are in.

        Raises:
            BadInput: an unknown engine, or a file that cannot be written.
            MissingExtra: Lucene is not installed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        _engine(engine).build(passages, folder, progress or _silent)

    @classmethod
    def open(cls, folder: Path, *, engine: str) -> "BM25":
        """The index that ``engine`` built in ``folder``.

        Raises:
            BadInput: an unknown engine.
            MissingExtra: Lucene is not installed.
            DamagedArtefact: no index of this engine, or not whole.
        """
        return cls(_engine(engine).open(folder))

    @classmethod
    def update(
        cls,
        folder: Path,
        *,
        engine: str,
        deleted: Rows,
        added: Iterable[Passage],
    ) -> None:
        """Take rows out of the index in ``folder`` and put passages in, in one step.

        Raises:
            BadInput: this engine cannot, or a file cannot be written.
            DamagedArtefact: no index of this engine, or not whole.
        """
        if engine != "tantivy":
            raise BadInput(f"engine {engine} cannot be updated: make the index again, or make it with tantivy")
        Tantivy.update(folder, deleted, added)

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """At most ``k`` rows for each question, best first; none for a question without a term.

        Raises:
            BadInput: ``k`` is less than 1.
        """
        check_k(k)
        # A lone surrogate, as a badly encoded command line brings it, is no character to either engine.
        texts = [question.encode("utf-8", "replace").decode() for question in questions]
        return self._engine.rank(texts, k) if texts else []


class _Engine(Protocol):
    @classmethod
    def build(cls, passages: PassageStore, folder: Path, progress: Callable[[int], None]) -> None: ...

    @classmethod
    def open(cls, folder: Path) -> Ranker: ...


def _engine(name: str) -> type[_Engine]:
    if name == "tantivy":
        return Tantivy
    if name == "lucene":
        from ragqa.retrieval.lucene import Lucene

        return Lucene
    raise BadInput(f"engine {name}: choose one of {', '.join(ENGINES)}")


def check(engine: str) -> None:
    """Raise BadInput on an unknown engine, MissingExtra on one that is not installed."""
    _engine(engine)
    if engine == "lucene":
        from ragqa.retrieval.lucene import check_installed

        check_installed()


def _silent(done: int) -> None:
    pass


class Tantivy:
    """A Tantivy index of terms; the rows are a fast field, the text is not stored."""

    def __init__(self, index: tantivy.Index) -> None:
        self._schema, self._searcher = index.schema, index.searcher()
        self._analyzer = _analyzer()

    @classmethod
    def build(cls, passages: PassageStore, folder: Path, progress: Callable[[int], None]) -> None:
        """Index all passages into ``folder``."""
        schema = (
            tantivy.SchemaBuilder()
            .add_text_field("text", tokenizer_name="ragqa", index_option="freq")
            .add_integer_field("row", fast=True)
            .build()
        )
        try:
            index = tantivy.Index(schema, str(folder))
            index.register_tokenizer("ragqa", _analyzer())
            writer = index.writer(heap_size=_HEAP, num_threads=_THREADS)
            row = 0
            for batch in passages.iter_batches():
                for passage in batch:
                    writer.add_document(tantivy.Document(text=passage.titled, row=row))
                    row += 1
                progress(row)
            _finish(writer, folder)
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot write the terms into {folder}: {error}") from error

    @classmethod
    def update(cls, folder: Path, deleted: Rows, added: Iterable[Passage]) -> None:
        """Delete rows and add passages; Tantivy writes new files beside the old ones, which it leaves as they are."""
        try:
            index = tantivy.Index.open(str(folder))
            index.register_tokenizer("ragqa", _analyzer())
            writer = index.writer(heap_size=_HEAP, num_threads=1)
            for first, last in _runs(deleted):
                query = tantivy.Query.range_query(index.schema, "row", tantivy.FieldType.Integer, first, last)
                writer.delete_documents_by_query(query)
            for passage in added:
                writer.add_document(tantivy.Document(text=passage.titled, row=passage.id))
            _finish(writer, folder)
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot write the terms into {folder}: {error}") from error

    @classmethod
    def open(cls, folder: Path) -> "Tantivy":
        """The index in ``folder``, memory-mapped."""
        try:
            with _lockable(folder) as place:
                index = tantivy.Index.open(str(place))
                index.config_reader(reload_policy="manual")  # no thread that watches the folder
                index.register_tokenizer("ragqa", _analyzer())
                return cls(index)
        except (OSError, ValueError) as error:
            raise DamagedArtefact(f"{folder}: {error}; make the index again") from error

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """At most ``k`` rows for each question, best first."""
        if len(questions) == 1:
            return [self._rank(questions[0], k)]
        with ThreadPoolExecutor() as pool:  # Tantivy searches without the interpreter's lock
            return list(pool.map(lambda question: self._rank(question, k), questions))

    def _rank(self, question: str, k: int) -> Ranking:
        query = self._query(question)
        cut = min(k, self._searcher.num_docs)
        limit = cut + 1
        while True:
            hits = self._searcher.search(query, limit, count=False).hits
            # Equal scores come segment by segment, not by row: go on until the cut is not among equals.
            if len(hits) < limit or hits[-1][0] < hits[cut - 1][0]:
                break
            limit *= 4
        rows = np.array(self._searcher.fast_field_values("row", [address for _, address in hits]), np.int64)
        return best(rows, [score for score, _ in hits], k)

    def _query(self, question: str) -> tantivy.Query:
        """Any of the question's terms, each as often as it is there; no character is syntax."""
        counts = islice(Counter(self._analyzer.analyze(question)).items(), MAX_TERMS)
        terms = [(tantivy.Occur.Should, self._term(term, count)) for term, count in counts]
        return tantivy.Query.boolean_query(terms)

    def _term(self, term: str, count: int) -> tantivy.Query:
        query = tantivy.Query.term_query(self._schema, "text", term, "freq")
        return query if count == 1 else tantivy.Query.boost_query(query, float(count))


def _finish(writer: tantivy.IndexWriter, folder: Path) -> None:
    """Commit, and let every file have the mode of a new one: Tantivy makes two for their owner's eyes only."""
    writer.commit()
    writer.wait_merging_threads()
    for name in (".managed.json", "meta.json"):
        (folder / name).chmod((folder / ".tantivy-writer.lock").stat().st_mode)


def _runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive rows: those of a document are one."""
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        if len(run):
            yield int(run[0]), int(run[-1])


@contextmanager
def _lockable(folder: Path) -> Iterator[Path]:
    """``folder``, or links to its files where it is read-only: Tantivy wants a lock beside them while it opens them."""
    if os.access(folder, os.W_OK):
        yield folder
        return
    with TemporaryDirectory(prefix="ragqa-") as links:
        for file in folder.iterdir():
            if file.suffix != ".lock":
                (Path(links) / file.name).symlink_to(file.resolve())
        yield Path(links)


def _analyzer() -> tantivy.TextAnalyzer:
    return (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(_MAX_TERM_BYTES))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stopword("english"))
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )
