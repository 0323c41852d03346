"""Index the paragraphs of SQuAD train and dev-a, each as one passage.

    python -m eval.squad_index --squad DATA/squad --out squad.index
    python -m eval.squad --pipeline squad.index --data DATA/squad

With this index, the suite also measures how often the gold passage is retrieved.
"""

from dataclasses import dataclass
from pathlib import Path

from eval.command import run_command

LONGEST_PARAGRAPH = 700
"""Size of a passage in words, so that no paragraph is cut: the longest of these files has 653 words."""


@dataclass(frozen=True, kw_only=True)
class SquadIndexConfig:
    """Settings of the index."""

    squad: Path
    """Folder with train-v1.1.json.xz and dev-a-v1.1.json.xz."""
    out: Path
    """Index directory to write."""


def main(config: SquadIndexConfig) -> None:
    """Index the paragraphs of SQuAD train and dev-a.

    Raises:
        RagqaError: as for ``read_squad`` and ``build_paragraph_index``.
    """
    from pipelines.calibrate.conditions import build_paragraph_index
    from ragqa.question_files import read_squad

    files = (config.squad / "train-v1.1.json.xz", config.squad / "dev-a-v1.1.json.xz")
    paragraphs = [paragraph for file in files for paragraph in read_squad(file)]
    build_paragraph_index(paragraphs, config.out, blocks="words", block_size=LONGEST_PARAGRAPH)


if __name__ == "__main__":
    run_command(main, SquadIndexConfig, __doc__)
