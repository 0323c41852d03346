"""Start and query the process that extracts the content of files.

A request is a line of JSON with the size of a file, a time limit and the command for OCR, followed by the bytes of the
file. An answer is a line with a size, followed by that number of bytes of JSON: the content, or a problem. Nothing is
pickled, so that an answer cannot run code.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import Any, cast

import ragqa
from ragqa.corpus.formats.limits import LimitError
from ragqa.corpus.formats.office.content import Content, UnreadableFile
from ragqa.corpus.formats.office.ocr import FILE_SECONDS

FREE_SECONDS = 30.0
"""Maximum CPU time for an empty file, in seconds; most files take a tenth of a second."""
SECONDS_PER_MEGABYTE = 10.0
"""Additional CPU time for each megabyte of a file, in seconds; a megabyte of a spreadsheet takes 0.3."""
WAIT_SECONDS = 1.0
"""Time between two calls of ``on_wait``, in seconds."""
_WAIT_FACTOR = 10
"""Maximum wall-clock time for a file, as a multiple of its limit of CPU time, because the machine can be busy."""


class Extractor:
    """Owner of a process that extracts the content of files.

    The process starts with the first file, and starts again with the next file after a crash.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def extract(
        self, data: bytes, tesseract: str = "", on_wait: Callable[[float], object] = lambda seconds: None
    ) -> Content:
        """Return the content of an Office file, PDF, e-book or image.

        Args:
            data: bytes of the file.
            tesseract: path of the command that reads images and scanned pages; empty to read neither.
            on_wait: function called every ``WAIT_SECONDS`` with the seconds since the start.

        Raises:
            UnreadableFile: the file is damaged, encrypted, too large or of another kind, or the process crashed.
            LimitError: the file takes too much time.
        """
        seconds = FREE_SECONDS + SECONDS_PER_MEGABYTE * len(data) / 1e6
        with self._lock:
            process = self._start()
            time_limit = _WAIT_FACTOR * seconds + (FILE_SECONDS if tesseract else 0)
            timer = threading.Timer(time_limit, process.kill)
            timer.start()
            try:
                answer = _ask(process, data, on_wait, seconds=seconds, tesseract=tesseract)
            except BaseException:  # otherwise the answer to this file would be read as the answer to the next file
                process.kill()
                self._end()
                raise
            finally:
                timer.cancel()
            if answer is None:
                code = self._end()
                if -code in (signal.SIGPROF, signal.SIGKILL):
                    raise LimitError(f"it takes more than {seconds:.0f} seconds")
                raise UnreadableFile(f"its parser crashed ({signal.Signals(-code).name if code < 0 else code})")
        if "problem" in answer:
            raise UnreadableFile(answer["problem"])
        return Content.from_dict(answer["content"])

    def close(self) -> None:
        """End the extracting process; a forked child leaves its parent's process running."""
        with self._lock:
            if self._owner == os.getpid():
                self._end()

    def _end(self) -> int:
        """Close the input of the process, wait until it ends, and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(BrokenPipeError), process:  # closes the pipes and waits
            pass
        return process.returncode

    def _start(self) -> subprocess.Popen[bytes]:
        """Return the running process; start one if there is none, or after a fork."""
        if self._process and self._owner == os.getpid() and self._process.poll() is not None:
            self._end()
        if self._process is None or self._owner != os.getpid():
            # -P: Python must not import modules from the working directory, which can hold files of strangers.
            paths = [str(Path(ragqa.__file__).parents[1]), *filter(os.path.isabs, sys.path)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ragqa.corpus.formats.office.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
            self._owner = os.getpid()
        return self._process


def _ask(
    process: subprocess.Popen[bytes], data: bytes, on_wait: Callable[[float], object], **options: str | float
) -> dict[str, Any] | None:
    """Send a file to the process and return its answer; None if the process ended."""
    assert process.stdin and process.stdout
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps({"size": len(data), **options}).encode() + b"\n" + data)
        process.stdin.flush()
    start = monotonic()
    with DefaultSelector() as selector:
        selector.register(process.stdout, EVENT_READ)
        while not selector.select(WAIT_SECONDS):
            on_wait(monotonic() - start)
    size = process.stdout.readline()
    answer = process.stdout.read(int(size)) if size.endswith(b"\n") else b""
    if not size or len(answer) < int(size):
        return None
    return cast(dict[str, Any], json.loads(answer.decode(errors="surrogatepass")))


EXTRACTOR = Extractor()
"""Extractor that all parsers of this process share."""
atexit.register(EXTRACTOR.close)
