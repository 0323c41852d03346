"""Mining: training questions are searched for, and what is found for them is kept in a file.

The file has a JSON object a line, a question each, and the counts in the last one.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from index.embed import EmbedConfig, embed
from pipelines.common.negatives import Pair, as_rows, golds_of, is_right, pair_of, without
from pipelines.common.questions import batches
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.indexing.embed import open_shards
from ragqa.progress import SILENT, Progress
from ragqa.questions import read_questions
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.text import normalize_answer
from ragqa.types import Hit, Question

NEAR = 20
"""Passages among which a gold text is looked for."""
TOGETHER = 256
"""Questions that are searched for at a time."""

ASKED, KEPT = "asked", "kept"
NO_PASSAGE = "without a passage that holds an answer"
NOTHING = "with neither answers nor passages"
HELD_OUT = "asked in the held-out file, too"
OWN_TEXT = "with a gold passage that the corpus lacks"
NO_NEGATIVE = "without a negative"


@dataclass(frozen=True)
class Source:
    """A file of training questions."""

    file: Path
    regex: bool = False
    """Its answers are patterns (CuratedTREC)."""


@dataclass(frozen=True)
class Search:
    """Who looks for passages, and how far."""

    retriever: Retriever
    depth: int
    """Passages of a question that are looked at."""
    pool: int
    """Negatives of a question that are kept."""

    def __call__(self, questions: Iterable[Question]) -> list[list[Hit]]:
        """The hits of each question."""
        return self.retriever.search([question.text for question in questions], self.depth)


def mine(
    sources: Sequence[Source],
    search: Search,
    file: Path,
    identity: dict[str, Any],
    *,
    texts: bool = True,
    held_out: Iterable[str] = (),
    progress: Progress = SILENT,
) -> str:
    """Write the pairs of all questions into ``file``; what came of them, in a line.

    Args:
        sources: what is asked.
        search: by BM25.
        file: written aside and renamed.
        identity: of all that the result depends on, for ``read``.
        texts: a gold passage that the corpus does not hold is a positive itself; else the question counts as one of
            which answers only are known.
        held_out: questions that must not be trained on; case, punctuation and articles aside.
        progress: told of the questions.

    Raises:
        BadInput, BadLine: a file cannot be read, or no question is of use.
    """
    refused = {normalize_answer(text) for text in held_out}
    asked = [(question, source.regex) for source in sources for question in read_questions(source.file)]
    counts: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for some in batches(asked, progress, "mining", TOGETHER):
            for found in _pairs(some, search, texts, refused):
                counts.update(_counted(found))
                if isinstance(found, Pair):
                    yield _row(found)
        if not counts[KEPT]:
            names = ", ".join(str(source.file) for source in sources)
            raise BadInput(f"no question of {names} can be trained on: {told(counts)}")

    _write(file, rows(), identity, counts)
    return told(counts)


def mine_again(
    pairs: Sequence[Pair], search: Search, file: Path, identity: dict[str, Any], *, progress: Progress = SILENT
) -> str:
    """Write the negatives that a retriever itself finds for each pair into ``file``; arguments as of ``mine``."""
    counts: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for some in batches(pairs, progress, "mining", TOGETHER):
            for pair, hits in zip(some, search(pair.question for pair in some), strict=True):
                right = {hit.passage.id for hit in hits if is_right(hit.passage, pair.question, pair.regex)}
                known = right.union(pair.known.tolist())
                negatives = without(hits, known)[: search.pool]
                counts.update([ASKED, KEPT, *([] if negatives else [NO_NEGATIVE])])
                yield {"negatives": negatives, "known": sorted(known)}

    _write(file, rows(), identity, counts)
    return told(counts)


def _counted(found: Pair | str) -> list[str]:
    """What a question counts as."""
    if isinstance(found, str):
        return [ASKED, found]
    own = [OWN_TEXT] if any(isinstance(each, str) for each in found.positives) else []
    return [ASKED, KEPT, *own, *([] if len(found.negatives[0]) else [NO_NEGATIVE])]


def told(counts: Counter[str]) -> str:
    """Counts of mining, in a line."""
    dropped, noted = (
        ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name])
        for names in ((NO_PASSAGE, NOTHING, HELD_OUT), (OWN_TEXT, NO_NEGATIVE))
    )
    line = f"{counts[KEPT]:,} of {counts[ASKED]:,} questions"
    return line + (f"; dropped: {dropped}" if dropped else "") + (f"; of those kept: {noted}" if noted else "")


def read(file: Path, identity: dict[str, Any]) -> list[Pair]:
    """The pairs that ``mine`` wrote.

    Raises:
        BadInput: they were mined from something else than ``identity`` says.
        DamagedArtefact: the file is not as it was written.
    """
    return [_pair(row) for row in _read(file, identity)]


def read_again(file: Path, identity: dict[str, Any], pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with what ``mine_again`` found beside BM25's negatives; raises as ``read``."""
    found = _read(file, identity)
    if len(found) != len(pairs):
        raise DamagedArtefact(f"{file} is of {len(found)} questions, not of {len(pairs)}: delete it to mine again")
    return [
        replace(pair, negatives=(pair.negatives[0], as_rows(row["negatives"])), known=as_rows(row["known"]))
        for pair, row in zip(pairs, found, strict=True)
    ]


@contextmanager
def passage_index(
    model: Path, corpus: Path, work: Path, *, device: str = "cpu", workers: int = 0, progress: Progress = SILENT
) -> Iterator[tuple[PassageStore, ExactIndex]]:
    """The passages of ``corpus``, and their vectors by the encoder ``model`` in the folder ``work``.

    The folder is gone afterwards, but for an exception: then the next call goes on there.
    """
    gpu = device.startswith("cuda")
    embed(EmbedConfig(corpus=corpus, out=work, encoder=str(model), gpus=gpu, workers=workers), progress=progress)
    store = PassageStore.open(corpus / "passages")
    vectors, engine = open_shards(work, len(store)), "torch" if gpu else "numpy"
    yield store, ExactIndex(vectors, deleted=store.deleted, engine=engine, device=device)
    shutil.rmtree(work)


def _pairs(
    asked: Sequence[tuple[Question, bool]], search: Search, texts: bool, refused: set[str]
) -> Iterator[Pair | str]:
    """The pair of each question, or why there is none."""
    golds = list(dict.fromkeys(gold for question, _ in asked for gold in golds_of(question)))
    near = dict(zip(golds, search.retriever.search(golds, NEAR) if golds else [], strict=True))
    for (question, regex), hits in zip(asked, search(question for question, _ in asked), strict=True):
        if normalize_answer(question.text) in refused:
            yield HELD_OUT
        elif not question.answers and not golds_of(question):
            yield NOTHING
        else:
            yield pair_of(question, regex, hits, near, pool=search.pool, texts=texts) or NO_PASSAGE


def _row(pair: Pair) -> dict[str, Any]:
    """A pair as it is written; gold passages where nothing else says what is right."""
    question = pair.question
    return {
        "id": question.id,
        "question": question.text,
        "answers": question.answers,
        "regex": pair.regex,
        "passages": () if question.answers else question.passages,
        "positives": pair.positives,
        "negatives": pair.negatives[0].tolist(),
        "known": pair.known.tolist(),
    }


def _pair(row: dict[str, Any]) -> Pair:
    passages = tuple(row["passages"])
    question = Question(row["question"], tuple(row["answers"]), row["id"], passages=passages)
    return Pair(question, row["regex"], tuple(row["positives"]), (as_rows(row["negatives"]),), as_rows(row["known"]))


def _write(file: Path, rows: Iterable[dict[str, Any]], identity: dict[str, Any], counts: Counter[str]) -> None:
    aside = file.with_name(f".{file.name}.writing")
    try:
        with aside.open("w", encoding="utf-8") as out:
            for row in rows:
                out.write(json.dumps(row) + "\n")
            out.write(json.dumps({"of": identity, "counts": counts}) + "\n")
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _read(file: Path, identity: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8") as lines:
            *rows, last = map(json.loads, lines)
        of = dict(last["of"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedArtefact(f"{file} is damaged ({error}): delete it to mine again") from error
    if other := [name for name, value in identity.items() if of.get(name) != value]:
        raise BadInput(f"{file} was mined with another {', '.join(other)}: choose another directory for the run")
    return rows
