"""Questions, the passages that answer them, and those that only look so: what a dual encoder is trained on.

A question's positive is its gold passage, as the corpus has it, or, where only answers are known, the best passage of
BM25 that holds one of them (DPR, Karpukhin et al. 2020, section 4.2). Its hard negatives are the passages without an
answer that BM25 ranks highest (section 3.2) and, once there is a retriever, those that it ranks highest itself (ANCE,
Xiong et al. 2021; DPR's later release). What was mined is kept in a file, a JSON object a line, with the counts in the
last one.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ragqa.errors import BadInput, DamagedArtefact
from ragqa.metrics import has_answer
from ragqa.progress import SILENT, Progress
from ragqa.questions import read_questions
from ragqa.retrieval.base import Retriever, Rows
from ragqa.text import normalize_answer, words
from ragqa.types import Hit, Passage, Question

NEAR = 20
"""Passages among which a gold text is looked for."""
RUN = 3
"""Words of a run by which two texts are compared."""
LIKELY, SURE = 0.2, 0.5
"""Shares of those that two texts must have in common: where one holds an answer, and where no answer is known."""
_TOGETHER = 256
"""Questions that are searched for at a time."""

NO_PASSAGE = "without a passage that holds an answer"
NOTHING = "with neither answers nor passages"
HELD_OUT = "asked in the held-out file, too"


@dataclass(frozen=True)
class Source:
    """A file of training questions."""

    file: Path
    regex: bool = False
    """Its answers are patterns (CuratedTREC)."""


@dataclass(frozen=True)
class Pair:
    """A question, what is right for it and what is not."""

    question: Question
    regex: bool
    positives: tuple[int | str, ...]
    """Rows of the corpus; a gold passage that it does not hold stands here itself."""
    negatives: tuple[Rows, ...]
    """By who found them, the highest-ranked first: BM25, then a retriever."""
    known: Rows
    """All rows that are known to be right: no negative of this question, whoever else they come with."""


def mine(
    sources: Sequence[Source],
    retriever: Retriever,
    file: Path,
    identity: dict[str, Any],
    *,
    depth: int,
    pool: int,
    texts: bool = True,
    held_out: Iterable[str] = (),
    progress: Progress = SILENT,
) -> str:
    """Write the pairs of all questions into ``file``; what came of them, in a line.

    Args:
        sources: what is asked.
        retriever: BM25.
        file: written aside and renamed.
        identity: of all that the result depends on, for ``read``.
        depth: passages of a question that are looked at.
        pool: negatives of a question that are kept.
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
        with progress.step("mining", len(asked), "questions") as step:
            for some in _batches(asked):
                results = _pairs(some, retriever, depth, pool, texts, refused)
                for (question, regex), found in zip(some, results, strict=True):
                    counts["asked"] += 1
                    if isinstance(found, str):
                        counts[found] += 1
                        continue
                    counts["kept"] += 1
                    counts["gold texts of their own"] += any(isinstance(each, str) for each in found.positives)
                    counts["without a negative"] += not any(map(len, found.negatives))
                    yield _row(question, regex, found)
                step.at(counts["asked"])
        if not counts["kept"]:
            names = ", ".join(str(source.file) for source in sources)
            raise BadInput(f"no question of {names} can be trained on: {told(counts)}")

    _write(file, rows(), identity, counts)
    return told(counts)


def mine_again(
    pairs: Sequence[Pair],
    retriever: Retriever,
    file: Path,
    identity: dict[str, Any],
    *,
    depth: int,
    pool: int,
    progress: Progress = SILENT,
) -> str:
    """Write the negatives that ``retriever`` itself finds for each pair into ``file``; arguments as of ``mine``."""
    counts: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        with progress.step("mining", len(pairs), "questions") as step:
            for some in _batches(pairs):
                for pair, hits in zip(some, retriever.search([p.question.text for p in some], depth), strict=True):
                    right = {hit.passage.id for hit in hits if _is_right(hit.passage, pair.question, pair.regex)}
                    known = right.union(pair.known.tolist())
                    negatives = _without(hits, known)[:pool]
                    counts["asked"] += 1
                    counts["kept"] += 1
                    counts["without a negative"] += not negatives
                    yield {"negatives": negatives, "known": sorted(known)}
                step.at(counts["asked"])

    _write(file, rows(), identity, counts)
    return told(counts)


def told(counts: Counter[str] | dict[str, int]) -> str:
    """Counts of mining, in a line."""
    dropped = [f"{counts[why]:,} {why}" for why in (NO_PASSAGE, NOTHING, HELD_OUT) if counts.get(why)]
    noted = [
        f"{counts[what]:,} {what}" for what in ("gold texts of their own", "without a negative") if counts.get(what)
    ]
    line = f"{counts.get('kept', 0):,} of {counts.get('asked', 0):,} questions"
    line += f"; dropped: {', '.join(dropped)}" if dropped else ""
    return line + (f"; of those kept: {', '.join(noted)}" if noted else "")


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
        replace(pair, negatives=(pair.negatives[0], _array(row["negatives"])), known=_array(row["known"]))
        for pair, row in zip(pairs, found, strict=True)
    ]


def _pairs(
    asked: Sequence[tuple[Question, bool]], retriever: Retriever, depth: int, pool: int, texts: bool, refused: set[str]
) -> Iterator[Pair | str]:
    """The pair of each question, or why there is none."""
    golds = list(dict.fromkeys(gold for question, _ in asked for gold in _golds(question)))
    near = dict(zip(golds, retriever.search(golds, NEAR) if golds else [], strict=True))
    found = retriever.search([question.text for question, _ in asked], depth)
    for (question, regex), hits in zip(asked, found, strict=True):
        if normalize_answer(question.text) in refused:
            yield HELD_OUT
        elif not question.answers and not _golds(question):
            yield NOTHING
        else:
            yield pair_of(question, regex, hits, near, pool=pool, texts=texts) or NO_PASSAGE


def pair_of(
    question: Question, regex: bool, hits: list[Hit], near: dict[str, list[Hit]], *, pool: int, texts: bool = True
) -> Pair | None:
    """What the hits of a question make of it; None where none is right and no gold passage is known.

    ``near``: the hits of each gold passage, searched for as if it were a question; for the rest see ``mine``.
    """
    right = [hit.passage.id for hit in hits if _is_right(hit.passage, question, regex)]
    golds = [_in_corpus(gold, question, regex, near[gold]) for gold in _golds(question)]
    positives: Sequence[int | str] = [each for each in golds if texts or isinstance(each, int)]
    if question.answers:
        positives = positives or right[:1]
    if not positives:
        return None
    known = {*right, *(row for row in positives if isinstance(row, int))}
    negatives = _array(_without(hits, known)[:pool])
    return Pair(question, regex, tuple(dict.fromkeys(positives)), (negatives,), _array(sorted(known)))


def _in_corpus(gold: str, question: Question, regex: bool, near: list[Hit]) -> int | str:
    """The row of a gold passage: of one that is equal, that holds it, or that shares most with it and holds an answer.

    The text itself where there is none, as when the corpus is of another year.
    """
    mine, texts = words(gold), [words(hit.passage.text) for hit in near]
    for fits in (lambda text: text == mine, lambda text: _joined(mine) in _joined(text)):
        for hit, text in zip(near, texts, strict=True):
            if fits(text):
                return hit.passage.id
    least = LIKELY if question.answers else SURE
    shares = [(overlap(mine, text), hit) for hit, text in zip(near, texts, strict=True)]
    for share, hit in sorted(shares, key=lambda pair: -pair[0]):
        if share >= least and _is_right(hit.passage, question, regex):
            return hit.passage.id
    return gold


def _is_right(passage: Passage, question: Question, regex: bool) -> bool:
    """Whether a passage holds an answer or, where none is known, shares much with a gold passage."""
    if question.answers:
        return has_answer(passage.text, question.answers, regex=regex)
    text = words(passage.text)
    return any(overlap(words(gold), text) >= LIKELY for gold in _golds(question))


def overlap(one: list[str], other: list[str]) -> float:
    """Share of the shorter text's runs of three words that stand in the other."""
    runs = [{tuple(text[at : at + RUN]) for at in range(len(text) - RUN + 1)} for text in (one, other)]
    return len(runs[0] & runs[1]) / max(1, min(map(len, runs)))


def _golds(question: Question) -> list[str]:
    return [gold for gold in question.passages if gold.strip()]


def _joined(text: list[str]) -> str:
    return f" {' '.join(text)} "


def _without(hits: list[Hit], known: set[int]) -> list[int]:
    return [hit.passage.id for hit in hits if hit.passage.id not in known]


def _batches(items: Sequence[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while some := list(islice(rest, _TOGETHER)):
        yield some


def _array(rows: Sequence[int]) -> Rows:
    return np.array(rows, np.int64)


def _row(question: Question, regex: bool, pair: Pair) -> dict[str, Any]:
    """A pair as it is written; gold passages where nothing else says what is right."""
    return {
        "id": question.id,
        "question": question.text,
        "answers": question.answers,
        "regex": regex,
        "passages": () if question.answers else question.passages,
        "positives": pair.positives,
        "negatives": pair.negatives[0].tolist(),
        "known": pair.known.tolist(),
    }


def _pair(row: dict[str, Any]) -> Pair:
    passages = tuple(row["passages"])
    question = Question(row["question"], tuple(row["answers"]), row["id"], passages=passages)
    return Pair(question, row["regex"], tuple(row["positives"]), (_array(row["negatives"]),), _array(row["known"]))


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
