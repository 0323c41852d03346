"""Published figures of several runs as one Markdown table; every row names its corpus, split and questions.

    python -m eval.table docs/measurements/nq_*.json

A reader that was asked with ``--trained WORDS`` is set beside the closed book of the same words and questions: what it
has from passages, and not from its training, is what its interval is above that one's.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from eval.command import one_line
from eval.suite import reader_kind
from ragqa.errors import BadInput
from ragqa.evaluation.report.summary import percent
from ragqa.evaluation.statistics import wilson
from ragqa.reading.registry import ReaderKind

HEAD = (
    *("questions", "corpus", "retriever", "reader", "EM", "F1", "recall @1 / @20 / @100", "answer in the corpus"),
    "less its closed book",
)
CLOSED = ReaderKind.CLOSED_BOOK


def row(figures: dict[str, Any], closed: dict[str, Any] | None = None) -> list[str]:
    """The cells of a run: percent, intervals in brackets; ``closed`` is the run of its closed book."""
    recall, system = figures["answer_recall"], figures["about"]["system"]
    bound, reads = figures["coverage_bound"], kind(figures) != CLOSED
    return [
        figures["questions"],
        figures["corpus"] if reads else f"none read ({figures['corpus']})",
        str(system.get("retriever", "")) if reads else "–",
        _reader(figures),
        _interval(figures["em"]),
        percent(figures["f1"]["value"]) if figures["f1"] else "–",
        " / ".join(percent(recall[k]["value"]) if reads and k in recall else "–" for k in ("1", "20", "100")),
        percent(bound["corpus"]) if bound and bound["corpus"] is not None else "–",
        apart(figures, closed) if closed and figures["em"] else "–",
    ]


def kind(figures: dict[str, Any]) -> str | None:
    """span, rag-token, rag-sequence, fid or closed-book; None where nothing was read."""
    reader = figures["about"]["system"].get("reader")
    return reader_kind(reader) if reader else None


def _reader(figures: dict[str, Any]) -> str:
    name, trained = kind(figures), figures["about"].get("trained")
    return f"{name}, {trained}" if name and trained else name or "–"


def apart(ours: dict[str, Any], closed: dict[str, Any]) -> str:
    """The difference in points, and whether the two intervals touch: those of the harness, or Wilson's.

    Of a book that knows next to nothing the harness's interval is too narrow: a resample of no right answers has none.
    """
    less = 100 * (ours["em"]["value"] - closed["em"]["value"])
    (low, high), (their_low, their_high) = _widest(ours), _widest(closed)
    return f"{less:+.1f}, intervals {'touch' if low <= their_high and their_low <= high else 'apart'}"


def _widest(figures: dict[str, Any]) -> tuple[float, float]:
    low, high = wilson(figures["em"]["value"], figures["about"]["questions"])
    return min(low, figures["em"]["low"]), max(high, figures["em"]["high"])


def closed_book(figures: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The run, among some, of the closed book that was trained like a reader and asked the same.

    Raises:
        BadInput: there are two.
    """
    trained = figures["about"].get("trained")
    if trained is None or kind(figures) in (None, CLOSED):
        return None
    found = [
        run
        for run in runs
        if kind(run) == CLOSED and (run["about"].get("trained"), run["questions"]) == (trained, figures["questions"])
    ]
    if len(found) > 1:
        raise BadInput(f"two closed books are of '{trained}' on {figures['questions']}: leave one out")
    return found[0] if found else None


def _interval(figure: dict[str, float] | None) -> str:
    if figure is None:
        return "–"
    return f"{percent(figure['value'])} ({percent(figure['low'])} to {percent(figure['high'])})"


def table(files: list[Path]) -> str:
    """The table of ``files``, a row each in their order; raises BadInput where one is no record of a suite."""
    try:
        runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        rows = [row(each, closed_book(each, runs)) for each in runs]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"not all of these are what --record or eval.publish wrote: {error!r}") from error
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [list(HEAD), ["---"] * len(HEAD), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="files that --record or eval.publish wrote")
    args = parser.parse_args()
    with one_line():
        print(table(args.files))


if __name__ == "__main__":
    main()
