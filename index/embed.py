r"""Embed the passages of an index on all machines of a Ray cluster.

    python -m index.embed --corpus wiki.index --out wiki.vectors
    ray job submit --working-dir . -- python -m index.embed --corpus /nfs/wiki.index --out /nfs/wiki.vectors \
        --encoder BAAI/bge-small-en-v1.5 --gpus

Ray Data hands shards of rows to actors, by default one per GPU or CPU core. Each actor loads the encoder once. A shard
is written atomically, with its checksum and range of rows. After a failure, the same command embeds only the missing
shards, and the result is the same byte for byte. All machines must see the corpus and the output.
"""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from index.embed_actors import EmbedTask, ShardEmbedder, get_device_name, report_disk_errors
from index.ray_cluster import connect, silence_ray
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, RagqaError, summarize_error
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
    write_shard_file,
    write_shard_record,
)
from ragqa.progress import SILENT, Bars, Progress
from ragqa.runtime import encoder as encoders
from ragqa.runtime.encoder import DEFAULT_ENCODER, PRECISIONS, load_encoder
from ragqa.settings.command_line import parse_config, report_errors, resolve_shared_paths
from ragqa.terminal import print_json, print_text
from ragqa.text import format_count

CLUSTER_ATTEMPTS = 3
"""Number of consecutive Ray failures without a finished shard after which the job stops."""
IDENTITY = "begun.json"
"""File with the inputs and settings of the vectors in a directory, written before the first shard."""


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """Options of ``index.embed``."""

    corpus: Path
    """Index directory whose passages are embedded; ``ragqa index --retriever bm25`` makes one."""
    out: Path
    """Directory of the vectors; finished shards of an earlier run are reused."""
    encoder: str = DEFAULT_ENCODER
    """Encoder: an export, a Hugging Face directory or a hub name."""
    gpus: bool = False
    """Run one actor per GPU, instead of one single-threaded actor per CPU core."""
    precision: str | None = None
    """Precision: float32, bfloat16 or (GPUs only) float16.

    By default float32 on CPUs, bfloat16 on GPUs, int8 for an export.
    """
    workers: int | None = None
    """Number of actors; by default one per GPU or core of the cluster.

    0 embeds in this process, without Ray.
    """
    shard_rows: int = 8192
    """Rows of a shard, about a minute of work for a core; an actor that dies loses its unfinished shard."""
    verify: bool = False
    """Verify the checksums of all existing shards."""
    repair: bool = False
    """Verify the checksums of all existing shards, and embed damaged shards again instead of reporting them."""
    insecure: bool = False
    """Accept a Ray cluster that asks for no token, although everybody who reaches it can run code in it."""
    json: bool = False
    """Print the result as one JSON object."""

    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        if self.shard_rows < 1:
            raise BadInput(f"--shard-rows {self.shard_rows}: give at least 1")
        if self.workers is not None and self.workers < 0:
            raise BadInput(f"--workers {self.workers}: give 0 or more")
        if self.precision not in (None, "int8", *PRECISIONS):
            raise BadInput(f"--precision {self.precision}: choose one of {', '.join(PRECISIONS)}")
        if self.precision == "float16" and not self.gpus:
            raise BadInput("--precision float16 needs --gpus: choose float32 or bfloat16 on a CPU")

    @property
    def device(self) -> str:
        """Device type, as torch names it."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True, kw_only=True)
class EmbedReport:
    """Result of ``index.embed``."""

    vectors: str
    """Directory of the vectors."""
    fingerprint: str
    passages: int
    embedded: int
    """Number of passages embedded by this run; the others existed before."""
    seconds: float
    """Wall time of the whole run in seconds."""
    passages_per_s: float
    """Passages embedded per second, from the start of the actors to the last shard; 0 if nothing was missing."""
    workers: int
    """Number of actors; 0 without Ray, or if nothing was missing."""
    precision: str
    device: str
    """Device type, as torch names it."""


def embed(config: EmbedConfig, *, progress: Progress = SILENT) -> EmbedReport:
    """Write the vectors of all passages of ``config.corpus`` into the directory ``config.out``.

    Args:
        config: options of the job.
        progress: receiver of the number of embedded passages.

    Raises:
        BadInput: the encoder or the Ray cluster cannot be used, ``out`` holds other vectors or files or is used by
            another process, or the disk is full.
        ArtefactError: there is no index at ``corpus``, or no encoder of this name.
        DamagedArtefact: a file has changed since it was written; shards are checked with ``verify`` only.
        RagqaError: the cluster was lost, or actors keep dying on the same shard.
        MissingExtra: Ray or a package of the encoder is not installed.
    """
    start = time.perf_counter()
    source = artefacts.read_manifest(config.corpus, "index")
    store = PassageStore.open(config.corpus / "passages")
    encoder, precision = _identify_encoder(config)
    identity: dict[str, Any] = {
        "corpus": source.parents["corpus"],
        "encoder": encoder,
        "rows": len(store),
        "shard_rows": config.shard_rows,
        "device": config.device,
        "precision": precision,
    }
    shards, out = split_into_shards(len(store), config.shard_rows), config.out.resolve()
    with _lock_directory(out):
        identity = _check_identity(out, identity, shards, config.precision is not None)
        if config.verify or config.repair:
            _check_shards(out, shards, encoder, config.repair)
        missing = [shard for shard in shards if not read_shard_record(out, shard, encoder)]
        remove_partial_files(out)  # a run may have been killed between its last shard and its end
        device, precision = identity["device"], identity["precision"]
        task = EmbedTask(config.corpus.resolve(), out, config.encoder, device, precision)
        workers, seconds = _embed_missing(config, task, missing, len(store), progress) if missing else (0, 0.0)
        manifest = _write_manifest(out, shards, identity, config.encoder)
    rows = _count_rows(missing)
    return EmbedReport(
        vectors=str(config.out),
        fingerprint=manifest.fingerprint,
        passages=len(store),
        embedded=rows,
        seconds=round(time.perf_counter() - start, 3),
        passages_per_s=round(rows / seconds, 1) if seconds else 0.0,
        workers=workers,
        precision=precision,
        device=device,
    )


def _count_rows(shards: list[EmbeddingShard]) -> int:
    return sum(shard.last - shard.first for shard in shards)


def _identify_encoder(config: EmbedConfig) -> tuple[str, str]:
    """Return the encoder's fingerprint and precision; raise its errors before an actor starts."""
    if config.gpus and encoders.is_export(encoders.get_encoder_path(config.encoder)):
        raise BadInput(f"--gpus: encoder '{config.encoder}' is exported for the CPU; name torch weights in --encoder")
    encoder = load_encoder(config.encoder, precision=config.precision or ("bfloat16" if config.gpus else None))
    return encoder.fingerprint, encoder.precision


@contextmanager
def _lock_directory(out: Path) -> Iterator[None]:
    with report_disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(out.with_name(f".{out.name}.lock"), wait=False):
            yield


def _check_identity(
    out: Path, identity: dict[str, Any], shards: list[EmbeddingShard], has_chosen_precision: bool
) -> dict[str, Any]:
    """Check the identity of the vectors in ``out``, or write it into a new ``out``; return it.

    If all shards are complete, any device and precision are accepted, unless the user has chosen a precision.
    """
    mark = out / IDENTITY
    if not mark.is_file():
        _write_identity(out, identity)
        return identity
    try:
        existing = dict(json.loads(mark.read_text()))
    except (ValueError, TypeError) as error:
        raise DamagedArtefact(f"{mark} is damaged: choose another directory, or delete {out}") from error
    if not has_chosen_precision and all(read_shard_record(out, shard, identity["encoder"]) for shard in shards):
        identity = {**identity, **{name: existing.get(name) for name in ("device", "precision")}}
    different = [name for name, value in identity.items() if existing.get(name) != value]
    if different:
        listed = "; ".join(f"{name} {existing.get(name)}, not {identity[name]}" for name in different)
        raise BadInput(f"{out} holds other vectors ({listed}): choose another directory")
    return identity


def _write_identity(out: Path, identity: dict[str, Any]) -> None:
    if (out / PARTIAL).is_dir():  # a run that was killed before its first shard leaves this folder
        artefacts.check_no_other_files(out, [f"{PARTIAL}/{file.name}" for file in (out / PARTIAL).iterdir()])
    else:
        artefacts.check_replaceable(out, "vectors")
    try:
        with prepare_shard_folder(out):
            write_shard_file(out / IDENTITY, json.dumps(identity, sort_keys=True).encode())
    except OSError:
        with suppress(OSError):
            out.rmdir()
        raise


def _check_shards(out: Path, shards: list[EmbeddingShard], encoder: str, repair: bool) -> None:
    """Raise DamagedArtefact for damaged shards; with ``repair`` delete their records."""
    records = {shard: read_shard_record(out, shard, encoder) for shard in shards}
    bad = list(find_damaged_files(out, [record for record in records.values() if record]))
    bad += [
        out / shard.vectors_file
        for shard, record in records.items()
        if not record and (out / shard.record_file).exists()
    ]
    if bad and not repair:
        names = ", ".join(str(file) for file in sorted(bad)[:5]) + (" …" if len(bad) > 5 else "")
        are = "shard is" if len(bad) == 1 else "shards are"
        raise DamagedArtefact(f"{len(bad)} {are} damaged: {names}; embed again with --repair")
    for file in bad:
        file.with_suffix(".json").unlink(missing_ok=True)


def _write_manifest(
    out: Path, shards: list[EmbeddingShard], identity: dict[str, Any], encoder_name: str
) -> artefacts.Manifest:
    """Write the manifest from the shards' records, without reading the shards again."""
    records = [record for shard in shards if (record := read_shard_record(out, shard, identity["encoder"]))]
    if len(records) < len(shards):
        raise DamagedArtefact(f"{out} is incomplete after the job: run it again")
    known = {r.vectors_file: {"size": r.bytes, "sha256": r.sha256} for r in records}
    config = {**identity, "name": encoder_name, "devices": sorted({record.device for record in records})}
    parents = {"corpus": identity["corpus"], "encoder": identity["encoder"]}
    return artefacts.write_manifest(out, "vectors", config, parents, known=known)


def _embed_missing(
    config: EmbedConfig, task: EmbedTask, missing: list[EmbeddingShard], rows: int, progress: Progress
) -> tuple[int, float]:
    """Embed the missing shards; return the number of actors and the seconds."""
    count = 0
    if config.workers != 0:
        connect("embedding on a cluster", config.insecure)
        import ray

        resource, hint = ("CPU", "") if task.device == "cpu" else ("GPU", ": leave out --gpus")
        count = min(config.workers or int(ray.cluster_resources().get(resource, 0)), len(missing))
        if not count:
            raise BadInput(f"the Ray cluster has no {resource}{hint}")
    done, start = rows - _count_rows(missing), time.perf_counter()
    with prepare_shard_folder(task.out), progress.step("embedding", rows, "passages", done) as step:
        for record in _embed_on_cluster(task, missing, count) if count else _embed_here(task, missing):
            done += record.last - record.first
            step.advance_to(done)
    return count, time.perf_counter() - start


def _embed_here(task: EmbedTask, missing: list[EmbeddingShard]) -> Iterator[ShardRecord]:
    store = PassageStore.open(task.corpus / "passages")
    encoder = load_encoder(task.encoder, device=task.device, precision=task.precision)
    for shard in missing:
        yield embed_shard(store, encoder, task.out, shard, device=get_device_name(task.device))


def _embed_on_cluster(task: EmbedTask, missing: list[EmbeddingShard], workers: int) -> Iterator[ShardRecord]:
    """Yield the records of the shards in the order in which actors finish them.

    Ray Data repeats the tasks of lost actors, but stops if an actor is lost during its start. Then this function starts
    the missing shards again. It raises RagqaError after ``CLUSTER_ATTEMPTS`` attempts without progress.
    """
    import ray

    failures = 0
    while missing:
        remaining = {shard.first for shard in missing}
        try:
            with closing(_run_actors(task, missing, workers)) as records:
                for record in records:
                    remaining.discard(record.first)
                    yield record
        except ray.exceptions.RayTaskError:
            raise  # a bug in the actors' code, whose traceback is needed
        except ray.exceptions.RayError as error:
            failures = failures + 1 if len(remaining) == len(missing) else 0
            if failures == CLUSTER_ATTEMPTS:
                raise RagqaError(f"the Ray cluster was lost: {summarize_error(error)}") from error
        missing = [shard for shard in missing if shard.first in remaining]


def _run_actors(task: EmbedTask, missing: list[EmbeddingShard], workers: int) -> Generator[ShardRecord, None, None]:
    import ray

    shards = ray.data.from_items([asdict(shard) for shard in missing], override_num_blocks=len(missing))
    results = shards.map_batches(
        ShardEmbedder,
        fn_constructor_args=(task,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(missing))),
        num_cpus=1 if task.device == "cpu" else 0,
        num_gpus=0 if task.device == "cpu" else 1,
    )
    for row in results.iter_rows():
        if row["error"]:
            raise BadInput(row["error"])
        yield ShardRecord(**json.loads(row["record"]))


def reuse_vectors(vectors: Path, encoder: Path, out: Path) -> bool:
    """Link the vectors of an earlier encoder if the new encoder has the same passage tower.

    Args:
        vectors: result of ``index.embed`` with the earlier encoder.
        encoder: directory of the new encoder; only its question tower can have been trained since.
        out: directory of the links, or of copies where links are impossible; ``index.embed`` adds what is missing.

    Returns:
        True if the vectors were linked; False if the passage tower has changed or an encoder cannot be read.

    Raises:
        BadInput: ``out`` cannot be written.
        ArtefactError, DamagedArtefact: ``vectors`` is missing or incomplete.
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
    """Return a digest of an encoder's passage tower and tokenizer; None if it cannot be read."""
    if not Path(name).is_dir():
        return None
    try:
        _, path, settings = encoders.load_tower(encoders.find_towers(name)[0])
        return encoders.compute_identity(path, settings)
    except (ArtefactError, OSError):
        return None


def main() -> None:
    """Embed the passages of an index from the command line."""
    with report_errors("index.embed"):
        config = parse_config(EmbedConfig, __doc__)
        with silence_ray():
            report = embed(resolve_shared_paths(config, "corpus", "out", "encoder"), progress=Bars())
    if config.json:
        print_json(asdict(report))
        return
    passages = format_count(report.passages, "passages")
    speed = f"{report.passages_per_s:,.0f} passages/s, {format_count(report.workers, 'workers')}"
    run = f"{report.embedded:,} of them now ({speed}, {report.precision} on {report.device})"
    done = run if report.embedded else "all embedded by an earlier run"
    print_text(f"vectors {report.fingerprint} in {report.vectors}: {passages}, {done}")


if __name__ == "__main__":
    main()
