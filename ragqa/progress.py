"""Progress of long work: the library reports it, the command line draws it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol


class Step(Protocol):
    """A piece of work in progress."""

    def advance_to(self, done: int) -> None:
        """Report that ``done`` units of the announced total are done."""
        ...


class Progress(Protocol):
    """Shows pieces of work while they run."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Begin a piece of work of ``total`` units, of which an earlier run has done ``done``."""
        ...


class Silent:
    """Shows nothing: the default of the library."""

    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> AbstractContextManager[Step]:
        """Begin a piece of work that is not shown."""
        return nullcontext(self)

    def advance_to(self, done: int) -> None:
        """Do nothing."""


class Bars:
    """Shows bars with rate and time left on standard error, by Rich."""

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator[Step]:
        """Show a bar; without a terminal, print one line when the work is done."""
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
            console=console,
            disable=not console.is_terminal,
        ) as bars:
            task = bars.add_task(name, total=max(1, total) / scale, unit=unit, rate="")
            bars.update(task, completed=done / scale)
            began, before = bars.get_time(), done

            class Bar:
                done = before

                def advance_to(self, done: int) -> None:
                    self.done = done
                    rate = (done - before) / scale / max(1e-9, bars.get_time() - began)
                    bars.update(task, completed=done / scale, rate=f"{rate:,.0f} {unit}/s")

            bar = Bar()
            yield bar
            seconds = bars.get_time() - began
        if not console.is_terminal:
            print(f"{name}: {(bar.done - before) / scale:,.0f} {unit} in {seconds:.1f} s", file=console.file)


SILENT = Silent()
