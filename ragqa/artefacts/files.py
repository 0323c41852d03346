"""Write files and folders so that they appear whole or not at all; make hard links."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa.artefacts.sync import sync_directory, sync_file, sync_tree


@contextmanager
def replace_file(target: Path, *, is_durable: bool = True) -> Iterator[Path]:
    """Yield the path of a temporary file, which becomes ``target`` at the end of the block.

    After an error in the block, ``target`` is unchanged.

    Args:
        target: file to replace; it need not exist.
        is_durable: True to wait until the file is on the disk; False if a power failure may destroy the file.
    """
    temporary = target.with_name(f".{target.name}.writing")
    try:
        yield temporary
        if is_durable:
            sync_file(temporary)
        temporary.replace(target)
        if is_durable:
            sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def create_directory(target: Path) -> Iterator[Path]:
    """Yield an empty folder, which becomes ``target`` if the block ends without an error.

    A new ``target`` appears whole or not at all. An existing ``target`` is deleted just before.
    """
    temporary = target.with_name(f".{target.name}.writing")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed run may have left it
    temporary.mkdir(parents=True)
    yield temporary
    sync_tree(temporary)
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
    sync_directory(target.parent)


def write_text_whole(file: Path, text: str, *, is_durable: bool = True) -> None:
    """Write a UTF-8 text file, which appears whole or not at all.

    Args:
        file: file to write or replace.
        text: content of the file.
        is_durable: as for ``replace_file``.
    """
    with replace_file(file, is_durable=is_durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def link_file(source: Path, target: Path) -> None:
    """Hard-link ``source`` to the new path ``target``, or copy it if that is impossible."""
    try:
        os.link(source, target)
    except OSError:
        with replace_file(target) as temporary:
            shutil.copy2(source, temporary)
