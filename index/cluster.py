"""The Ray cluster that a job runs on: found or started, and quiet."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragqa.errors import BadInput, MissingExtra


def connect(what: str) -> None:
    """Connect to the cluster of ``RAY_ADDRESS``, else start one on this machine for this process.

    Without an address Ray itself would join whatever it finds running here. Its own lines stay in its log files;
    ``what`` wants to be done, for the error.

    Raises:
        MissingExtra: Ray is not installed.
        BadInput: there is no cluster at that address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra(what, "ray") from error
    if not ray.is_initialized():
        logging.getLogger("ray").setLevel(logging.ERROR)
        own: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "include_dashboard": False}
        try:
            ray.init(log_to_driver=False, configure_logging=False, **own)
        except (ConnectionError, RuntimeError) as error:
            where = os.environ.get("RAY_ADDRESS", "this machine")
            raise BadInput(f"no Ray cluster at {where}: {str(error).strip().splitlines()[0]}") from error
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL)
    ray.data.DataContext.get_current().enable_progress_bars = False


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what Ray writes off the terminal of a job; it is in Ray's log files, too. Leaves the cluster at the end.

    Its C++ side writes to standard error, its Python side tells of lost actors on standard output. What Python
    writes to ``sys.stderr`` in the block still comes out.
    """
    connected = _connected()
    out, error, real = sys.stdout, sys.stderr, os.dup(2)
    error.flush()
    with open(os.devnull, "w") as nowhere, os.fdopen(real, "w", buffering=1) as terminal:
        sys.stdout, sys.stderr = nowhere, terminal
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            if _connected() and not connected:
                sys.modules["ray"].shutdown()
            sys.stdout, sys.stderr = out, error
            os.dup2(real, 2)


def _connected() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


def capacity(resource: str) -> int:
    """How many ``GPU`` or ``CPU`` the cluster has.

    Raises:
        BadInput: none.
    """
    import ray

    count = int(ray.cluster_resources().get(resource, 0))
    if not count:
        raise BadInput(f"the Ray cluster has no {resource}" + (": leave --gpus out" if resource == "GPU" else ""))
    return count
