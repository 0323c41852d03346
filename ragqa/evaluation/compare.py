"""Comparison of two reports on the same questions, with significance tests."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.errors import Mismatch
from ragqa.evaluation.report.store import Report
from ragqa.evaluation.rows import Row
from ragqa.evaluation.statistics import compare_paired


@dataclass(frozen=True)
class Comparison:
    """Two reports on the same questions, and the figures of their comparison."""

    a: Report
    b: Report
    figures: dict[str, Any]
    """Means, differences (a - b) and p-values of the scores, numbers of questions, and descriptions of both runs."""

    def pairs(self) -> Iterator[tuple[Row, Row]]:
        """Yield the two rows of each question, from report a and report b.

        Raises:
            Mismatch: the questions of the reports differ.
            DamagedArtefact: a line is not a row.
        """
        return _pair_rows(self.a, self.b)


def compare(a: Report, b: Report) -> Comparison:
    """Compare two reports question by question; all differences are a - b.

    Raises:
        Mismatch: the questions or the scoring rules of the reports differ.
        DamagedArtefact: a value of a report is missing or wrong.
    """
    with artefacts.report_damage(f"{a.path} or {b.path}"):
        return _compare(a, b)


def _compare(a: Report, b: Report) -> Comparison:
    about_a, about_b = a.figures["about"], b.figures["about"]
    if about_a["rule"] != about_b["rule"]:
        raise Mismatch(
            f"{a.path} was scored by rule {about_a['rule']}, {b.path} by {about_b['rule']}: evaluate one again"
        )
    ks = sorted(map(int, a.figures["answer_recall"].keys() & b.figures["answer_recall"].keys()))
    scores: dict[str, list[tuple[float, float]]] = {"em": [], "f1": [], **{str(k): [] for k in ks}}
    outcomes: Counter[str] = Counter()
    questions = 0
    for row_a, row_b in _pair_rows(a, b):
        questions += 1
        if not row_a.answers:
            continue
        scores["em"].append((row_a.em, row_b.em))
        outcomes[OUTCOMES[row_a.em, row_b.em]] += 1
        if row_a.f1 is not None and row_b.f1 is not None:
            scores["f1"].append((row_a.f1, row_b.f1))
        for k in ks:
            scores[str(k)].append(((row_a.rank or np.inf) <= k, (row_b.rank or np.inf) <= k))
    is_read = a.figures["em"] is not None and b.figures["em"] is not None
    figures = {
        "a": about_a,
        "b": about_b,
        "questions": questions,
        "answerable": len(scores["em"]),
        "em": _test_scores(scores["em"]) if is_read else None,
        "f1": _test_scores(scores["f1"]) if is_read else None,
        "answer_recall": {str(k): _test_scores(scores[str(k)]) for k in ks},
        "right": {name: outcomes[name] for name in OUTCOMES.values()} if is_read else None,
        "notes": _note_differences(about_a, about_b),
    }
    return Comparison(a, b, figures)


OUTCOMES = {(True, True): "both", (True, False): "only a", (False, True): "only b", (False, False): "neither"}
"""Names of the outcomes of a question, by the success of the systems a and b."""


def _pair_rows(a: Report, b: Report) -> Iterator[tuple[Row, Row]]:
    for row_a, row_b in zip_longest(a.rows(), b.rows()):
        if row_a is None or row_b is None:
            longer, shorter = (b, a) if row_a is None else (a, b)
            raise Mismatch(
                f"{longer.path} has more questions than {shorter.path}: reports compare only on the same questions"
            )
        if (row_a.question, row_a.answers) != (row_b.question, row_b.answers):
            raise Mismatch(
                f"question {row_a.number + 1} of {a.path} is '{row_a.question}', of {b.path} '{row_b.question}', or "
                "their gold answers differ: reports compare only on the same questions"
            )
        yield row_a, row_b


def _test_scores(scores: list[tuple[float, float]]) -> dict[str, Any] | None:
    if not scores:
        return None
    a, b = np.array(scores, np.float64).T
    test = compare_paired(a, b)
    return {"a": float(a.mean()), "b": float(b.mean()), "difference": asdict(test.difference), "p": test.p}


def _note_differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    notes = []
    fingerprints = [about["system"].get("corpus") for about in (a, b)]
    is_same_corpus = None not in fingerprints and fingerprints[0] == fingerprints[1]
    names = {"corpus": "corpora", "split": "splits", "passages": "numbers of passages", "depth": "depths"}
    for key, name in {**names, "batch": "questions asked at a time", "hardware": "machines"}.items():
        value_a, value_b = (about.get(key, about["system"].get(key)) for about in (a, b))
        if value_a != value_b and None not in (value_a, value_b) and not (key == "corpus" and is_same_corpus):
            notes.append(f"the {name} differ: {value_a} and {value_b}")
    if a["corpus"] == b["corpus"] and None not in fingerprints and not is_same_corpus:
        notes.append(f"the corpora have one name, {a['corpus']}, but not the same passages")
    return notes
