"""Vectors of passages taken over by a dual encoder that differs from theirs in the tower of questions alone."""

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

from index.embed import BEGUN
from ragqa import artefacts
from ragqa.errors import ArtefactError
from ragqa.indexing.embed import PARTIAL, EmbeddingShard, ShardRecord, prepare_shard_folder
from ragqa.runtime.encoder import identity, load_encoder, torch_encoder, towers


def carry(vectors: Path, encoder: Path, out: Path) -> bool:
    """Have ``index.embed`` find in ``out`` what it would make of the passages with ``encoder``.

    Args:
        vectors: what ``index.embed`` made with an encoder before its tower of questions learned on.
        encoder: that encoder now, in torch.
        out: where the vectors are linked to, or copied; ``index.embed`` completes them.

    Returns:
        Whether they were taken over: not if the tower of passages has changed, too, or what it was is gone.

    Raises:
        ArtefactError, DamagedArtefact: ``vectors`` or ``encoder`` are none, or not whole.
    """
    manifest = artefacts.read_manifest(vectors, "vectors")
    before = _passages(manifest.config["name"])
    if before is None or before != _passages(str(encoder)):
        return False
    name = load_encoder(encoder).fingerprint
    begun = {**json.loads((vectors / BEGUN).read_text()), "encoder": name}
    with artefacts.keep_checked(vectors, manifest), artefacts.report_write_errors(out), prepare_shard_folder(out):
        if not (out / BEGUN).is_file():
            _write(out / BEGUN, json.dumps(begun, sort_keys=True))
        for file in sorted(vectors.glob("*.npy")):
            record = ShardRecord(**json.loads(file.with_suffix(".json").read_text()))
            part = EmbeddingShard(record.first, record.last)
            if not (out / part.record).exists():
                _link(file, out / part.vectors)
                _write(out / part.record, json.dumps(asdict(replace(record, encoder=name))))
    return True


def _passages(name: str) -> str | None:
    """What makes the vectors of passages: weights, tokenizer and settings of that tower; None where it is gone."""
    if not Path(name).is_dir():
        return None
    try:
        _, path, settings = torch_encoder(towers(name)[0])
        return identity(path, settings)
    except (ArtefactError, OSError):
        return None


def _link(file: Path, target: Path) -> None:
    aside = target.parent / PARTIAL / target.name
    try:
        os.link(file, aside)
    except OSError:
        shutil.copyfile(file, aside)
    aside.replace(target)


def _write(file: Path, text: str) -> None:
    aside = file.parent / PARTIAL / file.name
    aside.write_text(text)
    aside.replace(file)
