"""The actors of ``index.embed``: each makes one shard after the other."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragqa.artefacts.machine import processor_name
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, RagqaError
from ragqa.indexing.embed import PARTIAL, EmbeddingShard, embed_shard
from ragqa.runtime.encoder import TextEncoder, load_encoder

ATTEMPTS = 8
"""Actors that a shard may take with it before the job stops: then it is the shard that kills them."""


@dataclass(frozen=True)
class Work:
    """What an actor needs to know."""

    corpus: Path
    out: Path
    encoder: str
    device: str
    precision: str


class Embedder:
    """An actor: opens corpus and encoder once, then makes one shard after the other.

    What is wrong with files comes back in a row, as one line; Ray would make a stack trace of it.
    """

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Embed the shards of a batch; their records as JSON, or an error."""
        rows = [self._row(EmbeddingShard(int(a), int(b))) for a, b in zip(batch["first"], batch["last"], strict=True)]
        return {"record": [record for record, _ in rows], "error": [error for _, error in rows]}

    def _row(self, shard: EmbeddingShard) -> tuple[str, str]:
        try:
            with writing(self._work.out):
                with _attempt(self._work.out, shard):
                    store, encoder = self._opened
                    record = embed_shard(store, encoder, self._work.out, shard, device=device_name(self._work.device))
                return json.dumps(asdict(record)), ""
        except RagqaError as error:
            return "", str(error)

    @cached_property
    def _opened(self) -> tuple[PassageStore, TextEncoder]:
        # One thread, so that sums come out the same however many actors share the machine.
        work, threads = self._work, 1 if self._work.device == "cpu" else None
        store = PassageStore.open(work.corpus / "passages")
        return store, load_encoder(work.encoder, device=work.device, precision=work.precision, threads=threads)


@contextmanager
def _attempt(out: Path, shard: EmbeddingShard) -> Iterator[None]:
    """Leave a trace of a shard that takes its actor with it; Ray alone would try it for ever."""
    before = list((out / PARTIAL).glob(f"{shard.first:010d}.*.try"))
    if len(before) >= ATTEMPTS:
        raise RagqaError(f"passages {shard.first} to {shard.last - 1}: {ATTEMPTS} actors died of them; see Ray's logs")
    trace = out / PARTIAL / f"{shard.first:010d}.{os.getpid()}.{uuid.uuid4().hex}.try"
    trace.touch()
    try:
        yield
    finally:
        trace.unlink(missing_ok=True)


def device_name(device: str) -> str:
    """Of the processor or GPU, as the manifest tells it."""
    if device == "cpu":
        return processor_name()
    import torch

    return str(torch.cuda.get_device_name(device))


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn what the operating system refuses into one clear line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            f"cannot write {out}: {reason}; what is finished stays, the same command goes on there"
        ) from error
