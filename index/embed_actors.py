"""Ray actors that embed shards for ``index.embed``."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragqa.artefacts.machine import get_processor_name
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, RagqaError
from ragqa.indexing.embed import PARTIAL, EmbeddingShard, embed_shard
from ragqa.runtime.encoder import TextEncoder, load_encoder

ATTEMPTS = 8
"""Number of actors that may die on one shard; then the job stops, because the shard must be the cause."""


@dataclass(frozen=True)
class EmbedTask:
    """Inputs of an embedding actor."""

    corpus: Path
    """Index directory whose passages are embedded."""
    out: Path
    """Directory of the vectors."""
    encoder: str
    """Path or hub name of the encoder."""
    device: str
    """Device type, as torch names it."""
    precision: str


class ShardEmbedder:
    """Actor that opens corpus and encoder once and embeds shards.

    Errors that the user can mend are returned as a message, since Ray would turn an exception into a traceback.
    """

    def __init__(self, task: EmbedTask) -> None:
        self._task = task

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Embed the shards of a batch.

        Args:
            batch: columns ``first`` and ``last`` (exclusive), the rows of each shard.

        Returns:
            Columns ``record`` (JSON) and ``error`` (message), one of them empty for each shard.
        """
        shards = [EmbeddingShard(int(a), int(b)) for a, b in zip(batch["first"], batch["last"], strict=True)]
        rows = [self._embed(shard) for shard in shards]
        return {"record": [record for record, _ in rows], "error": [error for _, error in rows]}

    def _embed(self, shard: EmbeddingShard) -> tuple[str, str]:
        out = self._task.out
        try:
            with report_disk_errors(out):
                with _record_attempt(out, shard):
                    store, encoder = self._resources
                    record = embed_shard(store, encoder, out, shard, device=get_device_name(self._task.device))
                return json.dumps(asdict(record)), ""
        except RagqaError as error:
            return "", str(error)

    @cached_property
    def _resources(self) -> tuple[PassageStore, TextEncoder]:
        # One thread on CPUs: the number of threads changes the order of sums, and vectors must not depend on it.
        task, threads = self._task, 1 if self._task.device == "cpu" else None
        store = PassageStore.open(task.corpus / "passages")
        return store, load_encoder(task.encoder, device=task.device, precision=task.precision, threads=threads)


@contextmanager
def _record_attempt(out: Path, shard: EmbeddingShard) -> Iterator[None]:
    """Record a shard that crashes its actor, so that Ray does not retry it forever."""
    earlier = list((out / PARTIAL).glob(f"{shard.first:010d}.*.try"))
    if len(earlier) >= ATTEMPTS:
        rows = f"passages {shard.first} to {shard.last - 1}"
        raise RagqaError(f"{rows}: {ATTEMPTS} actors died embedding them; see Ray's logs")
    trace = out / PARTIAL / f"{shard.first:010d}.{os.getpid()}.{uuid.uuid4().hex}.try"
    trace.touch()
    try:
        yield
    finally:
        trace.unlink(missing_ok=True)


def get_device_name(device: str) -> str:
    """Return the name of the processor (for ``cpu``) or of the GPU, as manifests record it."""
    if device == "cpu":
        return get_processor_name()
    import torch

    return str(torch.cuda.get_device_name(device))


@contextmanager
def report_disk_errors(out: Path) -> Iterator[None]:
    """Convert an OSError of the block to a BadInput that names ``out``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            f"cannot write {out}: {reason}; finished shards stay, and the same command continues from them"
        ) from error
