"""The corpus that SQuAD's questions were written for: every paragraph of train and dev-a is a passage.

    python -m eval.bench.squad_index --squad DIR --out squad.index

Over it ``python -m eval.squad --pipeline squad.index …`` scores gold-passage accuracy and the pipeline; with
``--gold`` the reader alone.
"""

import argparse
from pathlib import Path

from eval.command import report_errors
from pipelines.calibrate.conditions import build_paragraph_index
from ragqa.questions import read_squad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True, help="folder with train- and dev-a-v1.1.json.xz")
    parser.add_argument("--out", type=Path, required=True, help="index directory to make")
    args = parser.parse_args()
    files = (args.squad / "train-v1.1.json.xz", args.squad / "dev-a-v1.1.json.xz")
    with report_errors():
        build_paragraph_index([paragraph for file in files for paragraph in read_squad(file)], args.out)


if __name__ == "__main__":
    main()
