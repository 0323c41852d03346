"""Distant supervision: a passage with an answer counts as right (Mintz et al. 2009).

The labels are noisy: a passage can contain "1945" or "Paris" and say nothing about the question. So a question is read
in several passages, and the loss is marginalised over their spans. Unrelated spans then get little weight.

The rows of the mined passages are saved in a folder, in a file for every 256 questions, so that an interrupted run
continues mining.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.common.examples.data_sets import TrainingSet
from pipelines.common.examples.mining import SEARCH_BATCH, PassageSearch
from pipelines.common.examples.passage_sampler import MinedPassages
from pipelines.common.examples.retrieval_examples import is_relevant, list_gold_passages, to_rows
from pipelines.common.questions import iterate_batches
from pipelines.common.run_directory import read_record
from ragqa import artefacts
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import has_answer
from ragqa.progress import SILENT, Progress
from ragqa.reading.windows import make_windows
from ragqa.runtime.scorer import SpanScorer
from ragqa.types import Hit, Question

IDENTITY_FILE = "of.json"
"""Name of the file with the settings and inputs of mining."""


@dataclass(frozen=True)
class RelevanceOrder:
    """Order of the mined positives of a question by a reader's relevance.

    A passage can contain the answer without supporting it. Relevance separates these cases better than retrieval does.
    """

    scorer: SpanScorer
    """Reader that scores the relevance of each passage's first window."""

    def sort(self, question: Question, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits, most relevant first.

        Raises:
            BadInput, ArtefactError: as for ``make_windows``.
        """
        texts = [(hit.passage.context, hit.passage.text) for hit in hits]
        windows = list(make_windows(self.scorer.tokenizer, question.text, texts, self.scorer.max_tokens, max_windows=1))
        scores = self.scorer.score([window.tokens for window in windows])
        relevance = {window.passage: score.relevance for window, score in zip(windows, scores, strict=True) if score}
        order = sorted(range(len(hits)), key=lambda place: -relevance.get(place, float("-inf")))
        return [hits[place] for place in order]


def mine_passages(
    questions: Sequence[tuple[Question, bool]],
    search: PassageSearch,
    folder: Path,
    identity: dict[str, Any],
    *,
    order: RelevanceOrder | None = None,
    progress: Progress = SILENT,
) -> list[MinedPassages]:
    """Mine passages with and without an answer for each question.

    Args:
        questions: questions, each with True if its answers are regular expressions.
        search: retriever, with the numbers of passages to retrieve and to save.
        folder: folder of the saved rows; questions with saved rows are not searched again.
        identity: names and JSON values of all settings and inputs that determine the result.
        order: order of the positives of questions without gold passages; default: the order of the search.
        progress: shows the number of questions.

    Returns:
        The rows of at most ``search.pool`` positives and at most ``search.pool`` negatives of each question.

    Raises:
        BadInput: the rows in the folder were mined with another ``identity``.
        DamagedArtefact: a file in the folder is damaged.
        SlowPattern: an answer is a pattern that takes too long.
        RagqaError: as for ``search.find`` and ``order.sort``.
    """
    _check_identity(folder, identity)
    rows = [row for file in sorted(folder.glob("[0-9]*.jsonl")) for row in _read(file)]
    for batch in iterate_batches(questions, progress, "mining", SEARCH_BATCH, done=len(rows)):
        hits_of_batch = search.find(question for question, _ in batch)
        mined = [_select_rows(*item, hits, search.pool, order) for item, hits in zip(batch, hits_of_batch, strict=True)]
        artefacts.write_text_whole(folder / f"{len(rows):08d}.jsonl", "".join(json.dumps(row) + "\n" for row in mined))
        rows += mined
    return [MinedPassages(to_rows(row["positives"]), to_rows(row["negatives"])) for row in rows]


def select_trainable(
    sets: Sequence[TrainingSet], mined: Sequence[MinedPassages]
) -> tuple[list[TrainingSet], list[MinedPassages]]:
    """Select the questions with a gold passage or a mined positive.

    Args:
        sets: training questions.
        mined: mined passages of the questions of all sets, in the same order.

    Returns:
        The sets with the selected questions, and the mined passages of these questions, in the same order.

    Raises:
        BadInput: no question of a set has a gold passage or a mined positive.
    """
    remaining, trainable_sets, trainable_mined = iter(mined), [], []
    for data_set in sets:
        pairs = list(zip(data_set.questions, remaining, strict=False))
        pairs = [pair for pair in pairs if list_gold_passages(pair[0]) or len(pair[1].positives)]
        if not pairs:
            hint = " (do its patterns compile?)" if data_set.file.regex else ""
            raise BadInput(
                f"{data_set.file.path}: the index finds no passage that holds an answer to any question{hint}"
            )
        trainable_sets.append(replace(data_set, questions=[question for question, _ in pairs]))
        trainable_mined += [passages for _, passages in pairs]
    return trainable_sets, trainable_mined


def _select_rows(
    question: Question, regex: bool, hits: list[Hit], pool: int, order: RelevanceOrder | None
) -> dict[str, list[int]]:
    golds = list_gold_passages(question)
    with name_slow_question([question]):
        unclear = [gold for gold in golds if not has_answer(gold, question.answers, regex=regex)]
    mined: dict[str, list[Hit]] = {"positives": [], "negatives": []}
    for hit in hits:
        name, excluded = ("positives", golds) if is_relevant(hit.passage, question, regex) else ("negatives", unclear)
        if not any(hit.passage.text.strip() in gold for gold in excluded):
            mined[name].append(hit)
    if order and not golds:
        mined["positives"] = order.sort(question, mined["positives"])
    return {name: [hit.passage.id for hit in of_kind[:pool]] for name, of_kind in mined.items()}


def _check_identity(folder: Path, identity: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / IDENTITY_FILE).is_file():
        artefacts.write_text_whole(folder / IDENTITY_FILE, json.dumps(identity, indent=1))
    before = read_record(folder / IDENTITY_FILE)
    if changed := [name for name, value in identity.items() if before.get(name) != value]:
        raise BadInput(f"{folder} was mined with another {', '.join(changed)}: choose another directory for the run")


def _read(file: Path) -> list[dict[str, list[int]]]:
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    except ValueError as error:
        raise DamagedArtefact(f"{file} is damaged ({error}): delete {file.parent} to mine again") from error
