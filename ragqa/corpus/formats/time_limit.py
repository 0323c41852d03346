"""Limit on the time that a library takes over a file."""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ragqa.corpus.formats.limits import LimitError

_Result = TypeVar("_Result")


class _TimeOver(BaseException):
    """Signal to the thread; no ``except Exception`` of the library stops it."""


def call_with_time_limit(function: Callable[[], _Result], seconds: float) -> _Result:
    """Return the result of a function that is written in Python.

    A watching thread ends the function. This costs 0.1 ms; a process of its own would cost 0.3 s and the memory twice.

    Args:
        function: function without arguments.
        seconds: CPU time that it may take, so that a busy machine makes no difference.

    Raises:
        LimitError: it takes longer.
    """
    thread = threading.get_ident()
    read_clock = _make_clock(thread)
    end = read_clock() + seconds
    finished, lock = threading.Event(), threading.Lock()

    def watch() -> None:
        while not finished.wait(max(end - read_clock(), 0.01)):
            with lock:
                if read_clock() >= end and not finished.is_set():
                    _raise_in_thread(thread, _TimeOver)
                    return

    threading.Thread(target=watch, daemon=True).start()
    try:
        try:
            return function()
        finally:
            finished.set()
            with lock:  # from here on the watching thread does nothing
                pass
            _raise_in_thread(thread, None)  # takes back what it did a moment ago
    except _TimeOver:
        raise LimitError(f"it takes more than {seconds:.0f} seconds") from None


def _make_clock(thread: int) -> Callable[[], float]:
    if not hasattr(time, "pthread_getcpuclockid"):  # outside of Linux
        return time.monotonic
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)


def _raise_in_thread(thread: int, error: type[BaseException] | None) -> None:
    argument = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)
