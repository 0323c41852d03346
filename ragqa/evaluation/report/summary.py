"""Summaries of reports and comparisons in a few lines of text."""

from typing import Any

from ragqa.evaluation.compare import Comparison
from ragqa.evaluation.report.store import Report
from ragqa.terminal import to_one_line
from ragqa.text import format_count

RULES = {
    "nq": "nq: equal to a gold answer after Unicode NFD, in lower case, without ASCII punctuation and articles "
    "(ORQA, NQ-open); F1 over the words of the same without NFD",
    "squad": "squad: equal to a gold answer in lower case, without ASCII punctuation and articles (SQuAD 1.1, DPR); "
    "F1 over the words of the same",
    "regex": "regex: gold answers are patterns, matched from the start of the answer in any case (CuratedTREC); no F1",
}
"""Description of each scoring rule, by the name of the rule."""


def format_summary(report: Report) -> str:
    """Return the main figures of a report as text, with the questions and the corpus."""
    figures = report.figures
    about = figures["about"]
    scores = {"exact match": figures["em"], "F1": figures["f1"], **_name_recalls(figures)}
    # Names of files and documents can contain line ends, which could imitate the lines below.
    header = (describe_questions(about), f"corpus: {describe_corpus(about)}", f"rule {RULES[about['rule']]}", "")
    lines = list(map(to_one_line, header))
    lines += [_format_interval(name, interval) for name, interval in scores.items() if interval]
    if bound := figures["coverage_bound"]:
        in_corpus = (
            "not searched" if bound["corpus"] is None else _format_share(bound["corpus"], "the highest possible score")
        )
        lines.append(f"{'answer in the corpus':24}{in_corpus}")
        with_hits = _format_share(bound["retrieved"], "the highest possible score with these passages")
        lines.append(f"{'in the passages found':24}{with_hits}")
    lines += [_format_gold(name, gold) for name, gold in list_gold_figures(figures)]
    if loss := figures["loss"]:
        lines.append(f"{'outcomes':24}" + " · ".join(f"{name} {count}" for name, count in loss.items()))
    lines += _format_confidence(figures["confidence"]) if figures["confidence"] else []
    if figures["seconds"]:
        last = list(figures["seconds"].values())[-1]
        shares = f" (shares of batches of {about['batch']})" if about["batch"] > 1 else ""
        median, p95, p99 = (f"{1000 * last[key]:,.0f} ms" for key in ("p50", "p95", "p99"))
        lines.append(f"{'time for a question':24}median {median}; 95 % within {p95}, 99 % within {p99}{shares}")
    lines += [to_one_line(f"note: {warning}") for warning in figures["warnings"]]
    return "\n".join(lines)


def _name_recalls(figures: dict[str, Any]) -> dict[str, Any]:
    return {f"answer recall @{k}": recall for k, recall in figures["answer_recall"].items()}


def list_gold_figures(figures: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and figures of gold passages and gold documents, if a report has any."""
    named = [("gold passage", figures["gold_passage"]), ("gold document", figures["gold_document"])]
    return [(name, gold) for name, gold in named if gold]


def describe_gold(gold: dict[str, Any], name: str) -> str:
    """Describe gold passages or documents: number of questions, and mean reciprocal rank.

    Args:
        gold: figures of the gold passages or documents.
        name: ``gold passage`` or ``gold document``.
    """
    counts = f"{name.capitalize()}s: named for {format_count(gold['questions'], 'questions')}"
    counts += "" if gold["in_corpus"] is None else f", and in the corpus for {gold['in_corpus']:,} of them"
    if gold["accuracy"] is None:
        return f"{counts}: there is nothing to score."
    return f"{counts}; mean reciprocal rank (MRR) among the first {gold['depth']}: {gold['mrr']:.3f}."


def _format_gold(name: str, gold: dict[str, Any]) -> str:
    if gold["accuracy"] is None:
        return f"{name:24}{describe_gold(gold, name)}"
    accuracy = " ".join(f"@{k} {format_percent(share)}" for k, share in gold["accuracy"].items())
    count = gold["questions"] if gold["in_corpus"] is None else gold["in_corpus"]
    return f"{name:24}{accuracy}   MRR@{gold['depth']} {gold['mrr']:.3f}   {format_count(count, 'questions')}"


def describe_questions(about: dict[str, Any]) -> str:
    """Return the name and split of a question set, and its number of questions."""
    split = f", {about['split']}" if about["split"] else ""
    unanswerable = about["questions"] - about["answerable"]
    return f"{about['name']}{split}: {format_count(about['questions'], 'questions')}" + (
        f", {unanswerable:,} of them without an answer" if unanswerable else ""
    )


def describe_corpus(about: dict[str, Any]) -> str:
    """Return the name of a corpus, and its number of passages if it is known."""
    passages = about["system"].get("passages")
    return about["corpus"] + (f", {format_count(passages, 'passages')}" if passages else "")


def format_percent(share: float) -> str:
    """Return a share in percent with one decimal, without a percent sign."""
    return f"{100 * share:.1f}"


def format_probability(p: float) -> str:
    """Return a probability with four decimals, or ``< 0.0001``."""
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _format_interval(name: str, interval: dict[str, float]) -> str:
    value, low, high = (format_percent(interval[key]) for key in ("value", "low", "high"))
    between = f"95 % interval {low} to {high}" if low != high else "no interval: all questions score alike"
    return f"{name:24}{value:>5} %   {between}"


def _format_confidence(confidence: dict[str, Any]) -> list[str]:
    declining, half = confidence["declining"], confidence["right_at_half_coverage"]
    error = f"{confidence['calibration_error']:7.3f}   distance between confidence and share of right answers"
    lines = [f"{'calibration error':24}{error}; 0 is best"]
    if half is not None:
        share = _format_share(half, "of the answers with the higher confidence are right")
        lines.append(f"{'more confident half':24}{share}")
    if (right := declining["right_of_answered"]) is not None:
        meaning = f"of the questions; {format_percent(right)} % of the other answers are right"
        share = _format_share(1 - declining["answered"], meaning)
        name = f"declined below {declining['below']:.3g}"
        lines.append(f"{name:24}{share}")
    if (declined := declining["unanswerable_declined"]) is not None:
        share = _format_share(declined, f"of {format_count(declining['unanswerable'], 'questions')} without an answer")
        lines.append(f"{'declined, unanswerable':24}{share}")
    return lines


def _format_share(share: float, meaning: str) -> str:
    return f"{format_percent(share):>5} %   {meaning}"


def format_comparison(comparison: Comparison) -> str:
    """Return a comparison as text: scores of both systems, differences and p-values."""
    figures = comparison.figures
    header = [f"a: {comparison.a.path}", f"b: {comparison.b.path}", ""]
    header += [
        f"{name}: {describe_questions(figures[name])}; corpus: {describe_corpus(figures[name])}" for name in ("a", "b")
    ]
    lines = list(map(to_one_line, header))
    lines += ["", f"{'':24}{'a':>7}{'b':>7}{'a - b':>8}   95 % interval      p"]
    for name, test in {"exact match": figures["em"], "F1": figures["f1"], **_name_recalls(figures)}.items():
        if test is not None:
            value, low, high = (format_percent(test["difference"][key]) for key in ("value", "low", "high"))
            lines.append(
                f"{name:24}{format_percent(test['a']):>7}{format_percent(test['b']):>7}{value:>8}   "
                f"{f'{low} to {high}':18} {format_probability(test['p'])}"
            )
    if right := figures["right"]:
        lines.append(f"{'right':24}" + " · ".join(f"{name} {count}" for name, count in right.items()))
    for name, report in (("a", comparison.a), ("b", comparison.b)):
        if (bound := report.figures["coverage_bound"]) and bound["corpus"] is not None:
            lines.append(f"{'answer in the corpus, ' + name:24}{format_percent(bound['corpus'])} %")
    return "\n".join([*lines, *(to_one_line(f"note: {note}") for note in figures["notes"])])
