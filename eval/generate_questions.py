"""The questions of the table of generators: SQuAD's and NQ's training questions, apart from all that is asked later.

A training question is left out if it equals one of a test set or of ``dev``, case, punctuation and articles aside, or
if it is like one (``ablation_questions.Alike``). Of the test sets of all four suites no question stands in ``dev``
either, which chooses weights and calibrates: questions of NQ dev, and of articles that are held out of SQuAD train, by
the very rule by which ragqa's own reader was trained without them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.ablation_questions import Alike, check_apart, line, training
from eval.ablation_sources import NQ_DEV, NQ_TEST, NQ_TRAIN, QED, SQUAD_DEV
from pipelines.common.data_sets import SHARE, held_out
from ragqa.artefacts import resume
from ragqa.errors import BadInput
from ragqa.questions import read_questions, read_squad
from ragqa.text import normalize_answer
from ragqa.types import Question

SQUAD_TRAIN, WEBQ_TEST, TREC_TEST = "squad/train-v1.1.json.xz", "webq/test-a.jsonl", "curatedtrec/test-a.jsonl"
TESTS = (NQ_TEST, WEBQ_TEST, TREC_TEST, SQUAD_DEV)
"""Files that are asked for the table: none of their questions may be trained on, or choose weights."""
TRAIN, DEV = "train.jsonl", "dev.jsonl"
LONGEST = 10
"""Words of an answer that is taught: longer ones are clauses, which no exact match is to be had with."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How many questions there are to be."""

    dev: int = 1500
    """Of NQ dev, and as many of SQuAD's articles that are held out."""
    squad: int | None = None
    """Of SQuAD train, drawn at random; None for all."""
    seed: int = 0


def write(data: Path, out: Path, wanted: Wanted) -> dict[str, Any]:
    """Write ``train.jsonl`` and ``dev.jsonl`` into the folder ``out``; how many questions there are, and were left out.

    Raises:
        BadInput: a file cannot be read, dev would be too small, or a question is left that must not be there.
    """
    tests = [question for file in TESTS for question in read_questions(data / file)]
    nq, squad, held = sources(data, wanted)
    dev, dev_left = development(data, held, tests, wanted)
    kept, left = taught([*nq, *squad], [*tests, *dev])
    out.mkdir(parents=True, exist_ok=True)
    for name, questions in ((TRAIN, kept), (DEV, dev)):
        resume.write_whole(out / name, "".join(map(line, questions)))
    check(out, data)
    return {
        "train": {"questions": len(kept), "NQ": _count(kept, "nq"), "SQuAD": _count(kept, "squad"), "left out": left},
        "dev": {"questions": len(dev), "NQ": _count(dev, "nq"), "SQuAD": _count(dev, "squad"), "left out": dev_left},
        "tests": {file: sum(1 for _ in read_questions(data / file)) for file in TESTS},
    }


def sources(data: Path, wanted: Wanted) -> tuple[list[Question], list[Question], list[Question]]:
    """Training questions of NQ (QED's among them) and of SQuAD, and those of SQuAD's held-out articles.

    Their gold passages are for the start of generators alone: all arms find out by retrieval where an answer stands.
    """
    nq = [*_named("nq", read_questions(data / NQ_TRAIN)), *_named("nq", read_questions(data / QED))]
    squad: dict[bool, list[Question]] = {False: [], True: []}
    for paragraph in read_squad(data / SQUAD_TRAIN):
        for asked in paragraph.questions:
            gold = {"passages": (paragraph.text,), "titles": (paragraph.title,)}
            squad[held_out(paragraph.title, SHARE)].append(Question(asked.text, asked.answers, asked.id, **gold))
    some = drawn(squad[False], wanted.squad, wanted.seed)
    return nq, list(_named("squad", some)), list(_named("squad", squad[True]))


def development(
    data: Path, held: list[Question], tests: Sequence[Question], wanted: Wanted
) -> tuple[list[Question], dict[str, int]]:
    """So many questions of NQ dev, and as many of SQuAD's held-out articles, none like one of a test set."""
    found: list[Question] = []
    left: Counter[str] = Counter()
    for questions in (_named("nq", read_questions(data / NQ_DEV)), held):
        kept, others = taught(questions, tests)
        left.update(others)
        if len(kept) < wanted.dev:
            raise BadInput(f"{wanted.dev} questions are wanted for dev where {len(kept)} can be had: ask for fewer")
        found += drawn(kept, wanted.dev, wanted.seed)
    return found, dict(left)


def taught(questions: Iterable[Question], others: Sequence[Question]) -> tuple[list[Question], dict[str, int]]:
    """The different questions, with short answers, that are not like one of ``others``; how many are left out, and why.

    ``twice``: an earlier one equals it; ``long``: no answer is short; ``asked``: it equals one of ``others``;
    ``alike``: it is like one.
    """
    refused = {normalize_answer(question.text) for question in others}
    every = [replace(question, answers=_short(question.answers)) for question in questions]
    short = [question for question in every if question.answers]
    different, twice, asked = training(short, refused)
    alike = Alike(others)
    kept = [question for question in different if alike(question) is None]
    counts = {"long": len(every) - len(short), "twice": twice, "asked": asked, "alike": len(different) - len(kept)}
    return kept, counts


def check(folder: Path, data: Path) -> None:
    """Raise BadInput if a question of ``train.jsonl`` or ``dev.jsonl`` is one of a test set, or like one.

    Those of ``train.jsonl`` must not be like one of ``dev.jsonl`` either.
    """
    tests = [data / file for file in TESTS]
    for file, others in ((folder / TRAIN, [*tests, folder / DEV]), (folder / DEV, tests)):
        check_apart(file, others)
        alike = Alike(question for each in others for question in read_questions(each))
        for question in read_questions(file):
            if (other := alike(question)) is not None:
                raise BadInput(f"{file} asks '{question.text}', which is like '{other.text}', which is held out")


def drawn(questions: list[Question], count: int | None, seed: int) -> list[Question]:
    """So many of them at random, in their order."""
    order = np.random.default_rng(seed).permutation(len(questions))[:count]
    return [questions[at] for at in np.sort(order)]


def _named(source: str, questions: Iterable[Question]) -> Iterator[Question]:
    """The same with ids that say where they are from."""
    return (replace(each, id=f"{source}-{each.id}", documents=()) for each in questions)


def _short(answers: Sequence[str]) -> tuple[str, ...]:
    return tuple(answer for answer in answers if 0 < len(answer.split()) <= LONGEST)


def _count(questions: Sequence[Question], source: str) -> int:
    return sum(question.id.startswith(f"{source}-") for question in questions)
