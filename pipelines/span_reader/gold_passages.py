r"""Write the gold passages of questions as documents, so that they can be indexed.

    python -m pipelines.span_reader.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \
        --out gold.jsonl
    ragqa index wiki/ gold.jsonl --out reader.index

With this index, ``pipelines.span_reader.train`` also finds other passages of the same articles for the questions.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pipelines.common.examples.retrieval_examples import list_titled_gold_passages
from ragqa.artefacts import replace_file, report_write_errors
from ragqa.errors import BadInput
from ragqa.question_files import read_questions, write_documents
from ragqa.terminal import print_text


def write_gold_passages(files: Sequence[Path], out: Path) -> int:
    """Write the different gold passages of all questions, and return their number.

    Args:
        files: files of questions with passages: SQuAD 1.1, QED, or JSON lines.
        out: file of JSON lines to write, a document on each line.

    Raises:
        BadInput: a file cannot be read, ``out`` is one of ``files``, or no question names a passage.
    """
    if out.resolve() in [file.resolve() for file in files]:
        raise BadInput(f"--out {out} is one of the files that are read: choose another")
    if out.is_dir():
        raise BadInput(f"--out {out} is a directory: name a file")
    questions = (question for file in files for question in read_questions(file))
    golds = (gold for question in questions for gold in list_titled_gold_passages(question))
    with report_write_errors(out), replace_file(out) as temporary:
        count = write_documents(golds, temporary)
        if not count:
            raise BadInput(f"{', '.join(map(str, files))}: no question names a passage where its answer stands")
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    """Write gold passages from the command line."""
    from ragqa.settings.command_line import report_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="questions with passages: SQuAD 1.1, QED, or JSON lines")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines to write")
    args = parser.parse_args(arguments)
    with report_errors("pipelines.span_reader.gold_passages"):
        print_text(f"{write_gold_passages(args.files, args.out):,} passages in {args.out}")


if __name__ == "__main__":
    main()
