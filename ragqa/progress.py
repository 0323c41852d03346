"""Progress of long work: reported by the library, shown by the command line."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import Protocol

Notify = Callable[[str], None]
"""Receiver of lines for the user."""

PLAIN_EVERY = 30.0
"""Seconds between two lines of progress where standard error is no terminal."""


def ignore_line(line: str) -> None:
    """Ignore a line for the user: the default of ``Notify`` arguments."""


class Step(Protocol):
    """Running piece of work."""

    def advance_to(self, done: int, status: str = "") -> None:
        """Report that ``done`` of all units are finished, and a ``status`` to show."""


class Progress(Protocol):
    """Receiver of progress reports."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a context manager around a piece of work.

        Args:
            name: name of the work.
            total: number of units.
            unit: name of the units, for example passages; B means bytes.
            done: number of units that an earlier run has finished.
        """


class Silent:
    """Progress that shows nothing: the default of the library."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a step that shows nothing."""
        return nullcontext(self)

    def advance_to(self, done: int, status: str = "") -> None:
        """Show nothing."""


SILENT = Silent()


class Bars:
    """Bars with rate and time left on standard error; plain lines if that is no terminal."""

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator[Step]:
        """Show a bar; without a terminal, a line every ``PLAIN_EVERY`` seconds and one at the end."""
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        columns = [
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}"),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[status]}"),
        ]
        pace = _Pace(max(1, total), unit, done)
        with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bars:
            task = bars.add_task(name, total=pace.total, unit=pace.unit, rate="", status="")
            bars.update(task, completed=pace.done)

            class Bar:
                last_line = pace.start

                def advance_to(self, done: int, status: str = "") -> None:
                    pace.done = done / pace.scale
                    bars.update(task, completed=pace.done, rate=pace.format_rate(), status=status)
                    if not console.is_terminal and monotonic() - self.last_line >= PLAIN_EVERY:
                        self.last_line = monotonic()
                        line = f"{name}: {pace.describe()}" + (f", {status}" if status else "")
                        print(line, file=console.file, flush=True)

            yield Bar()
        if not console.is_terminal:
            seconds = monotonic() - pace.start
            print(f"{name}: {pace.done - pace.first:,.0f} {pace.unit} in {seconds:.1f} s", file=console.file)


class _Pace:
    """Speed of a piece of work, with bytes counted in megabytes."""

    def __init__(self, total: int, unit: str, done: int) -> None:
        self.scale, self.unit = (1_000_000, "MB") if unit == "B" else (1, unit)
        self.total, self.first, self.start = total / self.scale, done / self.scale, monotonic()
        self.done = self.first

    def _per_second(self) -> float:
        return (self.done - self.first) / max(1e-9, monotonic() - self.start)

    def format_rate(self) -> str:
        """Format the speed; below one unit per second, as seconds per unit."""
        speed = self._per_second()
        if 0 < speed < 1:
            return f"{1 / speed:.1f} s/{self.unit.removesuffix('s')}"
        return f"{speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s"

    def describe(self) -> str:
        """Describe the progress, the speed and the remaining time (h:mm:ss) in one line."""
        speed, time_left = self._per_second(), "-:--:--"
        if speed > 0:
            minutes, seconds = divmod(round((self.total - self.done) / speed), 60)
            time_left = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        return f"{self.done:,.0f}/{self.total:,.0f} {self.unit}, {self.format_rate()}, {time_left} left"
