"""Parts of a FAISS index, built by workers of a Ray cluster.

    trained.json       record of the trained index without vectors
    0000000000.json    record of the part whose first row is 0
    0000000000.HEX     data file of this part; HEX is random
    trained.HEX        data file of the trained index

A record names a data file and its checksum. It is written after the data file, and no two data files share a name. So
a part is complete if its record exists, and a worker that still runs after the job has ended damages no file. Parts
that have changed, or that belong to other vectors, are built again.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from index.ray_cluster import connect
from ragqa import artefacts
from ragqa.errors import BadInput, RagqaError, summarize_error
from ragqa.indexing.embed import open_shards
from ragqa.progress import Progress
from ragqa.retrieval.vectors import faiss_build

TRAINED = "trained"

Rows = tuple[int, int]
"""First row of a part, and last row (exclusive)."""


@dataclass(frozen=True, kw_only=True)
class PartsPlan:
    """Vectors to divide into parts, and the folder of the parts."""

    vectors: Path
    """Directory of the shards of vectors, as an absolute path."""
    fingerprint: str
    """Fingerprint of the vectors."""
    rows: int
    kind: str
    """``IndexKind`` of the index."""
    part_rows: int
    """Maximum number of vectors in a part."""
    folder: Path


@dataclass(frozen=True)
class PartRecord:
    """Record of a complete data file."""

    source: str
    """Text that identifies the inputs of the file."""
    file: str
    """Name of the file."""
    bytes: int
    """Size of the file in bytes."""
    sha256: str


def _write_part(folder: Path, name: str, source: str, write: Callable[[Path], None]) -> PartRecord:
    file = folder / f"{name}.{uuid.uuid4().hex}"
    write(file)
    record = PartRecord(source, file.name, file.stat().st_size, artefacts.checksum(file))
    temporary = folder / f".{file.name}.json"  # a unique name, since two workers may make the same part
    temporary.write_text(json.dumps(asdict(record)))
    temporary.replace(folder / f"{name}.json")
    return record


def _find_part(folder: Path, name: str, source: str) -> PartRecord | None:
    """Return the record ``name`` of an unchanged data file made from ``source``, or None."""
    with suppress(OSError, ValueError, TypeError):
        record = PartRecord(**json.loads((folder / f"{name}.json").read_text()))
        file = folder / record.file
        if record.source == source and file.stat().st_size == record.bytes:
            return record if artefacts.checksum(file) == record.sha256 else None
    return None


def train(plan: PartsPlan) -> PartRecord:
    """Return the record of a trained index without vectors; train it if the folder lacks it.

    Raises:
        BadInput, DamagedArtefact, MissingExtra: as for ``open_shards`` and ``faiss_build.train_index``.
    """
    plan.folder.mkdir(exist_ok=True)
    source = f"{plan.kind} {plan.rows} {plan.fingerprint}"
    if record := _find_part(plan.folder, TRAINED, source):
        return record
    vectors = open_shards(plan.vectors, plan.rows)
    return _write_part(plan.folder, TRAINED, source, lambda file: faiss_build.train_index(vectors, plan.kind, file))


def add(plan: PartsPlan, trained: PartRecord, progress: Progress, insecure: bool = False) -> list[Path]:
    """Build all missing parts and return the files of all parts, in the order of their rows.

    Args:
        plan: vectors and folder of the parts.
        trained: record that ``train`` returned.
        progress: receiver of the number of added passages.
        insecure: True to accept a Ray cluster that asks for no token.

    Raises:
        BadInput: a worker cannot write a part or read the vectors, or the Ray cluster cannot be used.
        MissingExtra: Ray is not installed.
        RagqaError: the cluster was lost, or workers keep dying on the same part.
    """
    ranges = faiss_build.split_parts(plan.rows, plan.kind, plan.part_rows)
    existing = {rows: _find_part(plan.folder, _format_name(rows), _format_source(trained, rows)) for rows in ranges}
    records = {rows: record for rows, record in existing.items() if record}
    _remove_other_files(plan.folder, [trained, *records.values()])
    missing = [rows for rows in ranges if rows not in records]
    done = sum(last - first for first, last in records)
    with progress.step(plan.kind, plan.rows, "passages", done) as step:
        for rows, record in _add_missing(plan, trained, missing, insecure) if missing else ():
            records[rows] = record
            done += rows[1] - rows[0]
            step.advance_to(done)
    return [plan.folder / records[rows].file for rows in ranges]


def _remove_other_files(folder: Path, records: list[PartRecord]) -> None:
    keep = {record.file for record in records}
    keep |= {f"{file.partition('.')[0]}.json" for file in keep}
    for file in folder.iterdir():
        if file.name not in keep:
            file.unlink(missing_ok=True)


def _add_missing(
    plan: PartsPlan, trained: PartRecord, missing: list[Rows], insecure: bool
) -> Iterator[tuple[Rows, PartRecord]]:
    """Yield each missing part when a worker has finished it; stop all workers if one fails."""
    connect("building on a cluster", insecure)
    import ray

    task = ray.remote(num_cpus=1, max_retries=3)(_add_part)
    running = {task.remote(plan, trained, rows): rows for rows in missing}
    try:
        while running:
            (finished,), _ = ray.wait(list(running), num_returns=1)
            rows = running.pop(finished)
            result: PartRecord | str = ray.get(finished)
            if isinstance(result, str):
                raise BadInput(result)
            yield rows, result
    except ray.exceptions.RayTaskError:
        raise  # a bug, whose traceback is needed
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        where = f"adding passages {rows[0]} to {rows[1] - 1}; finished parts stay"
        raise RagqaError(f"4 workers died {where}; last error: {summarize_error(error)}") from error
    except ray.exceptions.RayError as error:
        raise RagqaError(f"the Ray cluster was lost: {summarize_error(error)}") from error
    finally:
        for task_ref in running:
            ray.cancel(task_ref, force=True)


def _add_part(plan: PartsPlan, trained: PartRecord, rows: Rows) -> PartRecord | str:
    """Build a part; return its record or an error message, since Ray would raise a traceback."""
    import faiss

    first, last = rows
    # Workers share the machine, one core each; a part of all rows has the machine for itself.
    faiss.omp_set_num_threads(1 if rows != (0, plan.rows) else os.cpu_count() or 1)

    def write(file: Path) -> None:
        faiss_build.add_part(plan.folder / trained.file, open_shards(plan.vectors, plan.rows), first, last, file)

    try:
        return _write_part(plan.folder, _format_name(rows), _format_source(trained, rows), write)
    except (RagqaError, OSError) as error:
        return str(error)


def _format_name(rows: Rows) -> str:
    return f"{rows[0]:010d}"


def _format_source(trained: PartRecord, rows: Rows) -> str:
    return f"{trained.source} {trained.sha256} {rows[0]} {rows[1]}"
