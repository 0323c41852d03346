"""Progress reports about long work, from the library to the command line."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import Protocol

from ragqa.terminal import make_error_console, print_text, to_one_line

Notify = Callable[[str], None]
"""Function that receives a line of text for the user."""

PLAIN_FIRST, PLAIN_EVERY = 2.0, 30.0
"""Seconds before the first line of progress and between lines, if standard error is not a terminal."""


def ignore_line(line: str) -> None:
    """Ignore a line; this is the default of ``Notify`` arguments."""


class Step(Protocol):
    """Receiver of progress reports about one step of long work."""

    def advance_to(self, done: int, status: str = "") -> None:
        """Report the number of finished units.

        Args:
            done: total number of finished units, including units from an earlier run.
            status: text to show beside the number.
        """


class Progress(Protocol):
    """Receiver of progress reports about long work."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a context manager for a step, which yields the receiver of the step's reports.

        Args:
            name: name of the step.
            total: number of units.
            unit: plural name of the units, for example passages; B stands for bytes.
            done: number of units that an earlier run finished.
        """


class Silent:
    """Receiver that ignores all reports; ``SILENT`` is the default for ``progress`` arguments."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a context manager that yields this receiver, which ignores all reports."""
        return nullcontext(self)

    def advance_to(self, done: int, status: str = "") -> None:
        """Ignore the report."""


SILENT = Silent()


class Bars:
    """Receiver that shows progress on standard error: bars on a terminal, else plain lines."""

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator[Step]:
        """Show a bar with the rate and the remaining time, or print lines.

        Without a terminal, the first report after ``PLAIN_FIRST`` seconds is printed, then at most one report in
        ``PLAIN_EVERY`` seconds, and a line at the end of the block. Arguments: as for ``Progress.step``.
        """
        from rich import progress

        console = make_error_console()
        name = to_one_line(name)
        columns = [
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[pace]}", markup=False),
            progress.TextColumn("{task.fields[status]}", markup=False),
        ]
        pace = _Pace(max(1, total), unit, done)
        with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bars:
            task = bars.add_task(name, total=pace.total, pace=pace.describe(), status="")
            bars.update(task, completed=pace.done)

            class Bar:
                next_line = pace.start + PLAIN_FIRST

                def advance_to(self, done: int, status: str = "") -> None:
                    pace.done, status = done / pace.scale, to_one_line(status)
                    bars.update(task, completed=pace.done, pace=pace.describe(), status=status)
                    if not console.is_terminal and monotonic() >= self.next_line:
                        self.next_line = monotonic() + PLAIN_EVERY
                        line = f"{name}: {pace.describe()}" + (f", {status}" if status else "")
                        print_text(line, file=console.file)

            yield Bar()
        if not console.is_terminal:
            seconds = monotonic() - pace.start
            print_text(f"{name}: {pace.format_count(pace.done - pace.first)} in {seconds:.1f} s", file=console.file)


class _Pace:
    def __init__(self, total: int, unit: str, done: int) -> None:
        self.scale, self.unit = (1_000_000, "MB") if unit == "B" else (1, unit)
        self.total, self.first, self.start = total / self.scale, done / self.scale, monotonic()
        self.done = self.first

    def _compute_rate(self) -> float:
        return (self.done - self.first) / max(1e-9, monotonic() - self.start)

    def format_count(self, count: float, prefix: str = "") -> str:
        decimals = 1 if self.unit == "MB" and count < 10 else 0
        unit = self.unit.removesuffix("s") if count == 1 else self.unit
        return f"{prefix}{count:,.{decimals}f} {unit}"

    def format_rate(self) -> str:
        speed = self._compute_rate()
        if 0 < speed < 1:
            return f"{1 / speed:.1f} s/{self.unit.removesuffix('s')}"
        return f"{speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s"

    def describe(self) -> str:
        speed, time_left = self._compute_rate(), "-:--:--"
        if speed > 0:
            minutes, seconds = divmod(round((self.total - self.done) / speed), 60)
            time_left = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        done = self.format_count(self.done).partition(" ")[0]
        return f"{self.format_count(self.total, f'{done}/')}, {self.format_rate()}, {time_left} left"
