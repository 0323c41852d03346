"""Index the paragraphs of SQuAD's train and dev-a files, one passage each.

    python -m eval.squad_index --squad DATA/squad --out squad.index
    python -m eval.squad --pipeline squad.index --data DATA/squad

The suite over this index scores how often the gold passage is found; with ``--gold`` it scores the reader alone.
"""

from dataclasses import dataclass
from pathlib import Path

from eval.command import run_command


@dataclass(frozen=True, kw_only=True)
class SquadIndexConfig:
    """Places of the files and of the index."""

    squad: Path
    """Folder with train-v1.1.json.xz and dev-a-v1.1.json.xz."""
    out: Path
    """Index directory to make."""


def main(config: SquadIndexConfig) -> None:
    """Index SQuAD's paragraphs from the command line."""
    from pipelines.calibrate.conditions import build_paragraph_index
    from ragqa.question_files import read_squad

    files = (config.squad / "train-v1.1.json.xz", config.squad / "dev-a-v1.1.json.xz")
    build_paragraph_index([paragraph for file in files for paragraph in read_squad(file)], config.out)


if __name__ == "__main__":
    run_command(main, SquadIndexConfig, __doc__)
