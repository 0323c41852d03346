"""Write files and folders so that they appear whole or not at all; make hard links."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_file(target: Path) -> Iterator[Path]:
    """Yield a temporary file name, which becomes ``target`` if the block ends without an error."""
    temporary = target.with_name(f".{target.name}.writing")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def create_directory(target: Path) -> Iterator[Path]:
    """Yield an empty folder, which becomes ``target`` if the block ends without an error."""
    temporary = target.with_name(f".{target.name}.writing")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed run may have left it
    temporary.mkdir(parents=True)
    yield temporary
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)


def write_text_whole(file: Path, text: str) -> None:
    """Write a text file in UTF-8, so that it appears whole or not at all."""
    with replace_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def link_file(source: Path, target: Path) -> None:
    """Hard-link a file, or copy the file if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        with replace_file(target) as temporary:
            shutil.copy2(source, temporary)
