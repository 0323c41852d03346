"""Recognize the text of images with Tesseract, within limits of size and time."""

import os
import resource
import shutil
import subprocess
from time import monotonic

from ragqa.corpus.formats.office.content import UnreadableFile
from ragqa.errors import BadInput

MAX_PIXELS = 100_000_000
"""Maximum number of pixels of an image; an A3 page at 600 dots per inch has 70 million."""
PAGE_SECONDS = 60.0
"""Maximum time for a page, in seconds; most pages take 1 to 5."""
FILE_SECONDS = 1800.0
"""Maximum time for all pages of a file, in seconds."""
_MAX_ERROR_CHARACTERS = 200


def find_tesseract() -> str:
    """Return the path of the command ``tesseract``.

    Raises:
        BadInput: the command is not installed.
    """
    if command := shutil.which("tesseract"):
        return os.path.abspath(command)
    raise BadInput(
        "--ocr needs the command tesseract, which is not on PATH: install Tesseract with its English data "
        "(Debian and Ubuntu: apt install tesseract-ocr; macOS: brew install tesseract), or leave out --ocr"
    )


class TextRecognizer:
    """Recognition of the text in the images of one file, within a time limit.

    The time for the file (``FILE_SECONDS``) begins when this object is created.

    Args:
        command: path of the command ``tesseract``.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._end = monotonic() + FILE_SECONDS

    def recognize(self, image: bytes, *, pages: int = 1, dpi: int = 0) -> str:
        r"""Return the text in an image; "\f" ends a page, and an empty line ends a paragraph.

        Args:
            image: bytes of an image file.
            pages: number of pages in the image file.
            dpi: dots per inch; 0 if the image file states them, or if they are unknown.

        Raises:
            UnreadableFile: Tesseract does not start, fails, or takes too much time.
        """
        seconds = min(PAGE_SECONDS * pages, self._end - monotonic())
        if seconds <= 0:
            raise UnreadableFile(f"Tesseract needs more than {FILE_SECONDS:.0f} seconds for the file")

        def limit_time() -> None:  # so that the command also ends if this process is killed
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))

        try:
            result = subprocess.run(
                [self._command, "stdin", "stdout", *(("--dpi", str(dpi)) if dpi else ())],
                input=image,
                capture_output=True,
                timeout=seconds,
                env={**os.environ, "OMP_THREAD_LIMIT": "1"},
                preexec_fn=limit_time,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnreadableFile(f"Tesseract takes more than {seconds:.0f} seconds") from error
        except OSError as error:
            raise UnreadableFile(f"Tesseract does not start: {error.strerror}") from error
        if result.returncode:
            lines = result.stderr.decode(errors="replace").split("\n")
            problem = next(filter(str.strip, reversed(lines)), f"exit code {result.returncode}")
            raise UnreadableFile(f"Tesseract fails: {problem.strip()[:_MAX_ERROR_CHARACTERS]}")
        return result.stdout.decode(errors="replace")
