"""Connection to a Ray cluster, without Ray's own output on the terminal."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragqa.errors import BadInput, MissingExtra, summarize_error


def connect(purpose: str) -> None:
    """Connect to the cluster of ``RAY_ADDRESS``, or start one on this machine for this process.

    Without an address Ray itself would join any cluster that happens to run here. It logs only to its files.

    Args:
        purpose: task that needs Ray, for the error message.

    Raises:
        MissingExtra: Ray is not installed.
        BadInput: there is no cluster at that address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra(purpose, "ray") from error
    if not ray.is_initialized():
        logging.getLogger("ray").setLevel(logging.ERROR)
        local: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "include_dashboard": False}
        try:
            ray.init(log_to_driver=False, configure_logging=False, **local)
        except (ConnectionError, RuntimeError) as error:
            address = os.environ.get("RAY_ADDRESS", "this machine")
            raise BadInput(f"no Ray cluster at {address}: {summarize_error(error)}") from error
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL)
    ray.data.DataContext.get_current().enable_progress_bars = False


@contextmanager
def silence_ray() -> Iterator[None]:
    """Suppress Ray's terminal output in the block, and leave its cluster at the end.

    Ray's C++ side writes to standard error, and its Python side reports lost actors on standard output; both are also
    in its log files. Output of the block's own Python code to ``sys.stderr`` still appears.
    """
    was_connected = _is_connected()
    out, error, terminal_fd = sys.stdout, sys.stderr, os.dup(2)
    error.flush()
    with open(os.devnull, "w") as devnull, os.fdopen(terminal_fd, "w", buffering=1) as terminal:
        sys.stdout, sys.stderr = devnull, terminal
        os.dup2(devnull.fileno(), 2)
        try:
            yield
        finally:
            if _is_connected() and not was_connected:
                sys.modules["ray"].shutdown()
            sys.stdout, sys.stderr = out, error
            os.dup2(terminal_fd, 2)


def _is_connected() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()
