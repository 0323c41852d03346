"""Reuse of passage vectors after only the question tower of a dual encoder has changed."""

import json
from dataclasses import replace
from pathlib import Path

from index.embed import IDENTITY
from ragqa import artefacts
from ragqa.errors import ArtefactError
from ragqa.indexing.embed import (
    PARTIAL,
    ShardRecord,
    prepare_shard_folder,
    write_shard_file,
    write_shard_record,
)
from ragqa.runtime.encoder import compute_identity, find_towers, load_encoder, load_tower


def reuse_vectors(vectors: Path, encoder: Path, out: Path) -> bool:
    """Reuse the vectors of an earlier encoder whose passage tower is the same.

    Args:
        vectors: result of ``index.embed`` with the earlier encoder.
        encoder: encoder with the further trained question tower, as torch weights.
        out: directory for links to the vectors, or copies; ``index.embed`` completes it.

    Returns:
        False if the passage tower has also changed, or the earlier encoder is gone.

    Raises:
        ArtefactError, DamagedArtefact: ``vectors`` or ``encoder`` is missing or incomplete.
    """
    manifest = artefacts.read_manifest(vectors, "vectors")
    before = _identify_passage_tower(manifest.config["name"])
    if before is None or before != _identify_passage_tower(str(encoder)):
        return False
    fingerprint = load_encoder(encoder).fingerprint
    settings = {**json.loads((vectors / IDENTITY).read_text()), "encoder": fingerprint}
    with artefacts.keep_checked(vectors, manifest), artefacts.report_write_errors(out), prepare_shard_folder(out):
        if not (out / IDENTITY).is_file():
            write_shard_file(out / IDENTITY, json.dumps(settings, sort_keys=True).encode())
        for file in sorted(vectors.glob("*.npy")):
            record = ShardRecord(**json.loads(file.with_suffix(".json").read_text()))
            if not (out / record.record_file).exists():
                artefacts.link_file(file, out / PARTIAL / record.vectors_file)
                (out / PARTIAL / record.vectors_file).replace(out / record.vectors_file)
                write_shard_record(out, replace(record, encoder=fingerprint))
    return True


def _identify_passage_tower(name: str) -> str | None:
    """Return a digest of a passage tower with its tokenizer; None if it is gone."""
    if not Path(name).is_dir():
        return None
    try:
        _, path, settings = load_tower(find_towers(name)[0])
        return compute_identity(path, settings)
    except (ArtefactError, OSError):
        return None
