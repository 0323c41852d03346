"""Compaction: rewrite an updated index without its deleted rows."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa.artefacts.paths import find_local_model
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.errors import RagqaError
from ragqa.indexing.build import build_terms, encode_sample_questions
from ragqa.progress import Progress
from ragqa.retrieval.registry import TERMS_FOLDER, VECTORS_FOLDER
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import SelectedVectors
from ragqa.retrieval.vectors.index_kinds import DEFAULT_RECALL, IndexKind
from ragqa.retrieval.vectors.store import open_vectors
from ragqa.runtime.encoder import load_encoder


def compact_index(
    folder: Path, config: dict[str, Any], encoder: str | None, *, device: str, progress: Progress
) -> dict[str, Any]:
    """Rewrite the index in ``folder`` without deleted rows; no passage is embedded again.

    The vectors of approximate kinds are indexed and tuned again.

    Args:
        folder: directory of the index, which no other process uses.
        config: configuration in the manifest of the index.
        encoder: fingerprint of the encoder that made the vectors; None if there are no vectors.
        device: device of torch encoders and FAISS.
        progress: receiver of progress reports.

    Returns:
        The entries of the configuration that change: ``built``, and ``search`` if there are vectors.

    Raises:
        DamagedArtefact: a file of the index is damaged.
        BadInput, MissingExtra: as for ``mips.build`` and ``build_terms``.
    """
    compacted = folder / ".compact"
    old = PassageStore.open(folder / "passages")
    with PassageWriter(compacted / "passages") as writer:
        for batch in old.iter_batches():
            for passage in batch:
                writer.add_passage(passage)
    store = PassageStore.open(compacted / "passages")
    if (folder / TERMS_FOLDER).is_dir():
        build_terms(store, compacted / TERMS_FOLDER, config["engine"], progress)
    changes: dict[str, Any] = {"built": len(store)}
    if (folder / VECTORS_FOLDER).is_dir():
        live_rows = np.setdiff1d(np.arange(len(old)), old.deleted)
        (compacted / VECTORS_FOLDER).mkdir()
        tuned = mips.build(
            SelectedVectors(open_vectors(folder / VECTORS_FOLDER), live_rows),
            config["kind"],
            compacted / VECTORS_FOLDER,
            device=device,
            recall=config.get("recall", DEFAULT_RECALL),
            queries=_encode_questions(config, encoder, device),
            progress=progress,
        )
        changes["search"] = tuned and tuned.as_dict()
    for part in list(compacted.iterdir()):
        shutil.rmtree(folder / part.name)
        part.rename(folder / part.name)
    compacted.rmdir()
    return changes


def _encode_questions(config: dict[str, Any], encoder: str | None, device: str) -> npt.NDArray[np.float32] | None:
    """Return the vectors [questions, width] of the sample questions; None if unavailable."""
    file = config.get("questions")
    if not file or config["kind"] == IndexKind.FLAT:
        return None
    try:
        loaded = load_encoder(find_local_model(config["encoder"]), device=device)
        return encode_sample_questions(file, loaded) if loaded.fingerprint == encoder else None
    except (RagqaError, OSError):  # without sample questions, tuning makes queries from the passages
        return None
