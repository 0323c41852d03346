"""Distant supervision (Mintz et al. 2009): what an index finds for a question is right where it holds an answer.

It is a noisy teacher: a passage may hold "1945" or "Paris" and say nothing of the question. That is told neither here
nor in training; a question is read in several such passages at a time, and with a loss that is marginalised over them a
reader gives such spans little weight by itself.

What was found is kept in a folder, a file for so many questions, so that mining goes on where it was killed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.common.data_sets import TrainingSet
from pipelines.common.mining import SEARCH_BATCH, PassageSearch
from pipelines.common.negatives import is_relevant, list_gold_passages, to_rows
from pipelines.common.questions import batches
from pipelines.common.run import read_row
from ragqa import artefacts
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.metrics import has_answer
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.base import Rows
from ragqa.types import Hit, Question

OF = "of.json"
"""What the folder was mined from."""


@dataclass(frozen=True)
class Mined:
    """Rows of passages that were found for a question, best first."""

    positives: Rows
    """They hold an answer, and are no part of a gold passage."""
    negatives: Rows
    """They hold none, nor does a gold passage that they are part of hold one in other words ("1950s" for "1950")."""


NOTHING = Mined(to_rows([]), to_rows([]))


def mine(
    asked: Sequence[tuple[Question, bool]],
    search: PassageSearch,
    folder: Path,
    identity: dict[str, Any],
    *,
    progress: Progress = SILENT,
) -> list[Mined]:
    """What is found for each question, ``search.pool`` positives and negatives at most; searched for once.

    Args:
        asked: questions, and whether their answers are patterns.
        search: who looks, and how far.
        folder: of what was found.
        identity: of all that the result depends on.
        progress: told of the questions.

    Raises:
        BadInput: the folder was mined from something else than ``identity`` says.
        DamagedArtefact: one of its files is not as it was written.
    """
    _settle(folder, identity)
    done = sum(len(_read(file)) for file in _files(folder))
    for some in batches(asked, progress, "mining", SEARCH_BATCH, done=done):
        hits = search.find(question for question, _ in some)
        rows = [_row(*each, found, search.pool) for each, found in zip(some, hits, strict=True)]
        artefacts.write_text_whole(folder / f"{done:08d}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        done += len(some)
    found = [row for file in _files(folder) for row in _read(file)]
    return [Mined(to_rows(row["positives"]), to_rows(row["negatives"])) for row in found]


def teachable(sets: Sequence[TrainingSet], mined: Sequence[Mined]) -> tuple[list[TrainingSet], list[Mined]]:
    """Those questions, and what was found for them, that have a gold passage or one that holds an answer.

    Raises:
        BadInput: a set has none.
    """
    found, kept, left = iter(mined), [], []
    for each in sets:
        pairs = [(question, rows) for question, rows in zip(each.questions, found, strict=False)]
        pairs = [(question, rows) for question, rows in pairs if list_gold_passages(question) or len(rows.positives)]
        if not pairs:
            doubt = " (do its patterns compile?)" if each.file.regex else ""
            raise BadInput(f"{each.file.path}: the index finds no passage that holds an answer to any question{doubt}")
        kept.append(replace(each, questions=[question for question, _ in pairs]))
        left += [rows for _, rows in pairs]
    return kept, left


def _row(question: Question, regex: bool, hits: list[Hit], pool: int) -> dict[str, list[int]]:
    golds = list_gold_passages(question)
    unclear = [gold for gold in golds if not has_answer(gold, question.answers, regex=regex)]
    found: dict[str, list[int]] = {"positives": [], "negatives": []}
    for hit in hits:
        name, own = ("positives", golds) if is_relevant(hit.passage, question, regex) else ("negatives", unclear)
        if not any(hit.passage.text.strip() in gold for gold in own):
            found[name].append(hit.passage.id)
    return {name: rows[:pool] for name, rows in found.items()}


def _settle(folder: Path, identity: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / OF).is_file():
        artefacts.write_text_whole(folder / OF, json.dumps(identity, indent=1))
    before = read_row(folder / OF)
    if other := [name for name, value in identity.items() if before.get(name) != value]:
        raise BadInput(f"{folder} was mined with another {', '.join(other)}: choose another directory for the run")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.jsonl"))


def _read(file: Path) -> list[dict[str, list[int]]]:
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    except ValueError as error:
        raise DamagedArtefact(f"{file} is damaged ({error}): delete {file.parent} to mine again") from error
