"""Demo of ragqa: a small encyclopedia, its questions, and its index."""

import hashlib
import json
from pathlib import Path

from ragqa import artefacts
from ragqa.artefacts.paths import get_cache_dir, get_demo_dir, get_weights_dir
from ragqa.errors import ArtefactError
from ragqa.progress import SILENT, Progress


def demo_index(*, rebuild: bool = False, progress: Progress = SILENT) -> Path:
    """Return the directory of the demo index; build it if it is missing or damaged.

    The index is in the user's cache directory. Its name depends on the articles, the encoder and the format of
    artefacts; if one of them changes, the function builds a new index. If another process builds the index, the
    function waits for it.

    Args:
        rebuild: True to build the index even if it is whole.
        progress: receiver of progress reports.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, MissingExtra: as for ``build_index``.
    """
    target = get_cache_dir() / f"demo-{_compute_signature()}"
    if not rebuild and _is_whole(target):
        return target
    with artefacts.report_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        from ragqa.artefacts.lock import hold_lock
        from ragqa.indexing.build import IndexConfig, build_index

        with hold_lock(target.with_suffix(".lock"), wait=True):
            if rebuild or not _is_whole(target):
                build_index([get_demo_dir() / "articles"], target, IndexConfig(), progress=progress)
    return target


def _is_whole(target: Path) -> bool:
    try:
        artefacts.read_manifest(target, "index")
    except ArtefactError:
        return False
    return True


def _compute_signature() -> str:
    """Return a digest of the inputs of the demo index, as 12 hexadecimal digits.

    The inputs are the format of artefacts, and the paths, sizes and modification times of the articles and the
    encoder's manifest.
    """
    files = [*sorted((get_demo_dir() / "articles").rglob("*.md")), get_weights_dir() / "encoder" / artefacts.MANIFEST]
    stats = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    return hashlib.sha256(json.dumps([artefacts.FORMAT, stats]).encode()).hexdigest()[:12]
