"""Watch folders, and sync an index after every change of their files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from ragqa import artefacts
from ragqa.corpus import hub
from ragqa.corpus.walk import is_ignored
from ragqa.errors import BadInput, RagqaError
from ragqa.indexing.sync import sync_index
from ragqa.indexing.update import UpdateReport

_CHECK_MS = 1000
"""Milliseconds without a change after which ``watch_folders`` checks whether folders were deleted or made again."""


def watch_folders(
    index: str | Path,
    folders: Sequence[str | Path] = (),
    *,
    on_report: Callable[[UpdateReport], object],
    on_error: Callable[[str], object],
    stop: Event | None = None,
    **options: Any,
) -> None:
    """Sync an index now and after every change of its folders, until ``stop`` is set.

    An error of a sync does not end the watch: the sync is repeated every second until it succeeds.

    Args:
        index: directory of the index.
        folders: folders to watch; by default the sources of the index.
        on_report: function called with the report of each sync that added, replaced or deleted documents.
        on_error: function called with the message of an error; it is not called for the same message twice in a row.
        stop: event that ends the watch; None to watch forever.
        options: keyword arguments of ``sync_index``.

    Raises:
        ArtefactError, DamagedArtefact, Mismatch: there is no index, or its manifest cannot be read.
        BadInput: the system cannot watch the folders, for example because they have too many subfolders.
    """
    index = Path(index).absolute()
    sources = artefacts.peek_manifest(index).config["sources"]
    roots = [hub.make_absolute(path) for path in folders or sources if not hub.is_hub_name(path)]
    stop, problem = stop or Event(), ""
    while not stop.is_set():
        needs_sync, watched = True, [*map(_identify, roots)]
        for has_changed in _iter_changes(roots, stop):
            if has_changed or needs_sync:
                try:
                    report = sync_index(index, roots, **options)
                    needs_sync, problem = False, ""
                    if report.added or report.replaced or report.deleted:
                        on_report(report)
                except (RagqaError, OSError) as error:
                    needs_sync = True
                    if str(error) != problem:
                        problem = str(error)
                        on_error(problem)
            if [*map(_identify, roots)] != watched:
                break


def _iter_changes(roots: Sequence[Path], stop: Event) -> Any:
    """Yield True after changes of files, and False after each second without a change.

    The iteration ends when ``stop`` is set, or after a root is deleted. If no folder exists, it ends after a
    single False and a second.
    """
    from watchfiles import Change, watch

    existing = [root for root in roots if root.exists()]
    if not existing:
        yield False
        stop.wait(_CHECK_MS / 1000)
        return

    def is_relevant(change: object, path: str) -> bool:
        roots_above = [root for root in existing if Path(path).is_relative_to(root)]
        nearest = max(roots_above, key=lambda root: len(str(root)), default=Path("/"))
        return not any(map(is_ignored, Path(path).relative_to(nearest).parts))

    changes = watch(*existing, watch_filter=is_relevant, stop_event=stop, rust_timeout=_CHECK_MS, yield_on_timeout=True)
    try:
        for found in changes:
            yield bool(found)
            # The watch stays with the deleted folder, even if a new one with the same inode is in its place.
            if any((Change.deleted, str(root)) in found for root in existing):
                return
    except FileNotFoundError:  # a folder was deleted just now; the next watch begins without it
        stop.wait(_CHECK_MS / 1000)
    except (RuntimeError, OSError) as error:  # RuntimeError: the Rust library cannot go on
        raise BadInput(f"{', '.join(map(str, existing))} cannot be watched: {error}") from error


def _identify(folder: Path) -> tuple[int, int] | None:
    """Return the device and inode of a folder; None if it is missing."""
    try:
        stat = folder.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
