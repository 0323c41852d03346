"""The ablation as a Markdown table: what ``eval.bench.ablation`` measured, every row with its intervals.

python -m eval.ablation_table docs/measurements/ablation.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

from eval.command import one_line
from ragqa.errors import BadInput
from ragqa.evaluation.report.summary import percent

HEAD = (
    *("", "recall @5", "@20", "@20 less full", "EM, NQ test-a", "less full", "EM, SQuAD dev-a", "less full", "trained"),
)


def table(figures: dict[str, Any]) -> str:
    """The table, what its rows' signs mean, and the share of the questions that any retriever could answer."""
    notes: list[str] = []
    lines = [list(HEAD), ["---"] * len(HEAD), *(_cells(row, notes) for row in figures["rows"])]
    drawn = [f"| {' | '.join(cells)} |" for cells in lines]
    told = [f"{sign(number)} {note}" for number, note in enumerate(notes)]
    return "\n".join([*drawn, "", *_ceilings(figures), *([""] if told else []), *told])


def sign(number: int) -> str:
    """Of a note: ¹, ², ³ and so on."""
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(number + 1))


def _cells(row: dict[str, Any], notes: list[str]) -> list[str]:
    mark = ""
    if row["note"]:
        if row["note"] not in notes:
            notes.append(row["note"])
        mark = f" {sign(notes.index(row['note']))}"
    recall, em = row.get("recall", {}), row.get("em", {})
    return [
        f"{row['title']}{mark}",
        _interval(recall.get("5")),
        _interval(recall.get("20")),
        _difference(row.get("less full", {}).get("recall"), "answer_recall", "20"),
        *(
            cell
            for suite in ("nq", "squad")
            for cell in (_interval(em.get(suite, {}).get("em")), _difference(row.get("less full", {}).get(suite), "em"))
        ),
        _hours(row),
    ]


def _ceilings(figures: dict[str, Any]) -> list[str]:
    found = figures["corpus made of"]["answered"]
    told = [f"{name} {percent(each['share'])} of {each['questions']:,}" for name, each in found.items()]
    return [
        f"Corpus: {figures['corpus']}. Percent of all questions that were asked, 95 % intervals in brackets: over "
        "questions, not over trainings, of which there is one a row. p of paired tests, not corrected for their number."
        " Recall: of questions that no training question is like. The systems were fine-tuned on NQ alone: SQuAD's "
        "questions are new to them. Questions whose answer stands anywhere in the corpus, in percent: "
        f"{'; '.join(told)}."
    ]


def _interval(figure: dict[str, float] | None) -> str:
    if not figure:
        return "–"
    return f"{percent(figure['value'])} ({percent(figure['low'])} to {percent(figure['high'])})"


def _difference(compared: dict[str, Any] | None, *names: str) -> str:
    found: Any = compared
    for name in names:
        found = found and found.get(name)
    if not found:
        return "–"
    return f"{100 * found['difference']['value']:+.1f} (p {found['p']:.2g})"


def _hours(row: dict[str, Any]) -> str:
    """Hours of steps, the shared warm start included."""
    spent = sum(row.get("trained_s", {}).values())
    tuned = row.get("tuned_s")
    if not spent:
        return "–"
    return f"{spent / 3600:.1f} h" + (f" + {tuned / 3600:.1f} h" if tuned is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what eval.bench.ablation wrote")
    args = parser.parse_args()
    with one_line():
        try:
            figures = json.loads(args.file.read_text(encoding="utf-8"))
            drawn = table(figures)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{args.file} is no record of the ablation: {error!r}") from error
    print(drawn)


if __name__ == "__main__":
    main()
