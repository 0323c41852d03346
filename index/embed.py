"""Embed the passages of an index on all the machines of a Ray cluster.

    python -m index.embed --corpus wiki.index --out wiki.vectors
    ray job submit --working-dir . -- python -m index.embed --corpus /nfs/wiki.index --out /nfs/wiki.vectors \\
        --encoder BAAI/bge-small-en-v1.5 --gpus

Ray Data hands shards of rows to actors, one for every GPU (or CPU core), each of which loads the encoder once.
A shard is written whole, with its checksum, count and range of rows, by whoever gets it; run again after whatever
went wrong, the job makes what is missing, and the result is the same byte for byte. Corpus and output lie where all
machines see them.
"""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from index.cluster import connect, count_resource, silence_ray
from index.embed_actors import Embedder, Work, device_name, writing
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.cli.config import parse_config, report_errors, resolve_shared_path
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact, RagqaError
from ragqa.indexing.embed import (
    PARTIAL,
    EmbeddingShard,
    ShardRecord,
    embed_shard,
    find_damaged_files,
    prepare_shard_folder,
    read_shard_record,
    remove_partial_files,
    split_into_shards,
)
from ragqa.progress import SILENT, Bars, Progress
from ragqa.runtime.encoder import DEFAULT, PRECISIONS, encoder_path, is_export, load_encoder

VAIN = 3
"""Times that Ray gives up before anything is finished, after which we do, too."""
BEGUN = "begun.json"
"""What the vectors in a directory are of, written before the first of them."""


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """What is embedded, by what, into what."""

    corpus: Path
    """Index directory whose passages are embedded; ``ragqa index --retriever bm25`` makes one."""
    out: Path
    """Directory of the vectors; what an earlier run finished there stays."""
    encoder: str = DEFAULT
    """Export, Hugging Face directory or hub name."""
    gpus: bool = False
    """An actor a GPU; else an actor a CPU core, on one thread each."""
    precision: str | None = None
    """float32, bfloat16 or (GPUs only) float16; by default float32 on CPUs, bfloat16 on GPUs, int8 for an export."""
    workers: int | None = None
    """Actors; by default as many as the cluster has GPUs or cores. With 0 this process embeds, without Ray."""
    shard_rows: int = 8192
    """Rows of a shard: what a lost actor costs, a minute of a core or a second of a GPU."""
    verify: bool = False
    """Read all shards that are there and compare their checksums."""
    repair: bool = False
    """Embed damaged shards again instead of naming them."""
    json: bool = False
    """Print the outcome as one JSON object."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        if self.shard_rows < 1:
            raise BadInput(f"--shard-rows {self.shard_rows}: at least 1 is needed")
        if self.workers is not None and self.workers < 0:
            raise BadInput(f"--workers {self.workers}: a number from 0 on is needed")
        if self.precision not in (None, "int8", *PRECISIONS):
            raise BadInput(f"--precision {self.precision}: one of {', '.join(PRECISIONS)} is needed")
        if self.precision == "float16" and not self.gpus:
            raise BadInput("--precision float16 needs --gpus: on a CPU it is float32 or bfloat16")

    @property
    def device(self) -> str:
        """Kind of device, as torch names it."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """What a run of the job did."""

    vectors: str
    """The directory."""
    fingerprint: str
    passages: int
    embedded: int
    """Passages that this run embedded; those before it were there."""
    seconds: float
    """Wall time of the whole run."""
    passages_per_s: float
    """``embedded`` over the time from the start of the actors to the last shard."""
    workers: int
    """Actors; 0 where nothing was missing."""
    precision: str
    device: str


def embed(config: EmbedConfig, *, progress: Progress = SILENT) -> Embedded:
    """Write the vectors of all passages of ``config.corpus`` into the directory ``config.out``.

    Raises:
        BadInput: the cluster has no GPU, ``out`` holds the vectors of something else, the disk is full.
        ArtefactError: ``corpus`` is no index, the encoder is none.
        DamagedArtefact: a shard is not as it was written; names it.
        MissingExtra: Ray is not installed.
    """
    began = time.perf_counter()
    source = artefacts.read_manifest(config.corpus, "index")
    store = PassageStore.open(config.corpus / "passages")
    made_by, precision = _encoder(config)
    identity: dict[str, Any] = {
        "corpus": source.parents["corpus"],
        "encoder": made_by,
        "rows": len(store),
        "shard_rows": config.shard_rows,
        "device": config.device,
        "precision": precision,
    }
    parts = split_into_shards(len(store), config.shard_rows)
    with _claimed(config.out.resolve(), identity, parts, config.precision is not None) as (out, identity):
        if config.verify or config.repair:
            _check(out, parts, made_by, config.repair)
        missing = [part for part in parts if not read_shard_record(out, part, made_by)]
        remove_partial_files(out)  # a run may have been killed between its last shard and its end
        device, precision = identity["device"], identity["precision"]
        work = Work(config.corpus.resolve(), out, config.encoder, device, precision)
        workers, seconds = _run(work, missing, config.workers, len(store), progress) if missing else (0, 0.0)
        manifest = _seal(out, parts, identity, config.encoder)
    rows = _rows(missing)
    return Embedded(
        vectors=str(config.out),
        fingerprint=manifest.fingerprint,
        passages=len(store),
        embedded=rows,
        seconds=round(time.perf_counter() - began, 3),
        passages_per_s=round(rows / seconds, 1) if seconds else 0.0,
        workers=workers,
        precision=precision,
        device=device,
    )


def _rows(parts: list[EmbeddingShard]) -> int:
    return sum(part.last - part.first for part in parts)


def _encoder(config: EmbedConfig) -> tuple[str, str]:
    """Fingerprint and precision of the encoder, loaded once here: its faults are found before any actor starts."""
    if config.gpus and is_export(encoder_path(config.encoder)):
        raise BadInput(f"--gpus: encoder '{config.encoder}' is exported for the CPU; name torch weights in --encoder")
    encoder = load_encoder(config.encoder, precision=config.precision or ("bfloat16" if config.gpus else None))
    return encoder.fingerprint, encoder.precision


@contextmanager
def _claimed(
    out: Path, identity: dict[str, Any], parts: list[EmbeddingShard], chosen: bool
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """``out``, made if need be, for this process alone and for the vectors that ``_begin`` says alone."""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(out.with_name(f".{out.name}.lock"), wait=False):
            yield out, _begin(out, identity, parts, chosen)


def _begin(out: Path, identity: dict[str, Any], parts: list[EmbeddingShard], chosen: bool) -> dict[str, Any]:
    """Write what ``out`` is begun with, or see that it was begun with just that; what it is.

    Vectors that are all there are taken whatever device made them, unless their precision was ``chosen``.
    """
    mark = out / BEGUN
    if mark.is_file():
        try:
            theirs = dict(json.loads(mark.read_text()))
        except (ValueError, TypeError) as error:
            raise DamagedArtefact(f"{mark} is damaged: choose another place, or delete {out}") from error
        if not chosen and all(read_shard_record(out, part, identity["encoder"]) for part in parts):
            identity = {**identity, **{name: theirs.get(name) for name in ("device", "precision")}}
        if other := [
            f"{name} {theirs.get(name)}, not {mine}" for name, mine in identity.items() if theirs.get(name) != mine
        ]:
            raise BadInput(f"{out} holds other vectors ({'; '.join(other)}): choose another place")
        return identity
    if not (out / PARTIAL).is_dir():  # left by a run that was killed right here
        artefacts.check_replaceable(out, "vectors")
    try:
        with prepare_shard_folder(out):
            (out / PARTIAL / BEGUN).write_text(json.dumps(identity, sort_keys=True))
            (out / PARTIAL / BEGUN).replace(mark)
    except OSError:
        with suppress(OSError):
            out.rmdir()
        raise
    return identity


def _check(out: Path, parts: list[EmbeddingShard], encoder: str, repair: bool) -> None:
    records = [record for part in parts if (record := read_shard_record(out, part, encoder))]
    bad = list(find_damaged_files(out, records))
    bad += [
        out / part.vectors
        for part in parts
        if (out / part.record).exists() and not read_shard_record(out, part, encoder)
    ]
    if bad and not repair:
        names = ", ".join(str(file) for file in sorted(bad)[:5]) + (" …" if len(bad) > 5 else "")
        are = "shard is not as it was" if len(bad) == 1 else "shards are not as they were"
        raise DamagedArtefact(f"{len(bad)} {are} written: {names}; embed again with --repair")
    for file in bad:
        file.with_suffix(".json").unlink(missing_ok=True)


def _seal(out: Path, parts: list[EmbeddingShard], identity: dict[str, Any], name: str) -> artefacts.Manifest:
    """Write the manifest; the checksums of the vectors are known from when they were written."""
    records = [record for part in parts if (record := read_shard_record(out, part, identity["encoder"]))]
    if len(records) < len(parts):
        raise DamagedArtefact(f"{out} is not whole after the job: run it again")
    known = {EmbeddingShard(r.first, r.last).vectors: {"size": r.bytes, "sha256": r.sha256} for r in records}
    config = {**identity, "name": name, "devices": sorted({record.device for record in records})}
    parents = {"corpus": identity["corpus"], "encoder": identity["encoder"]}
    return artefacts.write_manifest(out, "vectors", config, parents, known=known)


def _run(
    work: Work, missing: list[EmbeddingShard], workers: int | None, rows: int, progress: Progress
) -> tuple[int, float]:
    """Embed the missing shards; actors that worked, and seconds."""
    count = 0
    if workers != 0:
        connect("embedding on a cluster")
        count = min(workers or count_resource("CPU" if work.device == "cpu" else "GPU"), len(missing))
    done, began = rows - _rows(missing), time.perf_counter()
    with prepare_shard_folder(work.out), progress.step("embedding", rows, "passages", done) as step:
        for record in _persistent(work, missing, count) if count else _here(work, missing):
            done += record.last - record.first
            step.at(done)
    return count, time.perf_counter() - began


def _here(work: Work, missing: list[EmbeddingShard]) -> Iterator[ShardRecord]:
    store = PassageStore.open(work.corpus / "passages")
    encoder = load_encoder(work.encoder, device=work.device, precision=work.precision)
    for part in missing:
        yield embed_shard(store, encoder, work.out, part, device=device_name(work.device))


def _persistent(work: Work, missing: list[EmbeddingShard], workers: int) -> Iterator[ShardRecord]:
    """The records of the shards as they are finished, in any order.

    Ray Data does tasks of lost actors again, but gives up where an actor is lost while it starts: then what is
    missing is begun again, unless that has been in vain a few times.
    """
    import ray

    vain = 0
    while missing:
        left = {part.first for part in missing}
        try:
            with closing(_embedded(work, missing, workers)) as records:
                for record in records:
                    left.discard(record.first)
                    yield record
        except ray.exceptions.RayTaskError:
            raise  # a bug in what the actors run: its trace is wanted
        except ray.exceptions.RayError as error:
            vain = vain + 1 if len(left) == len(missing) else 0
            if vain == VAIN:
                reason = str(error).strip().splitlines()[0]
                raise RagqaError(f"the Ray cluster was lost: {reason}") from error
        missing = [part for part in missing if part.first in left]


def _embedded(work: Work, missing: list[EmbeddingShard], workers: int) -> Generator[ShardRecord, None, None]:
    import ray

    parts = ray.data.from_items([asdict(shard) for shard in missing], override_num_blocks=len(missing))
    made = parts.map_batches(
        Embedder,
        fn_constructor_args=(work,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(missing))),
        num_cpus=1 if work.device == "cpu" else 0,
        num_gpus=0 if work.device == "cpu" else 1,
    )
    for row in made.iter_rows():
        if row["error"]:
            raise BadInput(row["error"])
        yield ShardRecord(**json.loads(row["record"]))


def main() -> None:
    with report_errors("index.embed"):
        config = parse_config(EmbedConfig, __doc__)
        with silence_ray():
            done = embed(_absolute(config), progress=Bars())
    if config.json:
        print(json.dumps(asdict(done)))
        return
    passages = f"{done.passages:,} passage{'s' * (done.passages != 1)}"
    speed = f"{done.passages_per_s:,.0f} passages/s, {done.workers} workers, {done.precision} on {done.device}"
    now = f"{done.embedded:,} of them now ({speed})" if done.embedded else "all there already"
    print(f"vectors {done.fingerprint} in {done.vectors}: {passages}, {now}")


def _absolute(config: EmbedConfig) -> EmbedConfig:
    encoder = config.encoder
    if Path(encoder).exists():
        encoder = str(resolve_shared_path(Path(encoder), "--encoder"))
    return replace(
        config,
        corpus=resolve_shared_path(config.corpus, "--corpus"),
        out=resolve_shared_path(config.out, "--out"),
        encoder=encoder,
    )


if __name__ == "__main__":
    main()
