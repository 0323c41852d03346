r"""Write the gold passages of questions as documents, so that they can be indexed.

    python -m pipelines.span_reader.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \
        --out gold.jsonl
    ragqa index wiki/ gold.jsonl --retriever bm25 --blocks words --out reader.index

From this index, ``pipelines.span_reader.train`` retrieves further passages for the questions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pipelines.common.examples.retrieval_examples import list_titled_gold_passages
from ragqa.artefacts import replace_file, report_write_errors
from ragqa.errors import BadInput
from ragqa.question_files import read_questions, write_documents
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.settings.groups import POSITIONAL
from ragqa.terminal import print_text


@dataclass(frozen=True, kw_only=True)
class GoldPassagesConfig:
    """Settings of the command that writes gold passages."""

    files: Annotated[tuple[Path, ...], POSITIONAL]
    """Files of questions with passages: SQuAD 1.1, QED, or JSON lines."""
    out: Path
    """File of JSON lines to write."""

    def __post_init__(self) -> None:
        """Raise BadInput if no file is named."""
        if not self.files:
            raise BadInput("no files: name files of questions with passages")


def write_gold_passages(files: Sequence[Path], out: Path) -> int:
    """Write the distinct gold passages of all questions as documents, and return their number.

    Args:
        files: files of questions with passages: SQuAD 1.1, QED, or JSON lines.
        out: file of JSON lines to write, a document on each line.

    Raises:
        BadInput, BadLine: a file cannot be read, ``out`` cannot be written or is one of ``files``, or no question has a
            gold passage.
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
            raise BadInput(f"{', '.join(map(str, files))}: no question names a passage that answers it")
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; ``arguments`` replace the arguments of the process."""
    with report_errors("pipelines.span_reader.gold_passages"):
        config = parse_config(GoldPassagesConfig, __doc__, arguments)
        print_text(f"{write_gold_passages(config.files, config.out):,} passages in {config.out}")


if __name__ == "__main__":
    main()
