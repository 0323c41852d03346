"""Assertions about error messages."""

from collections.abc import Callable

import pytest


def assert_one_line(call: Callable[[], object], kind: type[Exception], *parts: str) -> None:
    """Assert that ``call`` raises ``kind`` with a message of one line that contains all ``parts``."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in parts), message
