"""The parts of an index of FAISS's, made by whoever is free on a Ray cluster, each with a record of what it is.

    trained.json       names the index without a vector
    0000000000.json    names that with the codes of the rows from this one on

A record is written last, and no two files have one name. So a file is there when its record is, and a worker that
outlives the job spoils nothing. What has not the bytes of its record any more, or is of other vectors, is made again.
"""

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from index.cluster import connect
from ragqa import artefacts
from ragqa.errors import BadInput, RagqaError
from ragqa.indexing.embed import open_shards
from ragqa.progress import Progress
from ragqa.retrieval.vectors import faiss_build

TRAINED = "trained"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is cut into which parts, and where they go."""

    vectors: Path
    """Directory of their shards, absolute."""
    fingerprint: str
    """Of the vectors."""
    rows: int
    kind: str
    part_rows: int
    folder: Path


@dataclass(frozen=True)
class Record:
    """A file that is whole."""

    of: str
    """What it was made of."""
    file: str
    """Its name."""
    bytes: int
    sha256: str


def keep(folder: Path, name: str, of: str, write: Callable[[Path], None]) -> Record:
    """Let ``write`` make a file in ``folder`` that is found by ``name`` from then on."""
    file = folder / f"{name}.{uuid.uuid4().hex}"
    write(file)
    record = Record(of, file.name, file.stat().st_size, artefacts.checksum(file))
    aside = folder / f".{file.name}.json"
    aside.write_text(json.dumps(asdict(record)))
    aside.replace(folder / f"{name}.json")
    return record


def kept(folder: Path, name: str, of: str) -> Record | None:
    """The record of a file that is as it was written, and made of what it should be: reads all of it."""
    try:
        record = Record(**json.loads((folder / f"{name}.json").read_text()))
        file = folder / record.file
        whole = record.of == of and file.stat().st_size == record.bytes and artefacts.checksum(file) == record.sha256
    except (OSError, ValueError, TypeError):
        return None
    return record if whole else None


def train(plan: Plan) -> Record:
    """The index without a vector, made unless it is there."""
    plan.folder.mkdir(exist_ok=True)
    of = f"{plan.kind} {plan.rows} {plan.fingerprint}"
    if record := kept(plan.folder, TRAINED, of):
        return record
    vectors = open_shards(plan.vectors, plan.rows)
    return keep(plan.folder, TRAINED, of, lambda file: faiss_build.train(vectors, plan.kind, file))


def add(plan: Plan, trained: Record, progress: Progress) -> list[Path]:
    """Have every part made that is not there as it should be; the files of all.

    Raises:
        BadInput: a worker cannot write a part, or not read the vectors.
        MissingExtra: Ray is not installed.
        RagqaError: the cluster was lost, or a worker dies whenever it makes some part.
    """
    ranges = faiss_build.parts(plan.rows, plan.kind, plan.part_rows)
    there = {part: record for part in ranges if (record := kept(plan.folder, _name(part), _of(trained, part)))}
    _clear(plan.folder, [trained, *there.values()])
    missing = [part for part in ranges if part not in there]
    done = sum(last - first for first, last in there)
    with progress.step(plan.kind, plan.rows, "passages", done) as step:

        def told(part: tuple[int, int], record: Record) -> None:
            there[part] = record
            step.at(sum(last - first for first, last in there))

        if missing:
            _add_missing(plan, trained, missing, told)
    return [plan.folder / there[part].file for part in ranges]


def _clear(folder: Path, records: list[Record]) -> None:
    """Delete what no worker finished, and what is not as it was or not of these vectors."""
    stay = {record.file for record in records}
    stay |= {f"{file.partition('.')[0]}.json" for file in stay}
    for file in folder.iterdir():
        if file.name not in stay:
            file.unlink(missing_ok=True)


def _add_missing(
    plan: Plan, trained: Record, missing: list[tuple[int, int]], told: Callable[[tuple[int, int], Record], None]
) -> None:
    """Hand the missing parts to workers; those still at work when one fails are stopped."""
    connect("building on a cluster")
    import ray

    task = ray.remote(num_cpus=1, max_retries=3)(_add_part)
    waiting = {task.remote(plan, trained, part): part for part in missing}
    try:
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            part = waiting.pop(ready)
            record, error = _outcome(ready, part)
            if record is None:
                raise BadInput(error)
            told(part, record)
    finally:
        for left in waiting:
            ray.cancel(left, force=True)


def _outcome(ready: Any, part: tuple[int, int]) -> tuple[Record | None, str]:
    """What a worker made, or the line that says why it did not."""
    import ray

    try:
        outcome: tuple[Record | None, str] = ray.get(ready)
    except ray.exceptions.RayTaskError:
        raise  # a bug: its trace is wanted
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as died:
        what = f"workers died of passages {part[0]} to {part[1] - 1}, the last of 4 like this"
        raise RagqaError(f"{what}: {_first_line(died)}; what is finished stays") from died
    except ray.exceptions.RayError as lost:
        raise RagqaError(f"the Ray cluster was lost: {_first_line(lost)}") from lost
    return outcome


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _add_part(plan: Plan, trained: Record, part: tuple[int, int]) -> tuple[Record | None, str]:
    """What a worker does: make one part. What is wrong comes back as a line; Ray would make a stack trace of it."""
    import faiss

    first, last = part
    faiss.omp_set_num_threads(1 if part != (0, plan.rows) else os.cpu_count() or 1)

    def write(file: Path) -> None:
        faiss_build.add(plan.folder / trained.file, open_shards(plan.vectors, plan.rows), first, last, file)

    try:
        return keep(plan.folder, _name(part), _of(trained, part), write), ""
    except (RagqaError, OSError) as error:
        return None, str(error)


def _name(part: tuple[int, int]) -> str:
    return f"{part[0]:010d}"


def _of(trained: Record, part: tuple[int, int]) -> str:
    return f"{trained.of} {trained.sha256} {part[0]} {part[1]}"
