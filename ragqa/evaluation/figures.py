"""Figures of a report, the content of ``report.json``; shares are from 0 to 1."""

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa import __version__
from ragqa.evaluation import statistics
from ragqa.evaluation.corpus_coverage import Missing
from ragqa.evaluation.question_kinds import ORDER
from ragqa.evaluation.tally import LOSSES, Tally
from ragqa.metrics import accuracy_at, mean_reciprocal_rank

KS = (1, 5, 20, 100)
"""Numbers of hits at which retrieval is scored (DPR, Table 2, and k = 1)."""
_POINTS = 200
"""Maximum number of points of a curve in the report."""


def is_reading(about: dict[str, Any]) -> bool:
    """Return True if the system of a run answers questions; False if it only retrieves.

    Args:
        about: description of the run, as in ``report.json``.
    """
    return about["system"].get("reader", "") is not None


def compute_figures(tally: Tally, about: dict[str, Any], missing: Missing | None) -> dict[str, Any]:
    """Return the figures of a run as JSON values, the content of ``report.json``.

    Args:
        tally: columns and counts of all rows.
        about: description of the run, which becomes part of the figures.
        missing: questions that the corpus does not cover; None if the corpus was not searched.
    """
    answerable = tally.get_column("answerable") == 1
    read = is_reading(about)
    # A file of predictions can lack passages, and a reader without a retriever finds none.
    retrieved = tally.most_hits > 0 and bool(about["system"].get("depth"))
    f1 = tally.get_column("f1")[answerable]
    losses = {name: tally.losses[name] for name in LOSSES if missing is not None or name != "not in the corpus"}
    has_f1 = read and len(f1) and not np.isnan(f1).any()
    return {
        "about": {
            **about,
            "questions": len(tally),
            "answerable": int(answerable.sum()),
            "questions_digest": tally.digest,
            "created_by": f"ragqa {__version__}",
        },
        "em": _make_interval(tally.get_column("em")[answerable]) if read else None,
        "f1": _make_interval(f1) if has_f1 else None,
        "answer_recall": _measure_recall(tally, answerable, about) if retrieved else {},
        "coverage_bound": _measure_corpus_coverage(tally, answerable, missing) if retrieved else None,
        "gold_passage": _score_gold(tally, "passage", about, missing) if retrieved else None,
        "gold_document": _score_gold(tally, "document", about, missing) if retrieved else None,
        "loss": losses if read and retrieved else None,
        "confidence": _measure_confidence(tally, answerable, about["min_confidence"]) if read else None,
        "breakdown": _break_down(tally, answerable) if read else {},
        "seconds": _measure_seconds(tally, is_read=read),
        "warnings": _list_warnings(tally, about),
    }


def _make_interval(values: npt.NDArray[np.float64]) -> dict[str, float] | None:
    return asdict(statistics.compute_bootstrap_interval(values)) if len(values) else None


def _list_depths(tally: Tally, about: dict[str, Any]) -> list[int]:
    """Return the numbers of hits at which retrieval is scored, in rising order.

    They are ``KS``, the number of passages read, and the depth of the search, up to the largest number of hits.
    """
    deepest = min(about["system"].get("depth", 0), tally.most_hits)
    return sorted({d for d in (*KS, about["system"].get("k") or 0, deepest) if 0 < d <= deepest})


def _measure_recall(tally: Tally, answerable: npt.NDArray[np.bool_], about: dict[str, Any]) -> dict[str, Any]:
    ranks = np.array([rank or np.inf for rank in tally.get_ranks("rank")])[answerable]
    return (
        {str(k): _make_interval((ranks <= k).astype(float)) for k in _list_depths(tally, about)} if len(ranks) else {}
    )


def _measure_corpus_coverage(
    tally: Tally, answerable: npt.NDArray[np.bool_], missing: Missing | None
) -> dict[str, float | None] | None:
    """Return the shares of the answerable questions that the corpus and the hits cover.

    A question is covered if a passage contains an answer, or if the question was answered correctly. The shares bound
    the accuracy of systems that answer from these passages.
    """
    if not answerable.any():
        return None
    in_corpus = None if missing is None else float(1 - len(missing.answers) / answerable.sum())
    return {"corpus": in_corpus, "retrieved": float(tally.get_column("covered")[answerable].mean())}


def _score_gold(tally: Tally, unit: str, about: dict[str, Any], missing: Missing | None) -> dict[str, Any] | None:
    """Return the figures of the gold passages or documents; None if no question names one.

    Only questions with a gold passage (or document) in the corpus are scored.
    """
    known, ranks = tally.gold[f"{unit}_rank"], tally.get_ranks(f"{unit}_rank")
    if not known:
        return None
    lacking = frozenset() if missing is None else missing.passages if unit == "passage" else missing.documents
    ranks_in_corpus = [ranks[n] for n in known if n not in lacking]
    # A corpus that is divided into other passages has none of these, and a score of 0 would mean nothing.
    is_scored = any(ranks_in_corpus) if missing is None else bool(ranks_in_corpus)
    accuracy = accuracy_at(ranks_in_corpus, _list_depths(tally, about))
    return {
        "questions": len(known),
        "in_corpus": None if missing is None else len(ranks_in_corpus),
        "accuracy": {str(k): share for k, share in accuracy.items()} if is_scored else None,
        "mrr": mean_reciprocal_rank(ranks_in_corpus) if is_scored else None,
        "depth": about["system"].get("depth"),
    }


def _measure_confidence(tally: Tally, answerable: npt.NDArray[np.bool_], threshold: float) -> dict[str, Any] | None:
    """Return the figures of confidence; None without answers, or if one has no confidence.

    An answer to an unanswerable question counts as wrong.
    """
    is_answered = tally.get_column("predicted") == 1
    confidence, right = tally.get_column("confidence"), tally.get_column("em") * answerable
    if not is_answered.any() or tally.no_confidence:
        return None
    coverage, risk = statistics.compute_risk_coverage(confidence[is_answered], right[is_answered])
    coverage = coverage * is_answered.mean()
    points = np.unique(np.linspace(0, len(coverage) - 1, _POINTS).astype(int))
    answered = is_answered & (np.nan_to_num(confidence) >= threshold)
    return {
        "calibration_error": statistics.compute_calibration_error(confidence[is_answered], right[is_answered]),
        "reliability": [asdict(b) for b in statistics.compute_reliability(confidence[is_answered], right[is_answered])],
        "risk_coverage": [[float(coverage[n]), float(risk[n])] for n in points],
        "area_under_risk": statistics.compute_area_under_risk(coverage, risk),
        "right_at_half_coverage": statistics.compute_accuracy_at_coverage(coverage, risk, 0.5),
        "declining": {
            "below": threshold,
            "answered": _mean(answered),
            "right_of_answered": _mean(right[answered]),
            "answerable_declined": _mean(~answered[answerable]),
            "unanswerable": int((~answerable).sum()),
            "unanswerable_declined": _mean(~answered[~answerable]),
            "em": _mean((right * answered)[answerable]),
        },
    }


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _break_down(tally: Tally, answerable: npt.NDArray[np.bool_]) -> dict[str, list[dict[str, Any]]]:
    em, f1 = tally.get_column("em"), tally.get_column("f1")
    table: dict[str, list[dict[str, Any]]] = {}
    for name, kinds in tally.get_kinds().items():
        rows = []
        for kind in set(kinds[answerable].tolist()):
            inside = answerable & (kinds == kind)
            mean_f1 = None if np.isnan(f1[inside]).any() else float(f1[inside].mean())
            rows.append({"kind": kind, "questions": int(inside.sum()), "em": _make_interval(em[inside]), "f1": mean_f1})
        order = ORDER.get(name)
        table[name] = sorted(
            rows, key=lambda row: (order.index(row["kind"]) if order else -row["questions"], row["kind"])
        )
    return table


def _measure_seconds(tally: Tally, *, is_read: bool) -> dict[str, dict[str, float]] | None:
    parts = {"retrieve": tally.get_column("retrieve_seconds")}
    if is_read:
        parts["read"] = tally.get_column("read_seconds")
        parts["total"] = parts["retrieve"] + parts["read"]
    known_parts = {name: seconds for name, seconds in parts.items() if not np.isnan(seconds).any()}
    return {name: statistics.compute_percentiles(seconds) for name, seconds in known_parts.items()} or None


def _list_warnings(tally: Tally, about: dict[str, Any]) -> list[str]:
    read = is_reading(about)
    counts = {
        "have an empty gold answer: no passage holds it"
        + (", every prediction matches it" if about["rule"] == "regex" else ""): tally.blank,
        "have a gold answer that is no valid pattern, which matches nothing": tally.invalid,
        "have a pattern that is invalid after Unicode NFD, so no passage counts as holding it": tally.invalid_in_text,
        "were answered without a confidence, so there are no figures of confidence": tally.no_confidence * read,
    }
    warnings = [f"{count} of {len(tally)} questions {problem}" for problem, count in counts.items() if count]
    if read and (count := tally.no_prediction):
        answerable = int(tally.get_column("answerable").sum())
        warnings.append(f"{count} of {answerable} questions with gold answers got no prediction, which counts as wrong")
    return warnings
