"""Connection to a Ray cluster, without Ray's own output on the terminal."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from index import ray_access
from ragqa.errors import BadInput, MissingExtra, summarize_error


def connect(purpose: str, insecure: bool = False) -> None:
    """Connect to the cluster of ``RAY_ADDRESS``, or start one on this machine for this process.

    A process that is already connected keeps its cluster. Ray's log messages go only to its log files.

    Args:
        purpose: task that needs Ray, for the error message.
        insecure: True to accept also a cluster that asks for no token.

    Raises:
        MissingExtra: Ray is not installed.
        BadInput: the cluster at ``RAY_ADDRESS`` does not answer, is open to everybody or refuses the token; or a local
            cluster cannot be started, or would be open to other users.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    address = ray_access.get_address()
    try:
        if _is_connected():
            pass  # the caller has chosen the cluster
        elif address:
            ray_access.check_cluster(address, insecure)
        else:
            ray_access.close_local_cluster(insecure)
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra(purpose, "ray") from error
    if not ray.is_initialized():
        logging.getLogger("ray").setLevel(logging.ERROR)
        # By default, Ray would join any cluster that runs on this machine.
        local: dict[str, Any] = {} if address else {"address": "local", "include_dashboard": False}
        try:
            ray.init(log_to_driver=False, configure_logging=False, **local)
        except (ConnectionError, RuntimeError, ray.exceptions.AuthenticationError) as error:
            raise BadInput(f"no Ray cluster at {address or 'this machine'}: {summarize_error(error)}") from error
        if local and not ray.util.get_node_ip_address().startswith("127."):
            ray.shutdown()
            raise BadInput("Ray was imported before ragqa could keep it off the network: import it afterwards")
    # Ray Data has its own handlers for the terminal, which ignore the level of the logger "ray".
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL)
    ray.data.DataContext.get_current().enable_progress_bars = False


@contextmanager
def silence_ray() -> Iterator[None]:
    """Suppress Ray's terminal output in the block, and disconnect from Ray afterwards.

    A connection that was open before the block stays open. Ray's C++ code writes to standard error, and its Python code
    reports lost actors on standard output; Ray's log files contain both. The block itself can still write to
    ``sys.stderr``, but not to ``sys.stdout``.
    """
    was_connected = _is_connected()
    out, error, terminal_fd = sys.stdout, sys.stderr, os.dup(2)
    error.flush()
    with open(os.devnull, "w") as devnull, os.fdopen(terminal_fd, "w", buffering=1) as terminal:
        sys.stdout, sys.stderr = devnull, terminal
        os.dup2(devnull.fileno(), 2)  # C++ code writes to the file descriptor and ignores sys.stderr
        try:
            yield
        finally:
            if _is_connected() and not was_connected:
                sys.modules["ray"].shutdown()
            sys.stdout, sys.stderr = out, error
            os.dup2(terminal_fd, 2)


def _is_connected() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()
