"""Main module of the process that extracts the content of files; see ``process.py``."""

import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from typing import Any, BinaryIO

MEMORY_BYTES = 2 << 30
"""Maximum address space of the process in bytes; a spreadsheet of a million rows needs less than half of it."""


def main() -> None:
    """Answer requests on standard input until it ends, within ``MEMORY_BYTES`` of memory.

    A request that takes too much CPU time ends the process.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the output of libraries must not be among the answers
    for limit, size in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        _, most = resource.getrlimit(limit)
        size = size if most == resource.RLIM_INFINITY else min(size, most)
        resource.setrlimit(limit, (size, most))
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        data = _read_exactly(sys.stdin.buffer, request["size"])
        # The limit counts CPU time, which other work of the machine does not change. Its signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        answer = json.dumps(_extract(data, request["tesseract"]), ensure_ascii=False).encode(errors="surrogatepass")
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(b"%d\n" % len(answer))
        answers.write(answer)
        answers.flush()


def _extract(data: bytes, tesseract: str) -> dict[str, Any]:
    from ragqa.corpus.formats.office.content import UnreadableFile
    from ragqa.corpus.formats.office.kinds import extract_content
    from ragqa.corpus.formats.office.ocr import TextRecognizer

    try:
        recognizer = TextRecognizer(tesseract) if tesseract else None
        return {"content": asdict(extract_content(data, recognizer))}
    except UnreadableFile as error:
        return {"problem": str(error)}
    except MemoryError:
        return {"problem": f"it needs more than {MEMORY_BYTES >> 30} GiB of memory"}
    except Exception as error:  # on broken files, libraries raise all kinds of errors
        return {"problem": f"damaged ({type(error).__name__})"}
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # raised by libraries in Rust; not an Exception
            return {"problem": "damaged"}
        raise


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        sys.exit()
    return data


if __name__ == "__main__":
    main()
