"""Progress of long work, which the library reports and the command line shows."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import Protocol

from ragqa.terminal import make_error_console, print_text, to_one_line
from ragqa.text import format_count

Notify = Callable[[str], None]
"""Function that receives a line of text for the user."""

PLAIN_EVERY = 30.0
"""Seconds between two lines of progress if standard error is not a terminal."""


def ignore_line(line: str) -> None:
    """Ignore the line; this is the default of ``Notify`` arguments."""


class Step(Protocol):
    """Receiver of progress reports about one piece of work."""

    def advance_to(self, done: int, status: str = "") -> None:
        """Report that ``done`` units are finished, and a status text to show."""


class Progress(Protocol):
    """Receiver of progress reports about long work."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a context manager around a piece of work.

        Args:
            name: name of the work.
            total: number of units.
            unit: name of the units, for example passages; B stands for bytes.
            done: number of units that an earlier run finished.
        """


class Silent:
    """Receiver that ignores progress reports; the default of the library."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a step that shows nothing."""
        return nullcontext(self)

    def advance_to(self, done: int, status: str = "") -> None:
        """Ignore the report."""


SILENT = Silent()


class Bars:
    """Progress bars on standard error, with rate and remaining time; plain lines in a file."""

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator[Step]:
        """Show a bar, or print a line every ``PLAIN_EVERY`` seconds if there is no terminal."""
        from rich import progress

        console = make_error_console()
        name = to_one_line(name)
        columns = [
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}", markup=False),
            progress.TextColumn("{task.fields[rate]}", markup=False),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[status]}", markup=False),
        ]
        pace = _Pace(max(1, total), unit, done)
        with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bars:
            task = bars.add_task(name, total=pace.total, unit=pace.unit, rate="", status="")
            bars.update(task, completed=pace.done)

            class Bar:
                last_line = pace.start

                def advance_to(self, done: int, status: str = "") -> None:
                    pace.done, status = done / pace.scale, to_one_line(status)
                    bars.update(task, completed=pace.done, rate=pace.format_rate(), status=status)
                    if not console.is_terminal and monotonic() - self.last_line >= PLAIN_EVERY:
                        self.last_line = monotonic()
                        line = f"{name}: {pace.describe()}" + (f", {status}" if status else "")
                        print_text(line, file=console.file)

            yield Bar()
        if not console.is_terminal:
            seconds = monotonic() - pace.start
            finished = format_count(pace.done - pace.first, pace.unit)
            print_text(f"{name}: {finished} in {seconds:.1f} s", file=console.file)


class _Pace:
    """Rate and remaining time of a piece of work; bytes are counted in megabytes."""

    def __init__(self, total: int, unit: str, done: int) -> None:
        self.scale, self.unit = (1_000_000, "MB") if unit == "B" else (1, unit)
        self.total, self.first, self.start = total / self.scale, done / self.scale, monotonic()
        self.done = self.first

    def _compute_rate(self) -> float:
        """Return the number of units per second since the start."""
        return (self.done - self.first) / max(1e-9, monotonic() - self.start)

    def format_rate(self) -> str:
        """Format the rate in units per second, or a rate below one in seconds per unit."""
        speed = self._compute_rate()
        if 0 < speed < 1:
            return f"{1 / speed:.1f} s/{self.unit.removesuffix('s')}"
        return f"{speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s"

    def describe(self) -> str:
        """Describe the progress, the rate and the remaining time (h:mm:ss) in one line."""
        speed, time_left = self._compute_rate(), "-:--:--"
        if speed > 0:
            minutes, seconds = divmod(round((self.total - self.done) / speed), 60)
            time_left = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        return f"{self.done:,.0f}/{self.total:,.0f} {self.unit}, {self.format_rate()}, {time_left} left"
