"""What the first of several processes tells of its work, told again where they were started."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from ragqa.progress import Progress, Step

_PAUSE = 0.2
"""Seconds between two messages of how far a piece of work is."""


class Teller:
    """A ``Progress`` that sends what it is told, as tuples that ``repeat`` understands."""

    def __init__(self, send: Callable[[tuple[Any, ...]], object]) -> None:
        self._send, self._done, self._sent = send, 0, float("-inf")

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator[Step]:
        """See ``Progress``."""
        self._done = done
        self._send(("begin", name, total, unit, done))
        try:
            yield self
        finally:
            self._send(("at", self._done))
            self._send(("end",))

    def advance_to(self, done: int) -> None:
        """So many units are done; sent a few times a second, and at the end of the step."""
        self._done, now = done, monotonic()
        if now - self._sent >= _PAUSE:
            self._sent = now
            self._send(("at", done))

    def notify(self, line: str) -> None:
        """A line for whoever reads along."""
        self._send(("notify", line))


def repeat(messages: Iterable[tuple[Any, ...]], progress: Progress, notify: Callable[[str], None]) -> None:
    """Tell what a ``Teller`` has sent, until there are no more messages; the sender may have died in a step."""
    steps: list[tuple[ExitStack, Step]] = []
    for kind, *rest in messages:
        if kind == "begin":
            opened = ExitStack()
            steps.append((opened, opened.enter_context(progress.step(*rest))))
        elif kind == "at":
            steps[-1][1].advance_to(*rest)
        elif kind == "end":
            steps.pop()[0].close()
        else:
            notify(*rest)
    for opened, _ in reversed(steps):
        opened.close()
