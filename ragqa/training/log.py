"""Log of a run's figures, in ``metrics.jsonl`` and, if installed, in TensorBoard."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragqa.artefacts import write_text_whole

FILE = "metrics.jsonl"


class Log:
    """Log that writes nothing, for all but the first process of data-parallel training."""

    def write(self, step: int, **row: Any) -> None:
        """Write the figures of a step."""

    def close(self) -> None:
        """Close the files of the log."""


class MetricLog(Log):
    """Log that appends to ``metrics.jsonl``, and to TensorBoard if it is installed.

    Rows of ``step`` and later steps are deleted first, because a resumed run writes them again. Index swaps at ``step``
    stay, because the run does not repeat them.

    Args:
        folder: directory of the run.
        step: step of the checkpoint from which the run continues, or 0.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for row in read_rows(folder) if row["step"] < step or (row["step"] == step and _is_swap(row))]
        write_text_whole(folder / FILE, "".join(json.dumps(row) + "\n" for row in rows))
        self._file = (folder / FILE).open("a", buffering=1)
        self._board: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)

    def write(self, step: int, **row: Any) -> None:
        """Write the figures of a step; TensorBoard gets only the numbers."""
        self._file.write(json.dumps({"step": step, **row}) + "\n")
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the files of the log."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _is_swap(row: dict[str, Any]) -> bool:
    return any(name.startswith("swap_") for name in row)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the logged rows of the run in ``folder``, up to the first damaged row.

    A run that was killed while it wrote a row has a damaged row. A run without a log has no rows.
    """
    rows: list[dict[str, Any]] = []
    if (folder / FILE).is_file():
        for line in (folder / FILE).read_bytes().splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not isinstance(row, dict):
                break
            rows.append(row)
    return rows
