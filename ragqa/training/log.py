"""The record of a run: a JSON object a line in ``metrics.jsonl``, and TensorBoard where it is installed."""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

FILE = "metrics.jsonl"


class Log(Protocol):
    """Where figures go."""

    def write(self, step: int, **row: Any) -> None:
        """A row of figures."""
        ...


class _NoLog:
    def write(self, step: int, **row: Any) -> None: ...


NO_LOG = _NoLog()
"""Of a process that trains beside another, which logs."""


class MetricLog:
    """Appends rows; a run that goes on from a checkpoint first drops what came after it."""

    def __init__(self, folder: Path, step: int) -> None:
        """Log into ``folder/metrics.jsonl`` from ``step`` on."""
        folder.mkdir(parents=True, exist_ok=True)
        kept = [row for row in read_rows(folder) if row["step"] < step or (row["step"] == step and _before(row))]
        aside = folder / f".{FILE}.writing"
        aside.write_text("".join(json.dumps(row) + "\n" for row in kept))
        os.replace(aside, folder / FILE)
        self._file = (folder / FILE).open("a", buffering=1)
        self._board = _board(folder, step)

    def write(self, step: int, **row: Any) -> None:
        """A row of figures."""
        self._file.write(json.dumps({"step": step, **row}) + "\n")
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Nothing is written any more."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _before(row: dict[str, Any]) -> bool:
    """Whether a row was written before the checkpoint of its step: what is swapped in then is not swapped in again."""
    return any(name.startswith("swap_") for name in row)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run, a last one that was cut off by a kill left out; none where there is no log."""
    rows = []
    if (folder / FILE).is_file():
        for line in (folder / FILE).read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def _board(folder: Path, step: int) -> Any:
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step)
