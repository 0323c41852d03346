"""Write the gold passages of questions as documents, to be indexed beside others.

    python -m pipelines.span_reader.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \\
        --out gold.jsonl
    ragqa index wiki/ gold.jsonl --out reader.index

So that what ``pipelines.span_reader.train --index`` finds for these questions are passages of the very same articles.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pipelines.common.negatives import list_titled_gold_passages
from ragqa.artefacts import report_write_errors
from ragqa.errors import BadInput
from ragqa.questions import read_questions, write_documents


def write(files: Sequence[Path], out: Path) -> int:
    """Write the different gold passages of the questions in ``files``, with their titles; how many there are.

    Raises:
        BadInput: a file is none of questions (see ``read_questions``), ``out`` is one of them, or no question names a
            passage.
    """
    if out.resolve() in [file.resolve() for file in files]:
        raise BadInput(f"--out {out} is one of the files that are read: choose another")
    if out.is_dir():
        raise BadInput(f"--out {out} is a directory: name a file")
    aside = out.with_name(f".{out.name}.writing")
    try:
        texts = (
            gold for file in files for question in read_questions(file) for gold in list_titled_gold_passages(question)
        )
        with report_write_errors(out):
            count = write_documents(texts, aside)
            if not count:
                raise BadInput(f"{', '.join(map(str, files))}: no question names a passage where its answer stands")
            aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    from ragqa.cli.config import report_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="questions with passages: SQuAD 1.1, QED, or JSON lines")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines to write")
    args = parser.parse_args(arguments)
    with report_errors("pipelines.span_reader.gold_passages"):
        print(f"{write(args.files, args.out):,} passages in {args.out}")


if __name__ == "__main__":
    main()
