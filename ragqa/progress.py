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
    """A running piece of work."""

    def advance_to(self, done: int, status: str = "") -> None:
        """Report that ``done`` units of the announced total are finished; ``status`` is shown with it."""
        ...


class Progress(Protocol):
    """Receiver of progress reports."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a context manager around a piece of work.

        Args:
            name: of the work.
            total: number of units.
            unit: what is counted; B stands for bytes.
            done: units that an earlier run has finished.
        """
        ...


class Silent:
    """Progress that shows nothing: the default of the library."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Return a step that shows nothing."""
        return nullcontext(self)

    def advance_to(self, done: int, status: str = "") -> None:
        """Show nothing."""


class Bars:
    """Bars with rate and time left on standard error, by Rich; plain lines if that is no terminal."""

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator[Step]:
        """Show a bar; without a terminal, a line every ``PLAIN_EVERY`` seconds and one at the end."""
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        scale, unit = (1_000_000, "MB") if unit == "B" else (1, unit)
        with progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}"),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        ) as bars:
            task = bars.add_task(name, total=max(1, total) / scale, unit=unit, rate="", status="")
            bars.update(task, completed=done / scale)
            pace = _Pace(done / scale, max(1, total) / scale, unit)

            class Bar:
                done = 0.0
                last_line = pace.start

                def advance_to(self, done: int, status: str = "") -> None:
                    self.done = done / scale
                    bars.update(task, completed=self.done, rate=pace.rate(self.done), status=status)
                    if not console.is_terminal and monotonic() - self.last_line >= PLAIN_EVERY:
                        self.last_line = monotonic()
                        line = f"{name}: {pace.describe(self.done)}" + (f", {status}" if status else "")
                        print(line, file=console.file, flush=True)

            bar = Bar()
            bar.done = done / scale
            yield bar
        if not console.is_terminal:
            seconds = monotonic() - pace.start
            print(f"{name}: {bar.done - pace.first:,.0f} {unit} in {seconds:.1f} s", file=console.file)


class _Pace:
    """Speed of a piece of work."""

    def __init__(self, first: float, total: float, unit: str) -> None:
        self.first, self.total, self.unit, self.start = first, total, unit, monotonic()

    def per_second(self, done: float) -> float:
        """Return units per second since the work was started or resumed."""
        return (done - self.first) / max(1e-9, monotonic() - self.start)

    def rate(self, done: float) -> str:
        """Format the speed; below one unit per second, as seconds per unit."""
        speed = self.per_second(done)
        if 0 < speed < 1:
            return f"{1 / speed:.1f} s/{self.unit.removesuffix('s')}"
        return f"{speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s"

    def time_left(self, done: float) -> str:
        """Format the remaining time at this speed as h:mm:ss."""
        speed = self.per_second(done)
        if speed <= 0:
            return "-:--:--"
        minutes, seconds = divmod(round((self.total - done) / speed), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"

    def describe(self, done: float) -> str:
        """Describe the progress, the speed and the remaining time in one line."""
        return f"{done:,.0f}/{self.total:,.0f} {self.unit}, {self.rate(done)}, {self.time_left(done)} left"


SILENT = Silent()
