"""Build an index of passages and their vectors on all the machines of a Ray cluster.

    python -m index.build --corpus wiki.index --vectors wiki.vectors --out wiki-dense.index --kind ivf-rabitq
    python -m index.build --corpus wiki.index --vectors wiki.vectors --out wiki-dense.index --kind hnsw \\
        --recall 0.98 --questions dev.jsonl

What ``index.embed`` wrote becomes an index that ``ragqa ask`` opens: passages and, where the corpus has them, terms
are linked, FAISS's quantiser is trained on a sample, parts of the vectors are added by whoever is free, and merged.
How hard the index is to be searched for the wanted recall is tried on questions, or on queries that are made up, and
stands in its manifest. Parts that are whole are not made again by a run that follows one that was killed.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from index.cluster import connect, quiet
from index.command import one_line, parse, shared_path
from ragqa import artefact
from ragqa.embedding import open_shards
from ragqa.errors import BadInput, Mismatch, RagqaError
from ragqa.indexing import recall_line, sample_queries
from ragqa.locks import locked
from ragqa.progress import SILENT, Bars, Progress
from ragqa.retrieval import faiss_build, mips
from ragqa.runtime.encoder import load_encoder

BEGUN, TRAINED, SEARCH = "begun.json", "trained", "search.json"


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """What becomes an index, of which kind."""

    corpus: Path
    """Index directory with the passages; its terms are taken over, too."""
    vectors: Path
    """What ``index.embed`` made of them."""
    out: Path
    """Index directory to make, or to make again."""
    kind: str = "ivf-rabitq"
    """flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq or sq8."""
    recall: float = mips.RECALL
    """Share of the 20 nearest passages that a search is to find."""
    questions: Path | None = None
    """File of sample questions on which that is tried; without it some are made up from the passages."""
    part_rows: int = faiss_build.PART
    """Vectors of a part: what a worker holds in memory."""
    json: bool = False
    """Print the outcome as one JSON object."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        mips.check(self.kind, "cpu")
        if not 0 < self.recall <= 1:
            raise BadInput(f"--recall {self.recall}: a share above 0 and up to 1 is needed")
        if self.part_rows < 1:
            raise BadInput(f"--part-rows {self.part_rows}: at least 1 is needed")


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a run of the job did."""

    index: str
    """The directory."""
    fingerprint: str
    kind: str
    passages: int
    megabytes: float
    """Of the vectors and FAISS's files, passages and terms apart."""
    seconds: dict[str, float]
    """Wall time of each stage of this run."""
    search: dict[str, Any] | None
    """How hard it is searched, and the recall that gave; None where search is exact."""


def build(config: BuildConfig, *, progress: Progress = SILENT) -> Built:
    """Make the index directory ``config.out``; what stood there is replaced at the end, at once.

    Raises:
        BadInput: ``out`` is something else, the disk is full.
        Mismatch: the vectors are not those of the corpus, or of an encoder that has changed since.
        ArtefactError, DamagedArtefact: corpus or vectors are none, or not whole.
        MissingExtra: FAISS, or Ray, is not installed.
    """
    source, embedded = artefact.read(config.corpus, "index"), artefact.read(config.vectors, "vectors")
    _check_parents(config, source, embedded)
    out = config.out.resolve()
    artefact.check_replaceable(out, "index")
    queries = None
    if config.questions:
        encoder = load_encoder(embedded.config["name"])
        if encoder.fingerprint != embedded.parents["encoder"]:
            raise Mismatch(f"encoder {embedded.config['name']} is not the one that made {config.vectors} any more")
        queries = sample_queries(config.questions, encoder)
    with _workplace(out, config, source, embedded) as work:
        clock = _Clock()
        dense = work / "made" / "dense"
        if not (work / SEARCH).is_file():
            tuned = _dense(config, embedded.config["rows"], work, dense, queries, clock, progress)
            aside = work / f".{SEARCH}"
            aside.write_text(json.dumps(tuned and tuned.as_dict()))
            aside.rename(work / SEARCH)
        search = json.loads((work / SEARCH).read_text())
        manifest = _seal(config, source, embedded, work / "made", search)
        size = sum(file.stat().st_size for file in dense.iterdir())
        artefact.put_in_place(work / "made", out)
    return Built(
        index=str(config.out),
        fingerprint=manifest.fingerprint,
        kind=config.kind,
        passages=manifest.config["passages"],
        megabytes=round(size / 1e6, 1),
        seconds=clock.seconds,
        search=search,
    )


def _check_parents(config: BuildConfig, source: artefact.Manifest, embedded: artefact.Manifest) -> None:
    if embedded.parents["corpus"] != source.parents["corpus"]:
        raise Mismatch(f"{config.vectors} holds the vectors of other passages than {config.corpus}: embed them again")
    if embedded.config["rows"] != source.config.get("rows", source.config["passages"]):
        raise Mismatch(f"{config.vectors} and {config.corpus} do not count the same: embed them again")


@contextmanager
def _workplace(
    out: Path, config: BuildConfig, source: artefact.Manifest, embedded: artefact.Manifest
) -> Iterator[Path]:
    """The locked folder in which ``out`` is made; emptied if it was begun for something else."""
    work = out.with_name(f".{out.name}.building")
    ours = json.dumps([source.fingerprint, embedded.fingerprint, config.kind, config.part_rows, config.recall,
                       str(config.questions)])  # fmt: skip
    with artefact.as_bad_input(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(out.with_name(f".{out.name}.lock"), wait=False):
            artefact.recover(out)
            mark = work / BEGUN
            if not (mark.is_file() and (work / "made").is_dir() and mark.read_text() == ours):
                shutil.rmtree(work, ignore_errors=True)
                (work / "made" / "dense").mkdir(parents=True)
                mark.write_text(ours)
            yield work
            shutil.rmtree(work)


class _Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - began, 1)


def _dense(
    config: BuildConfig,
    rows: int,
    work: Path,
    dense: Path,
    queries: np.ndarray | None,
    clock: _Clock,
    progress: Progress,
) -> mips.Tuned | None:
    """Write all files of the folder ``dense``, but for the parts that are there."""
    vectors = open_shards(config.vectors, rows)
    with clock.stage("vectors"):
        mips.write_rows(vectors, config.kind, dense)
    if config.kind == "flat":
        return None
    with clock.stage("train"), progress.step("training", 1) as step:
        if not (work / TRAINED).is_file():
            faiss_build.train(vectors, config.kind, work / TRAINED)
        step.at(1)
    with clock.stage("add"):
        files = _add(config, rows, work, progress)
    with clock.stage("merge"):
        faiss_build.merge(work / TRAINED, files, dense)
    with clock.stage("tune"):
        return mips.tuned(vectors, config.kind, dense, recall=config.recall, queries=queries, progress=progress)


def _add(config: BuildConfig, rows: int, work: Path, progress: Progress) -> list[Path]:
    """Have every part added that is not there yet; the files of all."""
    ranges = faiss_build.parts(rows, config.kind, config.part_rows)
    files = [work / f"part-{first:010d}" for first, _ in ranges]
    missing = [part for part in zip(ranges, files, strict=True) if not part[1].is_file()]
    done = rows - sum(last - first for (first, last), _ in missing)
    if not missing:
        return files
    connect("building on a cluster")
    import ray

    add = ray.remote(num_cpus=1, max_retries=3)(_add_part)
    with progress.step(config.kind, rows, "passages", done) as step:
        waiting = {
            add.remote(config.vectors.resolve(), rows, work / TRAINED, first, last, file): last - first
            for (first, last), file in missing
        }
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            try:
                error = ray.get(ready)
            except ray.exceptions.RayTaskError:
                raise  # a bug: its trace is wanted
            except ray.exceptions.RayError as lost:
                raise RagqaError(f"the Ray cluster was lost: {str(lost).strip().splitlines()[0]}") from lost
            if error:
                raise BadInput(error)
            done += waiting.pop(ready)
            step.at(done)
    return files


def _add_part(vectors: Path, rows: int, trained: Path, first: int, last: int, file: Path) -> str:
    """What a worker does: make one part. What is wrong comes back as a line; Ray would make a stack trace of it."""
    import faiss

    faiss.omp_set_num_threads(1 if (first, last) != (0, rows) else os.cpu_count() or 1)
    try:
        faiss_build.add(trained, open_shards(vectors, rows), first, last, file)
    except (RagqaError, OSError) as error:
        return str(error)
    return ""


def _seal(
    config: BuildConfig,
    source: artefact.Manifest,
    embedded: artefact.Manifest,
    made: Path,
    search: dict[str, Any] | None,
) -> artefact.Manifest:
    """Take over passages and terms, and sign the whole."""
    known = {}
    for name, entry in source.files.items():
        if name.startswith(("passages/", "bm25/")):
            known[name] = entry
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).unlink(missing_ok=True)
            _link(config.corpus / name, made / name)
    sparse = source.config["retriever"] != "dense"
    settings = {
        **source.config,
        "retriever": "hybrid" if sparse else "dense",
        "kind": config.kind,
        "recall": config.recall,
        "questions": str(config.questions) if config.questions else None,
        "encoder": embedded.config["name"],
        "built": embedded.config["rows"],
        "search": search,
    }
    parents = {"corpus": source.parents["corpus"], "encoder": embedded.parents["encoder"]}
    return artefact.seal(made, "index", settings, parents, known=known)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def main() -> None:
    with one_line("index.build"):
        config = parse(BuildConfig, __doc__)
        with quiet():
            done = build(_absolute(config), progress=Bars())
    if config.json:
        print(json.dumps(asdict(done)))
        return
    print(f"index {done.fingerprint} in {done.index}: {done.passages:,} passages, {done.megabytes:,.1f} MB of vectors")
    if done.search:
        print(recall_line(done.search))


def _absolute(config: BuildConfig) -> BuildConfig:
    return replace(
        config,
        corpus=shared_path(config.corpus, "--corpus"),
        vectors=shared_path(config.vectors, "--vectors"),
        out=shared_path(config.out, "--out"),
        questions=config.questions and shared_path(config.questions, "--questions"),
    )


if __name__ == "__main__":
    main()
