"""The BM25 engine Tantivy, a Rust library that the core of ragqa includes."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact, MissingPackage
from ragqa.retrieval.base import Ranking, Rows, select_best
from ragqa.retrieval.registry import TermEngine
from ragqa.types import Passage

if TYPE_CHECKING:
    from tantivy import Index, IndexWriter, Query, Schema, TextAnalyzer

MAX_TERMS = 256
"""Maximum number of distinct terms in a query, since each term opens a list of passages."""
_MAX_TERM_BYTES = 255
"""Length in bytes from which on a term is not indexed."""
_THREADS = 2
_HEAP = 128_000_000
"""Memory in bytes for the postings of all threads; when it is full, Tantivy writes a segment."""


class Tantivy:
    """BM25 index of Tantivy; row numbers are a column (fast field), texts are not stored."""

    name: ClassVar[TermEngine] = TermEngine.TANTIVY

    def __init__(self, index: "Index") -> None:
        self._schema, self._searcher = index.schema, index.searcher()
        self._analyzer = _make_analyzer()

    @classmethod
    def check_installed(cls) -> None:
        """Raise MissingPackage if Tantivy is not installed."""
        _import_tantivy()

    @classmethod
    def build(cls, passages: PassageStore, folder: Path, progress: Callable[[int], None]) -> None:
        """Index all passages into ``folder``; arguments and errors: as for ``BM25.build``."""
        tantivy = _import_tantivy()
        schema = (
            tantivy.SchemaBuilder()
            .add_text_field("text", tokenizer_name="ragqa", index_option="freq")
            .add_integer_field("row", fast=True)
            .build()
        )
        row = 0
        with _open_writer(folder, _THREADS, schema) as (_, writer):
            for batch in passages.iter_batches():
                for passage in batch:
                    writer.add_document(tantivy.Document(text=passage.titled_text, row=row))
                    row += 1
                progress(row)

    @classmethod
    def update(cls, folder: Path, deleted: Rows, added: Iterable[Passage]) -> None:
        """Delete rows and add passages; arguments and errors: as for ``BM25.update``."""
        tantivy = _import_tantivy()
        with _open_writer(folder, threads=1) as (schema, writer):
            # One query deletes a run of consecutive rows, such as the rows of one document.
            for run in np.split(deleted, np.flatnonzero(np.diff(deleted) != 1) + 1) if len(deleted) else ():
                ends = int(run[0]), int(run[-1])
                query = tantivy.Query.range_query(schema, "row", tantivy.FieldType.Integer, *ends)
                writer.delete_documents_by_query(query)
            for passage in added:
                writer.add_document(tantivy.Document(text=passage.titled_text, row=passage.id))

    @classmethod
    def open(cls, folder: Path) -> "Tantivy":
        """Open the index in ``folder`` by memory mapping.

        Raises:
            DamagedArtefact: the folder has no complete index of Tantivy.
            MissingPackage: Tantivy is not installed.
        """
        tantivy = _import_tantivy()
        try:
            with _make_lockable(folder) as lockable:
                index = tantivy.Index.open(str(lockable))
                index.config_reader(reload_policy="manual")  # else a thread would watch the folder
                index.register_tokenizer("ragqa", _make_analyzer())
                tantivy.Query.term_query(index.schema, "text", "a")  # ValueError if the schema lacks the field
                tantivy.Query.range_query(index.schema, "row", tantivy.FieldType.Integer, 0, 0)
                return cls(index)
        except (OSError, ValueError) as error:
            # Tantivy quotes the whole of a file that it cannot parse.
            raise DamagedArtefact(f"{folder}: {error!s:.300}; make the index again") from error

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """Return at most ``k`` rows for each question, best first."""
        if len(questions) == 1:
            return [self._rank_one(questions[0], k)]
        with ThreadPoolExecutor() as pool:  # Tantivy releases the interpreter's lock during a search
            return list(pool.map(lambda question: self._rank_one(question, k), questions))

    def has_term(self, word: str) -> bool:
        """Return True if a passage contains the term of a word; also True for a stop word."""
        return all(self._searcher.doc_freq("text", term) for term in self._analyzer.analyze(word))

    def rank_similar(self, word: str, question: str, k: int) -> Ranking:
        """Return at most ``k`` rows with a term similar to a word, as ``BM25.rank_similar`` does."""
        tantivy = _import_tantivy()
        # The index contains stems, and a misspelt ending is not removed: "discoverd" is far from "discov".
        stems = {term for cut in range(4) for term in self._analyzer.analyze(word[: len(word) - cut])}
        similar = [
            (
                tantivy.Occur.Should,
                tantivy.Query.fuzzy_term_query(self._schema, "text", stem, 2 if len(stem) > 6 else 1),
            )
            for stem in stems
            if len(stem) >= 3
        ]
        query = tantivy.Query.boolean_query(
            [
                (tantivy.Occur.Must, tantivy.Query.const_score_query(tantivy.Query.boolean_query(similar), 1.0)),
                (tantivy.Occur.Should, self._make_query(question)),
            ]
        )
        return self._search(query, k)

    def _rank_one(self, question: str, k: int) -> Ranking:
        return self._search(self._make_query(question), k)

    def _search(self, query: "Query", k: int) -> Ranking:
        cut = min(k, self._searcher.num_docs)
        limit = cut + 1
        while True:
            hits = self._searcher.search(query, limit, count=False).hits
            # Rows of equal score are sorted only within a segment. So fetch more hits until the hit after the cut has a
            # lower score than the last hit before it.
            if len(hits) < limit or hits[-1][0] < hits[cut - 1][0]:
                break
            limit *= 4
        rows = np.array(self._searcher.fast_field_values("row", [address for _, address in hits]), np.int64)
        return select_best(rows, [score for score, _ in hits], k)

    def _make_query(self, question: str) -> "Query":
        """Make a query that any term of a question can match, weighted by its count there."""
        # The query is not parsed from text, so that no character of a question acts as syntax.
        tantivy = _import_tantivy()
        parts = []
        for term, count in islice(Counter(self._analyzer.analyze(question)).items(), MAX_TERMS):
            query = tantivy.Query.term_query(self._schema, "text", term, "freq")
            parts.append(
                (tantivy.Occur.Should, query if count == 1 else tantivy.Query.boost_query(query, float(count)))
            )
        return tantivy.Query.boolean_query(parts)


def _import_tantivy() -> Any:
    """Return the module ``tantivy``, which machines used only for training need not have."""
    try:
        import tantivy
    except ImportError as error:
        raise MissingPackage("BM25 by Tantivy", "tantivy") from error
    return tantivy


@contextmanager
def _open_writer(
    folder: Path, threads: int, schema: "Schema | None" = None
) -> Iterator[tuple["Schema", "IndexWriter"]]:
    """Yield the schema and the writer of an index; commit at the end of the block.

    With a ``schema``, the index is new.
    """
    tantivy = _import_tantivy()
    try:
        index = tantivy.Index(schema, str(folder)) if schema else tantivy.Index.open(str(folder))
        index.register_tokenizer("ragqa", _make_analyzer())
        writer = index.writer(heap_size=_HEAP, num_threads=threads)
        yield index.schema, writer
        writer.commit()
        writer.wait_merging_threads()
        # Tantivy lets only the owner read these two files; give them the mode of its other files.
        for name in (".managed.json", "meta.json"):
            (folder / name).chmod((folder / ".tantivy-writer.lock").stat().st_mode)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot write the terms into {folder}: {error}") from error


@contextmanager
def _make_lockable(folder: Path) -> Iterator[Path]:
    """Yield a folder that Tantivy can lock: ``folder``, or links to its files if read-only."""
    if os.access(folder, os.W_OK):
        yield folder
        return
    with TemporaryDirectory(prefix="ragqa-") as links:
        for file in folder.iterdir():
            if file.suffix != ".lock":
                (Path(links) / file.name).symlink_to(file.resolve())
        yield Path(links)


def _make_analyzer() -> "TextAnalyzer":
    tantivy = _import_tantivy()
    analyzer: TextAnalyzer = (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(_MAX_TERM_BYTES))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stopword("english"))
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )
    return analyzer
