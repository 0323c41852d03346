"""Sync an index with folders, so that it has the documents of their present files.

New and changed files are read, and the documents of files that no longer exist are deleted.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ragqa import artefacts
from ragqa.artefacts import Manifest
from ragqa.corpus import hub
from ragqa.corpus.formats.base import ProblemHandler, describe_error
from ragqa.corpus.sources import CorpusReport, to_document_id
from ragqa.corpus.walk import check_paths
from ragqa.errors import ArtefactError, BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.changes import DocumentChanges, DocumentKey
from ragqa.indexing.file_table import TABLE, FileScan, FileState, find_owner, read_table, write_table
from ragqa.indexing.update import NewDocuments, NewVersion, UpdateReport, change_index
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.registry import RetrieverKind, TermEngine

_SETTINGS_WITHOUT_EFFECT = ("device", "strict")
"""Options of a build that do not change the index."""


def build_or_sync_index(
    paths: Sequence[Path],
    out: Path,
    config: IndexConfig | None = None,
    *,
    on_choice: Callable[[str], object] = lambda line: None,
    progress: Progress = SILENT,
) -> CorpusReport | UpdateReport:
    """Sync the index at ``out`` if it has these paths and options; else build it.

    An index that cannot be synced, for example because it uses Lucene, is also built again.

    Args:
        paths: files, folders, and names of data sets ``hf:…``.
        out: directory of the index.
        config: options of the index; by default a hybrid index.
        on_choice: function called with one line that says why an existing index is built again instead of synced.
        progress: receiver of progress reports.

    Returns:
        The report of the build or of the sync.

    Raises:
        BadInput, BadLine, MissingExtra: as for ``build_index`` and ``sync_index``.
        ArtefactError, DamagedArtefact, Mismatch: as for ``build_index``.
    """
    config = config or IndexConfig()
    reason = _find_rebuild_reason(paths, out, config)
    if reason is None:
        try:
            return sync_index(out, paths, strict=config.strict, device=config.device, progress=progress)
        except ArtefactError as error:  # the encoder has changed, or a file of the index is damaged
            reason = str(error)
    if reason:
        on_choice(f"{out} is built again: {reason}")
    return build_index(paths, out, config, progress=progress)


def _find_rebuild_reason(paths: Sequence[Path], out: Path, config: IndexConfig) -> str | None:
    """Return the reason not to sync an index, empty if it is missing or damaged; else None."""
    try:
        manifest = artefacts.read_manifest(out, "index")
    except ArtefactError:  # build_index checks the directory
        return ""
    old_settings, new_settings = manifest.config, asdict(config.make_absolute())
    others = [
        name
        for name in new_settings
        if name not in _SETTINGS_WITHOUT_EFFECT
        and old_settings.get(name, getattr(IndexConfig, name)) != new_settings[name]
    ]
    if others:
        return f"other settings than before ({', '.join(name.replace('_', '-') for name in others)})"
    if {str(hub.make_absolute(path)) for path in paths} != set(old_settings["sources"]):
        return "other files and folders than before"
    if manifest.created_by != Manifest("index", {}).created_by:
        return f"{manifest.created_by} made it"
    if any(map(hub.is_hub_name, paths)):
        return "a data set of the hub cannot be synced"
    if RetrieverKind(config.retriever).needs_terms and not TermEngine(config.engine).can_update:
        return f"terms of {config.engine} cannot be updated"
    return None if (out / TABLE).is_file() else "it has no table of its files"


def sync_index(
    index: str | Path,
    folders: Sequence[str | Path] = (),
    *,
    strict: bool = False,
    compact: bool | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> UpdateReport:
    """Update an index to the present files of folders; on an error, the index does not change.

    New and changed files are read, and the documents of files that no longer exist are deleted. Documents from files
    outside of the folders stay.

    Args:
        index: directory of the index, which other processes can search at the same time.
        folders: folders and files to sync, which become sources of the index; by default all its sources.
        strict: True to stop at the first malformed file or record instead of leaving it out.
        compact: True to compact the index, False not to; by default, as for ``update_index``.
        device: device of torch encoders and FAISS.
        progress: receiver of progress reports.

    Returns:
        The result of the sync.

    Raises:
        BadInput: a folder does not exist, no passage would be left, another process changes the index, the disk is
            full, or the index uses Lucene; with ``strict``, a file cannot be read.
        BadLine, Mismatch, ArtefactError, DamagedArtefact, MissingExtra: as for ``update_index``.
    """
    if isinstance(folders, str | Path):
        raise BadInput(f"folders = {str(folders)!r}: a list of folders is needed")
    roots = [hub.make_absolute(path) for path in folders]

    def change(version: NewVersion, lost_ids: set[str]) -> dict[str, int]:
        sources = [Path(source) for source in version.config["sources"] if not hub.is_hub_name(source)]
        return _Sync(version, roots or sources, strict).run()

    return change_index(index, change, compact=compact, device=device, progress=progress)


class _Sync:
    def __init__(self, version: NewVersion, roots: Sequence[Path], strict: bool) -> None:
        self._version, self._strict = version, strict
        self._table = read_table(version.folder)
        # The documents of a single file that no longer exists are deleted. A missing folder is an error, because its
        # disk may not be mounted.
        self._roots = [to_document_id(str(root)) for root in roots]
        existing = [root for root in roots if root.exists() or to_document_id(str(root)) not in self._table]
        if not roots or any(map(hub.is_hub_name, roots)):
            raise BadInput("there is no folder to sync: name one, but no data set of the hub")
        check_paths(existing)
        problems = ProblemHandler(version.report, strict)
        self._scan = FileScan(
            existing, lambda error: problems.reject(str(error.filename), f"cannot be read: {describe_error(error)}")
        )

    def run(self) -> dict[str, int]:
        version, first_added = self._version, len(self._version.store)
        owners = {path: find_owner(path, self._scan.files) for path in version.store.list_values("path")}
        gone = {path for path, owner in owners.items() if owner is None and self._is_gone(path)}
        to_read = self._find_changed()
        if gone or to_read:
            # Documents that were left out as duplicates may be the only copies now.
            to_read |= {name for name in self._scan.files if (state := self._table.get(name)) and state.is_partial}
        replaced = {path for path, owner in owners.items() if owner in to_read}
        changes = self._read(to_read, gone | replaced)
        rows = version.store.find_rows(gone | replaced, "path")
        keys = version.read_keys(rows)
        removed = set(keys) - changes.unchanged_keys
        if removed or changes.written_keys:
            version.change_rows(rows[np.array([key in removed for key in keys], bool)], first_added)
        self._record(to_read, changes)
        return {
            "added": len(changes.written_keys - removed),
            "replaced": len(changes.written_keys & removed),
            "unchanged": len(changes.unchanged_keys),
            "deleted": len(removed - changes.written_keys),
        }

    def _find_changed(self) -> set[str]:
        known = {name: (state.size, state.modified) for name, state in self._table.items()}
        return {name for name, state in self._scan.states.items() if known.get(name) != (state.size, state.modified)}

    def _is_gone(self, path: str) -> bool:
        return _is_within(path, self._roots) and not os.path.isfile(find_owner(path, self._table) or path)

    def _read(self, to_read: set[str], replaced_paths: set[str]) -> DocumentChanges:
        """Write the new documents of files, except duplicates of documents in the index.

        Documents of ``replaced_paths`` do not count: this sync replaces or deletes them.
        """

        def find_duplicates(documents: NewDocuments) -> set[DocumentKey]:
            store, indexed = self._version.store, NewDocuments()
            titles = {passages[0].title for passages in documents.values()}
            for passage in store.get(store.find_rows(titles, "title").tolist()):
                if passage.path not in replaced_paths:
                    indexed.setdefault((passage.document, passage.path), []).append(passage)
            texts = {tuple((p.title, p.start, p.text) for p in passages) for passages in indexed.values()}
            return {
                key
                for key, passages in documents.items()
                if tuple((p.title, p.start, p.text) for p in passages) in texts
            }

        files = [file for name, file in self._scan.files.items() if name in to_read and file.is_file()]
        if not files:
            return DocumentChanges()
        return self._version.write_passages(files, self._strict, find_duplicates)

    def _record(self, read: set[str], changes: DocumentChanges) -> None:
        table: dict[str, FileState] = {
            name: state
            for name, state in self._table.items()
            if name in self._scan.files or not _is_within(name, self._roots)
        }
        table |= self._scan.finish(read, [path for _, path in changes.left_out_keys])
        sources = [*self._version.config["sources"]]
        sources += [root for root in self._roots if not _is_within(root, sources)]
        if table != self._table or sources != self._version.config["sources"]:
            write_table(self._version.folder, table)
            self._version.config["sources"] = sources
            self._version.is_changed = True


def _is_within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)
