"""Put a model card beside an exported encoder or reader: the last step, when its scores are known.

    python -m pipelines.card --of reader --card CARD.md

Weights and calibration stay as they are; the manifest is written anew, so that the card is under its checksums.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from ragqa.errors import BadInput
from ragqa.runtime.export import CARD_FILE, amend_export


def put(card: Path, of: Path) -> None:
    """Make ``card`` the README.md of the export ``of``.

    Raises:
        ArtefactError, DamagedArtefact: it is no export, or not whole.
        BadInput: there is no such card.
    """
    if not card.is_file():
        raise BadInput(f"--card {card}: there is no such file")
    try:
        card.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"--card {card} is not in UTF-8: {error}") from error
    with amend_export(of) as folder:
        shutil.copyfile(card, folder / CARD_FILE)


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    from ragqa.cli.config import report_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", type=Path, required=True, help="directory of the export")
    parser.add_argument("--card", type=Path, required=True, help="Markdown file")
    args = parser.parse_args(arguments)
    with report_errors("pipelines.card"):
        put(args.card, args.of)


if __name__ == "__main__":
    main()
