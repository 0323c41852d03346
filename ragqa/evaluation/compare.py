"""Comparison of two reports on the same questions: differences, and whether chance explains them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from ragqa.errors import Mismatch
from ragqa.evaluation.report.store import Report
from ragqa.evaluation.rows import Row
from ragqa.evaluation.statistics import compare_paired


@dataclass(frozen=True)
class Comparison:
    """Figures of the reports ``a`` and ``b``, with differences as a - b."""

    a: Report
    b: Report
    figures: dict[str, Any]

    def pairs(self) -> Iterator[tuple[Row, Row]]:
        """Yield the rows of both, question by question."""
        return _pairs(self.a, self.b)


def compare(a: Report, b: Report) -> Comparison:
    """Pair two reports question by question.

    Raises:
        Mismatch: the questions, or the rules by which they were scored, are not the same.
    """
    about_a, about_b = a.figures["about"], b.figures["about"]
    if about_a["rule"] != about_b["rule"]:
        raise Mismatch(
            f"{a.path} was scored by rule {about_a['rule']}, {b.path} by {about_b['rule']}: evaluate one again"
        )
    ks = sorted(map(int, a.figures["answer_recall"].keys() & b.figures["answer_recall"].keys()))
    scores: dict[str, list[tuple[float, float]]] = {"em": [], "f1": [], **{str(k): [] for k in ks}}
    right: Counter[str] = Counter()
    questions = 0
    for one, other in _pairs(a, b):
        questions += 1
        if not one.answers:
            continue
        scores["em"].append((one.em, other.em))
        right[_RIGHT[one.em, other.em]] += 1
        if one.f1 is not None and other.f1 is not None:
            scores["f1"].append((one.f1, other.f1))
        for k in ks:
            scores[str(k)].append(((one.rank or np.inf) <= k, (other.rank or np.inf) <= k))
    read = a.figures["em"] is not None and b.figures["em"] is not None
    figures = {
        "a": about_a,
        "b": about_b,
        "questions": questions,
        "answerable": len(scores["em"]),
        "em": _test_scores(scores["em"]) if read else None,
        "f1": _test_scores(scores["f1"]) if read else None,
        "answer_recall": {str(k): _test_scores(scores[str(k)]) for k in ks},
        "right": {name: right[name] for name in _RIGHT.values()} if read else None,
        "notes": _notes(about_a, about_b),
    }
    return Comparison(a, b, figures)


_RIGHT = {(True, True): "both", (True, False): "only a", (False, True): "only b", (False, False): "neither"}


def _pairs(a: Report, b: Report) -> Iterator[tuple[Row, Row]]:
    for one, other in zip_longest(a.rows(), b.rows()):
        if one is None or other is None:
            longer, shorter = (b, a) if one is None else (a, b)
            raise Mismatch(f"{longer.path} has more questions than {shorter.path}: only the same questions compare")
        if (one.question, one.answers) != (other.question, other.answers):
            raise Mismatch(
                f"question {one.number + 1} of {a.path} is '{one.question}', of {b.path} '{other.question}', or "
                "their gold answers differ: only the same questions compare"
            )
        yield one, other


def _test_scores(scores: list[tuple[float, float]]) -> dict[str, Any] | None:
    if not scores:
        return None
    scores_a, scores_b = np.array(scores, np.float64).T
    test = compare_paired(scores_a, scores_b)
    return {
        "a": float(scores_a.mean()),
        "b": float(scores_b.mean()),
        "difference": asdict(test.difference),
        "p": test.p,
    }


def _notes(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Note differences other than those of the systems, which may explain the scores."""
    notes = []
    fingerprints = [about["system"].get("corpus") for about in (a, b)]
    is_same_corpus = None not in fingerprints and fingerprints[0] == fingerprints[1]
    for name, key in (
        ("corpora", "corpus"),
        ("splits", "split"),
        ("numbers of passages", "passages"),
        ("depths", "depth"),
        ("questions asked at a time", "batch"),
        ("machines", "hardware"),
    ):
        one, other = (about.get(key, about["system"].get(key)) for about in (a, b))
        if one != other and None not in (one, other) and not (key == "corpus" and is_same_corpus):
            notes.append(f"the {name} differ: {one} and {other}")
    if a["corpus"] == b["corpus"] and None not in fingerprints and not is_same_corpus:
        notes.append(f"the corpora have one name, {a['corpus']}, but not the same passages")
    return notes
