"""Print the recorded figures of several evaluations as one Markdown table.

    python -m eval.table docs/measurements/nq_*.json

The option ``--trained`` of a suite describes the training of a reader. The table compares a reader with the closed book
(the generator without passages) that has the same description and the same questions. The difference shows how much the
passages help.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from eval.command import run_command
from ragqa.errors import BadInput
from ragqa.evaluation.report.summary import format_percent
from ragqa.evaluation.statistics import compute_wilson_interval
from ragqa.models.generation.generator_kinds import GeneratorKind
from ragqa.reading.registry import SPAN
from ragqa.settings.groups import POSITIONAL
from ragqa.terminal import print_text


@dataclass(frozen=True, kw_only=True)
class RecordsConfig:
    """Settings of the table."""

    files: Annotated[tuple[Path, ...], POSITIONAL]
    """Files that --record or eval.export_figures wrote; each file is one row."""


HEAD = (
    *("questions", "corpus", "retriever", "reader", "EM", "F1", "recall @1 / @20 / @100", "answer in the corpus"),
    "less its closed book",
)


def make_row(figures: dict[str, Any], closed_book: dict[str, Any] | None = None) -> list[str]:
    """Return the cells of one row, in the order of ``HEAD``.

    Args:
        figures: recorded figures of an evaluation.
        closed_book: figures of the closed book to compare with, if there is one.
    """
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
    """Return the kind of the reader; None if only retrieval was scored."""
    system = figures["about"]["system"]
    reader: str | None = system.get("reader")
    if reader is None or "reader_kind" in system:
        return system.get("reader_kind")
    return reader.partition("-")[2] or SPAN  # older records have the kind only in the fingerprint, DIGEST-KIND


def _describe_reader(figures: dict[str, Any]) -> str:
    kind, trained = find_reader_kind(figures), figures["about"].get("trained")
    return f"{kind}, {trained}" if kind and trained else kind or "–"


def format_gain(figures: dict[str, Any], closed_book: dict[str, Any]) -> str:
    """Return the gain over the closed book in points of exact match, as text.

    The text also says if the intervals touch or are apart. An interval covers the bootstrap interval and Wilson's,
    because the bootstrap interval is too narrow for scores near 0, where many resamples have no right answer.
    """
    gain = 100 * (figures["em"]["value"] - closed_book["em"]["value"])
    (low, high), (closed_low, closed_high) = _widest_interval(figures), _widest_interval(closed_book)
    return f"{gain:+.1f}, intervals {'touch' if low <= closed_high and closed_low <= high else 'apart'}"


def _widest_interval(figures: dict[str, Any]) -> tuple[float, float]:
    low, high = compute_wilson_interval(figures["em"]["value"], figures["about"]["questions"])
    return min(low, figures["em"]["low"]), max(high, figures["em"]["high"])


def find_closed_book(figures: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the closed book with a reader's training and questions; None if there is none.

    Args:
        figures: recorded figures of the reader.
        runs: recorded figures of all rows.

    Raises:
        BadInput: there are several such closed books.
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
        raise BadInput(f"two closed books have the training '{trained}' on {figures['questions']}: leave one out")
    return matches[0] if matches else None


def format_interval(figure: Mapping[str, float] | None) -> str:
    """Return a share and its interval in percent; a dash for None."""
    if figure is None:
        return "–"
    return f"{format_percent(figure['value'])} ({format_percent(figure['low'])} to {format_percent(figure['high'])})"


def format_markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with one line for each row."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def make_table(files: list[Path]) -> str:
    """Return a Markdown table with one row for each record.

    Raises:
        BadInput: as for ``read_record`` and ``find_closed_book``, or there are no files.
    """
    if not files:
        raise BadInput("no files: name files that --record or eval.export_figures wrote")
    runs = [read_record(file) for file in files]
    return format_markdown(HEAD, [make_row(run, find_closed_book(run, runs)) for run in runs])


def read_record(file: Path) -> dict[str, Any]:
    """Return the recorded figures in a file.

    Raises:
        BadInput: the file cannot be read, or is not a record.
    """
    try:
        figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        make_row(figures, figures)  # an error here, where the file is known
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{file} is not a record: name files that --record or eval.export_figures wrote") from error
    return figures


def main(config: RecordsConfig) -> None:
    """Print the table of the files that the settings name.

    Raises:
        BadInput: as for ``make_table``.
    """
    print_text(make_table(list(config.files)))


if __name__ == "__main__":
    run_command(main, RecordsConfig, __doc__)
