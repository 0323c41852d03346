"""Print recorded figures of several runs as one Markdown table.

    python -m eval.table docs/measurements/nq_*.json

A reader that was scored with ``--trained WORDS`` is compared with the closed book of the same words and questions: what
its interval is above that one's, it has from passages and not from its training.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.command import run_command
from ragqa.errors import BadInput
from ragqa.evaluation.report.summary import format_percent
from ragqa.evaluation.statistics import compute_wilson_interval
from ragqa.models.generation.generator_kinds import GeneratorKind
from ragqa.reading.registry import read_kind


@dataclass(frozen=True, kw_only=True)
class RecordsConfig:
    """Recorded runs, a row each."""

    files: tuple[Path, ...]
    """Files that --record or eval.export_figures wrote."""


HEAD = (
    *("questions", "corpus", "retriever", "reader", "EM", "F1", "recall @1 / @20 / @100", "answer in the corpus"),
    "less its closed book",
)


def make_row(figures: dict[str, Any], closed_book: dict[str, Any] | None = None) -> list[str]:
    """Return the cells of a run, compared with the run of its closed book if there is one."""
    recall, system = figures["answer_recall"], figures["about"]["system"]
    bound, uses_passages = figures["coverage_bound"], find_reader_kind(figures) != GeneratorKind.CLOSED_BOOK
    return [
        figures["questions"],
        figures["corpus"] if uses_passages else f"none read ({figures['corpus']})",
        str(system.get("retriever", "")) if uses_passages else "–",
        _describe_reader(figures),
        format_interval(figures["em"]),
        format_percent(figures["f1"]["value"]) if figures["f1"] else "–",
        " / ".join(
            format_percent(recall[k]["value"]) if uses_passages and k in recall else "–" for k in ("1", "20", "100")
        ),
        format_percent(bound["corpus"]) if bound and bound["corpus"] is not None else "–",
        format_gain(figures, closed_book) if closed_book and figures["em"] else "–",
    ]


def find_reader_kind(figures: dict[str, Any]) -> str | None:
    """Return the kind of the reader; None if nothing was read."""
    reader = figures["about"]["system"].get("reader")
    return read_kind(reader) if reader else None


def _describe_reader(figures: dict[str, Any]) -> str:
    kind, trained = find_reader_kind(figures), figures["about"].get("trained")
    return f"{kind}, {trained}" if kind and trained else kind or "–"


def format_gain(figures: dict[str, Any], closed_book: dict[str, Any]) -> str:
    """Return the difference in points, and say if the intervals of the two runs touch.

    Of each run the wider of two intervals counts, because the bootstrap's is too narrow where next to nothing is right:
    a resample without a right answer has no width. The other is Wilson's.
    """
    gain = 100 * (figures["em"]["value"] - closed_book["em"]["value"])
    (low, high), (closed_low, closed_high) = _widest_interval(figures), _widest_interval(closed_book)
    return f"{gain:+.1f}, intervals {'touch' if low <= closed_high and closed_low <= high else 'apart'}"


def _widest_interval(figures: dict[str, Any]) -> tuple[float, float]:
    low, high = compute_wilson_interval(figures["em"]["value"], figures["about"]["questions"])
    return min(low, figures["em"]["low"]), max(high, figures["em"]["high"])


def find_closed_book(figures: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the closed book that was trained like a reader and asked the same questions.

    Raises:
        BadInput: there are two.
    """
    trained = figures["about"].get("trained")
    if trained is None or find_reader_kind(figures) in (None, GeneratorKind.CLOSED_BOOK):
        return None
    matches = [
        run
        for run in runs
        if find_reader_kind(run) == GeneratorKind.CLOSED_BOOK
        and (run["about"].get("trained"), run["questions"]) == (trained, figures["questions"])
    ]
    if len(matches) > 1:
        raise BadInput(f"two closed books are of '{trained}' on {figures['questions']}: leave one out")
    return matches[0] if matches else None


def format_interval(figure: Mapping[str, float] | None) -> str:
    """Return a share with its interval in percent, or a dash."""
    if figure is None:
        return "–"
    return f"{format_percent(figure['value'])} ({format_percent(figure['low'])} to {format_percent(figure['high'])})"


def format_markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def make_table(files: list[Path]) -> str:
    """Return a table with a row for each file; raise BadInput if one is no record."""
    if not files:
        raise BadInput("no files: name those that --record or eval.export_figures wrote")
    try:
        runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        rows = [make_row(run, find_closed_book(run, runs)) for run in runs]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"not all of these are what --record or eval.export_figures wrote: {error!r}") from error
    return format_markdown(HEAD, rows)


def main(config: RecordsConfig) -> None:
    """Print the table of recorded figures."""
    print(make_table(list(config.files)))


if __name__ == "__main__":
    run_command(main, RecordsConfig, __doc__, positional=True)
