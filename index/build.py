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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from index import parts
from index.cluster import silence_ray
from ragqa import artefacts
from ragqa.artefacts import resume
from ragqa.cli.config import parse_config, report_errors, resolve_shared_path
from ragqa.errors import BadInput, Mismatch
from ragqa.indexing.build import encode_sample_questions, format_recall
from ragqa.indexing.embed import open_shards
from ragqa.progress import SILENT, Bars, Progress
from ragqa.retrieval.registry import VECTORS_FOLDER, RetrieverKind
from ragqa.retrieval.vectors import faiss_build, mips
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.runtime.encoder import load_encoder

TAKEN_OVER = ("passages/", "bm25/")
ROWS, MERGED, SEARCH = "rows.json", "merged.json", "search.json"
"""What says, beside the index in the making, which of its stages are done."""


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """What becomes an index, of which kind."""

    corpus: Path
    """Index directory with the passages; its terms are taken over, too."""
    vectors: Path
    """What ``index.embed`` made of them."""
    out: Path
    """Index directory to make, or to make again."""
    kind: str = IndexKind.IVF_RABITQ
    """flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq or sq8."""
    recall: float = mips.RECALL
    """Share of the 20 nearest passages that a search is to find."""
    questions: Path | None = None
    """File of sample questions on which that is tried; without it some are made up from the passages."""
    encoder: str | None = None
    """Directory of another form of the encoder that made the vectors, for questions: its export. Else the same one."""
    part_rows: int = faiss_build.PART
    """Vectors of a part: what a worker holds in memory."""
    json: bool = False
    """Print the outcome as one JSON object."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        mips.check(self.kind, "cpu")
        if not 0 < self.recall <= 1:
            raise BadInput(f"--recall {self.recall}: a share above 0 and up to 1 is needed")
        if self.kind == IndexKind.FLAT and (self.questions or self.recall != mips.RECALL):
            raise BadInput("--recall and --questions are for approximate kinds: flat finds everything")
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
        RagqaError: the cluster was lost, or a worker dies whenever it makes some part.
        ArtefactError, DamagedArtefact: corpus or vectors are none, or not whole.
        MissingExtra: FAISS, or Ray, is not installed.
    """
    source, embedded = (
        artefacts.read_manifest(config.corpus, "index"),
        artefacts.read_manifest(config.vectors, "vectors"),
    )
    _check_parents(config, source, embedded)
    _check_encoder(config.encoder, config.vectors, embedded)
    out = config.out.resolve()
    artefacts.check_replaceable(out, "index")
    queries = _queries(config, embedded)
    clock = _Clock()
    ours = _signature(config, source, embedded)
    with artefacts.keep_checked(config.corpus, source), resume.open_workspace(out, ours) as work:
        if not resume.is_complete(work):
            _take_over(config.corpus, source, work / "made")
            search = _searched(config, embedded, work, queries, clock, progress)
            _seal(config, source, embedded, work / "made", search)
        resume.move_into_place(work, out)
        manifest = artefacts.peek_manifest(out)
    size = sum(entry["size"] for name, entry in manifest.files.items() if name.startswith("dense/"))
    return Built(
        index=str(config.out),
        fingerprint=manifest.fingerprint,
        kind=config.kind,
        passages=manifest.config["passages"],
        megabytes=round(size / 1e6, 1),
        seconds=clock.seconds,
        search=manifest.config["search"],
    )


def _check_parents(config: BuildConfig, source: artefacts.Manifest, embedded: artefacts.Manifest) -> None:
    if embedded.parents["corpus"] != source.parents["corpus"]:
        raise Mismatch(f"{config.vectors} holds the vectors of other passages than {config.corpus}: embed them again")
    if embedded.config["rows"] != source.config.get("rows", source.config["passages"]):
        raise Mismatch(f"{config.vectors} and {config.corpus} do not count the same: embed them again")


def _signature(config: BuildConfig, source: artefacts.Manifest, embedded: artefacts.Manifest) -> str:
    """Changes with whatever the index is made of, and how."""
    asked = artefacts.checksum(config.questions) if config.questions else None
    made_of = [source.fingerprint, embedded.fingerprint, config.kind, config.part_rows, config.recall, asked]
    return json.dumps([*made_of, str(config.questions), config.encoder])


def _queries(config: BuildConfig, embedded: artefacts.Manifest) -> np.ndarray | None:
    """Vectors [B, D] of the sample questions, if there are any."""
    if not config.questions:
        return None
    name = config.encoder or embedded.config["name"]
    _check_encoder(name, config.vectors, embedded)
    return encode_sample_questions(config.questions, load_encoder(name))


def _check_encoder(name: str | None, vectors: Path, embedded: artefacts.Manifest) -> None:
    if name is not None and load_encoder(name).fingerprint != embedded.parents["encoder"]:
        raise Mismatch(f"encoder {name} is not the one that made {vectors}, or not any more")


class _Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - began, 1)


def _take_over(corpus: Path, source: artefacts.Manifest, made: Path) -> None:
    """Link passages and terms at once: hours later the corpus may have been updated.

    Raises Mismatch where that happens just now.
    """
    try:
        for name in source.files:
            if name.startswith(TAKEN_OVER) and not (made / name).exists():
                _link(corpus / name, made / name)
    except FileNotFoundError:
        if artefacts.peek_manifest(corpus).fingerprint == source.fingerprint:
            raise
    if artefacts.peek_manifest(corpus).fingerprint != source.fingerprint:
        raise Mismatch(f"{corpus} was changed just now: run again, with the vectors of what it is now")


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        aside = target.with_name(f".{target.name}")
        shutil.copy2(source, aside)
        aside.replace(target)


def _searched(
    config: BuildConfig,
    embedded: artefacts.Manifest,
    work: Path,
    queries: np.ndarray | None,
    clock: _Clock,
    progress: Progress,
) -> dict[str, Any] | None:
    """Write all files of ``made/dense``, but for what is there; how hard they are to be searched."""
    if not (work / SEARCH).is_file():
        dense = work / "made" / VECTORS_FOLDER
        dense.mkdir(exist_ok=True)
        vectors = open_shards(config.vectors, embedded.config["rows"])
        with clock.stage("vectors"):
            _once(work / ROWS, dense, lambda: mips.write_rows(vectors, config.kind, dense))
        tuned = None
        if config.kind != IndexKind.FLAT:
            _once(work / MERGED, dense, lambda: _graph(config, embedded, work, dense, clock, progress))
            with clock.stage("tune"):
                tuned = mips.tuned(
                    vectors, config.kind, dense, recall=config.recall, queries=queries, progress=progress
                )
        artefacts.write_text_whole(work / SEARCH, json.dumps(tuned and tuned.as_dict()))
    search: dict[str, Any] | None = json.loads((work / SEARCH).read_text())
    return search


def _graph(
    config: BuildConfig, embedded: artefacts.Manifest, work: Path, dense: Path, clock: _Clock, progress: Progress
) -> None:
    """Write FAISS's files into ``dense``."""
    plan = parts.Plan(
        vectors=config.vectors.resolve(),
        fingerprint=embedded.fingerprint,
        rows=embedded.config["rows"],
        kind=config.kind,
        part_rows=config.part_rows,
        folder=work / "parts",
    )
    with clock.stage("train"), progress.step("training", 1) as step:
        trained = parts.train(plan)
        step.at(1)
    with clock.stage("add"):
        files = parts.add(plan, trained, progress)
    with clock.stage("merge"):
        faiss_build.merge(plan.folder / trained.file, files, dense)


def _once(mark: Path, folder: Path, make: Callable[[], None]) -> None:
    """Let ``make`` write files into ``folder``, unless ``mark`` says that they are there: names and sizes."""
    with suppress(OSError, ValueError):
        expected = json.loads(mark.read_text())
        if all((folder / name).stat().st_size == size for name, size in expected.items()):
            return
    make()
    artefacts.write_text_whole(mark, json.dumps({file.name: file.stat().st_size for file in folder.iterdir()}))


def _seal(
    config: BuildConfig,
    source: artefacts.Manifest,
    embedded: artefacts.Manifest,
    made: Path,
    search: dict[str, Any] | None,
) -> artefacts.Manifest:
    """Sign the whole; what was taken over has the checksums that it had."""
    known = {name: entry for name, entry in source.files.items() if name.startswith(TAKEN_OVER)}
    sparse = RetrieverKind(source.config["retriever"]).needs_terms
    settings = {
        **source.config,
        "retriever": RetrieverKind.HYBRID if sparse else RetrieverKind.DENSE,
        "kind": config.kind,
        "recall": config.recall,
        "questions": str(config.questions) if config.questions else None,
        "encoder": config.encoder or embedded.config["name"],
        "built": embedded.config["rows"],
        "search": search,
    }
    parents = {"corpus": source.parents["corpus"], "encoder": embedded.parents["encoder"]}
    return artefacts.write_manifest(made, "index", settings, parents, known=known)


def main() -> None:
    with report_errors("index.build"):
        config = parse_config(BuildConfig, __doc__)
        with silence_ray():
            done = build(_absolute(config), progress=Bars())
    if config.json:
        print(json.dumps(asdict(done)))
        return
    passages = f"{done.passages:,} passage{'s' * (done.passages != 1)}"
    print(f"index {done.fingerprint} in {done.index}: {passages}, {done.megabytes:,.1f} MB of vectors")
    if done.search:
        print(format_recall(done.search))


def _absolute(config: BuildConfig) -> BuildConfig:
    return replace(
        config,
        corpus=resolve_shared_path(config.corpus, "--corpus"),
        vectors=resolve_shared_path(config.vectors, "--vectors"),
        out=resolve_shared_path(config.out, "--out"),
        questions=config.questions and resolve_shared_path(config.questions, "--questions"),
        encoder=config.encoder and str(resolve_shared_path(Path(config.encoder), "--encoder")),
    )


if __name__ == "__main__":
    main()
