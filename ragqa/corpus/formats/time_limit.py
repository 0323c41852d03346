"""Time limit for the work of a library on a file."""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ragqa.corpus.formats.limits import LimitError

_REPEAT_SECONDS = 0.5
"""Pause after which the signal is repeated: Python drops one that comes within a callback of the garbage collector."""
_Result = TypeVar("_Result")


class _TimeOver(BaseException):
    """Signal that ends the function; a BaseException, so that the library does not catch it."""


def call_with_time_limit(function: Callable[[], _Result], seconds: float) -> _Result:
    """Call a function that is written in Python; raise LimitError if it takes too long.

    Another thread ends the function. This costs 0.1 ms; another process would cost 0.3 s and twice the memory.

    Args:
        function: function without arguments.
        seconds: limit of CPU time, which does not depend on other work of the machine.

    Returns:
        The result of the function.

    Raises:
        LimitError: the function takes more than ``seconds``.
    """
    thread = threading.get_ident()
    read_clock = _make_clock(thread)
    end = read_clock() + seconds
    finished, lock = threading.Event(), threading.Lock()

    def watch() -> None:
        wait = seconds
        while not finished.wait(wait):
            with lock:
                wait = max(end - read_clock(), 0.01)
                if read_clock() >= end and not finished.is_set():
                    _raise_in_thread(thread, _TimeOver)
                    wait = _REPEAT_SECONDS

    def stop() -> None:
        finished.set()
        with lock:  # after this, the watching thread raises no error
            pass
        _raise_in_thread(thread, None)  # cancels an error that the watching thread has just raised

    threading.Thread(target=watch, daemon=True).start()
    try:
        try:
            return function()
        finally:
            stop()
    except _TimeOver:
        stop()
        raise LimitError(f"it takes more than {seconds:.0f} seconds") from None


def _make_clock(thread: int) -> Callable[[], float]:
    """Return a function that reads the CPU time of a thread in seconds."""
    if not hasattr(time, "pthread_getcpuclockid"):  # outside of Linux
        return time.monotonic
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)


def _raise_in_thread(thread: int, error: type[BaseException] | None) -> None:
    """Raise an error in a thread; with None, cancel an error that was not raised yet."""
    argument = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)
