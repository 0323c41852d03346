"""Embed the passages of an index on all the machines of a Ray cluster.

    python -m index.embed --corpus wiki.index --encoder default --out wiki.vectors
    ray job submit --working-dir . -- python -m index.embed --corpus /nfs/wiki.index --out /nfs/w.vectors --gpus

Ray Data hands shards of rows to actors, one for every GPU (or CPU core), each of which loads the encoder once.
A shard is written whole, with its checksum, count and range of rows, by whoever gets it; run again after whatever
went wrong, the job makes what is missing, and the result is the same byte for byte. Corpus and output lie where all
machines see them. A corpus is an index directory (its passages are embedded) made by ``ragqa index --retriever bm25``.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragqa import artefact
from ragqa.corpus.store import PassageStore
from ragqa.embedding import Record, Shard, damaged, embed_shard, finished, shards
from ragqa.errors import BadInput, DamagedArtefact, MissingExtra, RagqaError
from ragqa.locks import locked
from ragqa.progress import Bars, Progress
from ragqa.runtime.encoder import TextEncoder, load_encoder

SHARD = 8192
"""Rows of a shard: what a lost actor costs, a minute of a core or a second of a GPU."""


def embed(
    corpus: Path,
    out: Path,
    *,
    encoder: str = "default",
    gpus: bool = False,
    workers: int | None = None,
    shard_rows: int = SHARD,
    verify: bool = False,
    repair: bool = False,
    progress: Progress,
) -> artefact.Manifest:
    """Write the vectors of all passages of ``corpus`` into the directory ``out``.

    Args:
        corpus: index directory.
        out: directory to make; what an earlier run finished there stays.
        encoder: export, Hugging Face directory or hub name.
        gpus: an actor a GPU, in bf16; else an actor a CPU core, on one thread each.
        workers: actors; by default as many as the cluster has GPUs or cores.
        shard_rows: rows of a shard.
        verify: read all shards that are there and compare their checksums.
        repair: embed damaged shards again instead of naming them.

    Raises:
        BadInput: the cluster has no GPU, ``out`` holds the vectors of something else.
        DamagedArtefact: a shard is not as it was written; names it.
        MissingExtra: Ray is not installed.
    """
    source = artefact.read(corpus, "index")
    store = PassageStore.open(corpus / "passages")
    made_by = load_encoder(encoder).fingerprint
    identity: dict[str, Any] = {
        "corpus": source.parents["corpus"],
        "encoder": made_by,
        "rows": len(store),
        "shard_rows": shard_rows,
        "device": "cuda" if gpus else "cpu",
    }
    out = out.resolve()
    with locked(out.with_name(f".{out.name}.lock"), wait=False), artefact.as_bad_input(out):
        _claim(out, identity)
        parts = shards(len(store), shard_rows)
        if verify or repair:
            _check(out, parts, made_by, repair)
        missing = [part for part in parts if not finished(out, part, made_by)]
        if missing:
            _run(corpus.resolve(), out, encoder, missing, len(store), gpus, workers, progress)
        records = [finished(out, part, made_by) for part in parts]
        if None in records:
            raise DamagedArtefact(f"{out} is not whole after the job: run it again")
        known = {Shard(r.first, r.last).vectors: {"size": r.bytes, "sha256": r.sha256} for r in records if r}
        parents = {"corpus": identity["corpus"], "encoder": made_by}
        return artefact.seal(out, "vectors", {**identity, "name": encoder}, parents, known=known)


def _claim(out: Path, identity: dict[str, Any]) -> None:
    """Make ``out``, or see that it was begun with the same corpus, encoder and shards."""
    import json

    mark, ours = out / "begun.json", json.dumps(identity, sort_keys=True)
    if mark.is_file():
        if mark.read_text() != ours:
            raise BadInput(f"{out} holds vectors of another corpus, encoder or size of shards: choose another place")
        return
    artefact.check_replaceable(out)
    out.mkdir(parents=True, exist_ok=True)
    mark.write_text(ours)


def _check(out: Path, parts: list[Shard], encoder: str, repair: bool) -> None:
    records = [record for part in parts if (record := finished(out, part, encoder))]
    bad = list(damaged(out, records))
    bad += [out / part.vectors for part in parts if (out / part.record).is_file() and not finished(out, part, encoder)]
    if bad and not repair:
        names = ", ".join(str(file) for file in bad[:5]) + (" …" if len(bad) > 5 else "")
        raise DamagedArtefact(
            f"{len(bad)} shards are not as they were written: {names}; embed them again with --repair"
        )
    for file in bad:
        file.with_suffix(".json").unlink(missing_ok=True)


def _run(
    corpus: Path,
    out: Path,
    encoder: str,
    missing: list[Shard],
    rows: int,
    gpus: bool,
    workers: int | None,
    progress: Progress,
) -> None:
    count = workers or _capacity(gpus)
    done = rows - sum(shard.last - shard.first for shard in missing)
    with progress.step("embedding", rows, "passages", done) as step:
        for record in _embedded(corpus, out, encoder, missing, gpus, min(count, len(missing))):
            done += record.last - record.first
            step.at(done)


def _embedded(
    corpus: Path, out: Path, encoder: str, missing: list[Shard], gpus: bool, workers: int
) -> Iterator[Record]:
    """The records of the shards as they are finished, in any order."""
    import ray

    rows = ray.data.from_items([asdict(shard) for shard in missing], override_num_blocks=len(missing))
    made = rows.map_batches(
        _Embedder,
        fn_constructor_args=(str(corpus), str(out), encoder, "cuda" if gpus else "cpu"),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=0 if gpus else 1,
        num_gpus=1 if gpus else 0,
    )
    for row in made.iter_rows():
        yield Record(**row)


def _capacity(gpus: bool) -> int:
    """GPUs, or cores, of the cluster."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra("embedding on a cluster", "ray") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    count = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 0))
    if not count:
        raise BadInput(f"the Ray cluster has no {'GPU: leave --gpus out' if gpus else 'CPU'}")
    return count


class _Embedder:
    """An actor: opens corpus and encoder once, then makes one shard after the other."""

    def __init__(self, corpus: str, out: str, encoder: str, device: str) -> None:
        self._store, self._out = PassageStore.open(Path(corpus) / "passages"), Path(out)
        self._encoder = _single_threaded(encoder) if device == "cpu" else load_encoder(encoder, device=device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Embed the shards of a batch; their records."""
        records = [
            embed_shard(self._store, self._encoder, self._out, Shard(int(first), int(last)))
            for first, last in zip(batch["first"], batch["last"], strict=True)
        ]
        return {name: [getattr(record, name) for record in records] for name in Record.__dataclass_fields__}


def _single_threaded(name: str) -> TextEncoder:
    """So that sums come out the same however many actors share the machine."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return load_encoder(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, required=True, help="index directory whose passages are embedded")
    add("--encoder", default="default", help="export, Hugging Face directory or hub name")
    add("--out", type=Path, required=True, help="directory of the vectors")
    add("--gpus", action="store_true", help="an actor a GPU, in bf16; without it an actor a CPU core")
    add("--workers", type=int, help="actors; default: all of the cluster")
    add("--shard-rows", type=int, default=SHARD)
    add("--verify", action="store_true", help="compare the checksums of what is there")
    add("--repair", action="store_true", help="embed damaged shards again")
    args = parser.parse_args()
    try:
        manifest = embed(**vars(args), progress=Bars())
    except (RagqaError, OSError) as error:
        raise SystemExit(f"index.embed: {' '.join(str(error).split())}") from None
    print(f"vectors {manifest.fingerprint} in {args.out}: {manifest.config['rows']:,} passages")


if __name__ == "__main__":
    main()
