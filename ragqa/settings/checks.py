"""Check in ``__post_init__`` that the values of a config are in range.

    @report_together()
    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "batch", "k")
        require(self, "beam", self.beam >= self.read, "read or more")

Each function ``require…`` raises BadInput for values out of range, as ``require`` does.
"""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ragqa.errors import BadInput

Broken = list[tuple[str, Any, str]]
"""Name, value and range of each setting that is out of range."""
_broken: ContextVar[Broken | None] = ContextVar("broken", default=None)
"""Settings that ``report_together`` reports at its end; None outside of its block."""


@contextmanager
def report_together() -> Iterator[None]:
    """Report all values that a block or function finds out of range in one error at its end.

    A failed check does not stop the block. The outermost of nested blocks reports, so the error also names the values
    of nested configs.

    Raises:
        BadInput: values are out of range. If the block itself raises BadInput, its message comes last.
    """
    if _broken.get() is not None:
        yield
        return
    broken: Broken = []
    token = _broken.set(broken)
    try:
        yield
    except BadInput as error:
        if broken:
            raise BadInput(f"{_describe(broken)}; {error}") from error
        raise
    finally:
        _broken.reset(token)
    if broken:
        raise BadInput(_describe(broken))


def _describe(broken: Broken) -> str:
    values = ", ".join(f"{name} = {value}" for name, value, _ in broken)
    return f"{values}: out of range ({'; '.join(f'{name}: {words}' for name, _, words in broken)})"


def require(config: Any, name: str, holds: bool, words: str) -> bool:
    """Require that a setting is in range, and return ``holds``.

    Args:
        config: config with the setting.
        name: name of the setting.
        holds: True if the value of the setting is in range.
        words: description of the range.

    Raises:
        BadInput: the value is out of range. In a block of ``report_together``, this function returns False instead,
            and the error is raised at the end of the block.
    """
    with report_together():
        if not holds and (broken := _broken.get()) is not None:
            broken.append((name, getattr(config, name), words))
    return holds


def require_positive(config: Any, *names: str) -> None:
    """Require finite numbers above 0, or None, in the settings ``names``."""
    require_all(config, names, lambda value: value is None or 0 < value < math.inf, "above 0")


def require_non_negative(config: Any, *names: str) -> None:
    """Require numbers of 0 or more, or None, in the settings ``names``."""
    require_all(config, names, lambda value: value is None or value >= 0, "0 or more")


def require_share(config: Any, *names: str) -> None:
    """Require numbers from 0 to 1 in the settings ``names``."""
    require_all(config, names, lambda value: 0 <= value <= 1, "from 0 to 1")


def require_share_below_1(config: Any, *names: str) -> None:
    """Require numbers of 0 or more and below 1 in the settings ``names``."""
    require_all(config, names, lambda value: 0 <= value < 1, "0 or more and below 1")


def require_proper_share(config: Any, *names: str) -> None:
    """Require numbers above 0 and below 1, or None, in the settings ``names``."""
    require_all(config, names, lambda value: value is None or 0 < value < 1, "between 0 and 1")


def require_choice(config: Any, name: str, choices: Collection[str]) -> bool:
    """Require one of ``choices`` in the setting ``name``; return True if it is one of them."""
    return require(config, name, getattr(config, name) in choices, f"one of {', '.join(choices)}")


def require_all(config: Any, names: Collection[str], is_in_range: Callable[[Any], bool], words: str) -> None:
    """Require that all named settings are in a range.

    Args:
        config: config with the settings.
        names: names of the settings.
        is_in_range: function that returns True for a value in range.
        words: description of the range.

    Raises:
        BadInput: as for ``require``.
    """
    for name in names:
        require(config, name, is_in_range(getattr(config, name)), words)
