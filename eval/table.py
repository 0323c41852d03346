"""Published figures of several runs as one Markdown table; every row names its corpus, split and questions.

python -m eval.table docs/measurements/nq_*.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

from eval.command import one_line
from ragqa.evaluation.summary import percent

HEAD = ("questions", "corpus", "retriever", "EM", "F1", "recall @1 / @20 / @100", "answer in the corpus")


def row(figures: dict[str, Any]) -> list[str]:
    """The cells of a run: percent, intervals in brackets."""
    recall, system = figures["answer_recall"], figures["about"]["system"]
    bound = figures["coverage_bound"]
    return [
        figures["questions"],
        figures["corpus"],
        str(system.get("retriever", "")),
        _interval(figures["em"]),
        percent(figures["f1"]["value"]) if figures["f1"] else "–",
        " / ".join(percent(recall[k]["value"]) if k in recall else "–" for k in ("1", "20", "100")),
        percent(bound["corpus"]) if bound and bound["corpus"] is not None else "–",
    ]


def _interval(figure: dict[str, float] | None) -> str:
    if figure is None:
        return "–"
    return f"{percent(figure['value'])} ({percent(figure['low'])} to {percent(figure['high'])})"


def table(files: list[Path]) -> str:
    """The table of ``files``, a row each in their order."""
    lines = [list(HEAD), ["---"] * len(HEAD), *(row(json.loads(file.read_text(encoding="utf-8"))) for file in files)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="files that --record or eval.publish wrote")
    args = parser.parse_args()
    with one_line():
        print(table(args.files))


if __name__ == "__main__":
    main()
