r"""Build an index of passages and their vectors on all machines of a Ray cluster.

    python -m index.build --corpus wiki.index --vectors wiki.vectors --out wiki-dense.index --kind ivf-rabitq
    python -m index.build --corpus wiki.index --vectors wiki.vectors --out wiki-dense.index --kind hnsw \
        --recall 0.98 --questions dev.jsonl

The job turns the vectors of ``index.embed`` into an index that ``ragqa ask`` opens. It links the passages and the
terms of BM25. For an approximate kind it trains FAISS's quantiser on a sample, lets workers add parts of the vectors,
and merges the parts. Then it measures the search effort that reaches the target recall, on sample questions or on
queries made from the passages, and stores the effort in the manifest. After a kill, the same command continues from
the finished parts.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from index import faiss_parts
from index.ray_cluster import silence_ray
from ragqa import artefacts
from ragqa.artefacts import Manifest, resume
from ragqa.errors import BadInput, Mismatch
from ragqa.indexing.build import encode_sample_questions
from ragqa.indexing.embed import open_shards
from ragqa.indexing.summary import format_recall
from ragqa.progress import SILENT, Bars, Progress
from ragqa.retrieval.registry import VECTORS_FOLDER, RetrieverKind
from ragqa.retrieval.vectors import faiss_build, mips
from ragqa.retrieval.vectors.index_kinds import DEFAULT_RECALL, IndexKind
from ragqa.runtime.encoder import TextEncoder, load_encoder
from ragqa.settings.command_line import parse_config, report_errors, resolve_shared_paths
from ragqa.terminal import print_json, print_text
from ragqa.text import format_count

ROWS, MERGED, SEARCH = "rows.json", "merged.json", "search.json"
"""Files in the build folder that mark finished stages."""


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """Options of ``index.build``."""

    corpus: Path
    """Index directory with the passages; its terms also become part of the new index."""
    vectors: Path
    """Directory written by ``index.embed`` for these passages."""
    out: Path
    """Index directory to create or replace."""
    kind: Annotated[str, IndexKind] = IndexKind.IVF_RABITQ
    """Kind of vector index."""
    recall: float = DEFAULT_RECALL
    """Share of the 20 nearest passages that a search must find (approximate kinds)."""
    questions: Path | None = None
    """File of questions to measure recall; by default queries are made from the passages."""
    encoder: str | None = None
    """Encoder for questions: the encoder of the vectors in another form, for example its export. By default the
    encoder that made the vectors."""
    part_rows: int = faiss_build.PART_ROWS
    """Vectors per part; a worker holds one part in memory."""
    insecure: bool = False
    """Accept a Ray cluster that asks for no token, although everybody who reaches it can run code in it."""
    json: bool = False
    """Print the result as one JSON object."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that do not fit, or MissingExtra if the kind needs FAISS."""
        mips.check_kind(self.kind, "cpu")
        if not 0 < self.recall <= 1:
            raise BadInput(f"--recall {self.recall}: give a share above 0 and up to 1")
        if self.kind == IndexKind.FLAT and (self.questions or self.recall != DEFAULT_RECALL):
            options = "--recall and --questions are for approximate kinds"
            raise BadInput(f"{options}, and flat searches exactly: leave them out")
        if self.part_rows < 1:
            raise BadInput(f"--part-rows {self.part_rows}: give at least 1")


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """Result of ``index.build``."""

    index: str
    """Index directory."""
    fingerprint: str
    kind: str
    passages: int
    megabytes: float
    """Megabytes of vectors and FAISS files, without passages and terms."""
    seconds: dict[str, float]
    """Wall time in seconds of each stage of this run, by the name of the stage."""
    search: dict[str, Any] | None
    """Search effort and the recall that it reached; None for exact search."""


@dataclass(frozen=True)
class _Build:
    config: BuildConfig
    corpus: Manifest
    vectors: Manifest
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time_stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 1)

    @property
    def signature(self) -> str:
        """Text that identifies the inputs and options, so that a changed build starts anew."""
        config = self.config
        questions = artefacts.checksum(config.questions) if config.questions else None
        inputs = [self.corpus.fingerprint, self.vectors.fingerprint, config.kind, config.part_rows, config.recall]
        return json.dumps([*inputs, questions, str(config.questions), config.encoder])


def build(config: BuildConfig, *, progress: Progress = SILENT) -> BuildReport:
    """Build the index at ``config.out``; it replaces an existing index at the end of the build.

    Args:
        config: options of the build.
        progress: receiver of the progress of each stage.

    Raises:
        BadInput: ``out`` is something other than an index, or another process builds it; the questions or the Ray
            cluster cannot be used; or the disk is full.
        Mismatch: the vectors belong to another corpus, the corpus was updated during the build, or the encoder is not
            the one that made the vectors.
        RagqaError: the cluster was lost, or workers keep dying on the same part.
        ArtefactError, DamagedArtefact: corpus, vectors or encoder are missing or incomplete.
        MissingExtra: FAISS, Ray or a package of the encoder is not installed.
    """
    corpus = artefacts.read_manifest(config.corpus, "index")
    run = _Build(config, corpus, artefacts.read_manifest(config.vectors, "vectors"), progress)
    _check_inputs(run)
    out = config.out.resolve()
    artefacts.check_replaceable(out, "index")
    queries = None
    if config.questions:
        queries = encode_sample_questions(
            config.questions, _load_encoder(run, config.encoder or run.vectors.config["name"])
        )
    with artefacts.keep_checked(config.corpus, corpus), resume.open_workspace(out, run.signature) as work:
        if not resume.is_complete(work):
            _link_corpus(config.corpus, corpus, work / "made")
            search = _build_vectors(run, work, queries)
            _write_manifest(run, work / "made", search)
        resume.move_into_place(work, out)
        manifest = artefacts.peek_manifest(out)
    size = sum(entry["size"] for name, entry in manifest.files.items() if name.startswith(f"{VECTORS_FOLDER}/"))
    return BuildReport(
        index=str(config.out),
        fingerprint=manifest.fingerprint,
        kind=config.kind,
        passages=manifest.config["passages"],
        megabytes=round(size / 1e6, 1),
        seconds=run.seconds,
        search=manifest.config["search"],
    )


def _check_inputs(run: _Build) -> None:
    vectors, corpus, settings = run.config.vectors, run.config.corpus, run.corpus.config
    if run.vectors.parents["corpus"] != run.corpus.parents["corpus"]:
        raise Mismatch(f"{vectors} holds vectors of other passages than {corpus}: embed its passages again")
    if run.vectors.config["rows"] != settings.get("rows", settings["passages"]):
        raise Mismatch(f"{vectors} and {corpus} differ in their number of passages: embed them again")
    if run.config.encoder is not None:
        _load_encoder(run, run.config.encoder)


def _load_encoder(run: _Build, name: str) -> TextEncoder:
    encoder = load_encoder(name)
    if encoder.fingerprint != run.vectors.parents["encoder"]:
        raise Mismatch(f"encoder {name} is not the one that made {run.config.vectors}, or has changed since")
    return encoder


def _link_corpus(corpus: Path, manifest: Manifest, target: Path) -> None:
    """Link the files of passages and terms; raise Mismatch if the corpus has been updated.

    The build does this first, because an update could delete the files during the build.
    """
    try:
        for name in manifest.files:
            if _is_linked(name) and not (target / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                artefacts.link_file(corpus / name, target / name)
    except FileNotFoundError:
        if artefacts.peek_manifest(corpus).fingerprint == manifest.fingerprint:
            raise
    if artefacts.peek_manifest(corpus).fingerprint != manifest.fingerprint:
        raise Mismatch(f"{corpus} has just changed: embed its passages and run again")


def _is_linked(name: str) -> bool:
    return not name.startswith(f"{VECTORS_FOLDER}/")


def _build_vectors(run: _Build, work: Path, queries: np.ndarray | None) -> dict[str, Any] | None:
    """Write the missing files of the vector index; return its search effort, None if exact."""
    config = run.config
    if not (work / SEARCH).is_file():
        folder = work / "made" / VECTORS_FOLDER
        folder.mkdir(exist_ok=True)
        vectors = open_shards(config.vectors, run.vectors.config["rows"])
        with run.time_stage("vectors"):
            _make_once(work / ROWS, folder, lambda: mips.write_rows(vectors, config.kind, folder))
        tuned = None
        if config.kind != IndexKind.FLAT:
            _make_once(work / MERGED, folder, lambda: _build_faiss(run, work, folder))
            with run.time_stage("tune"):
                tuned = mips.tune_index(
                    vectors, config.kind, folder, recall=config.recall, queries=queries, progress=run.progress
                )
        artefacts.write_text_whole(work / SEARCH, json.dumps(tuned and tuned.as_dict()))
    search: dict[str, Any] | None = json.loads((work / SEARCH).read_text())
    return search


def _build_faiss(run: _Build, work: Path, folder: Path) -> None:
    plan = faiss_parts.PartsPlan(
        vectors=run.config.vectors.resolve(),
        fingerprint=run.vectors.fingerprint,
        rows=run.vectors.config["rows"],
        kind=run.config.kind,
        part_rows=run.config.part_rows,
        folder=work / "parts",
    )
    with run.time_stage("train"), run.progress.step("training", 1) as step:
        trained = faiss_parts.train(plan)
        step.advance_to(1)
    with run.time_stage("add"):
        files = faiss_parts.add(plan, trained, run.progress, run.config.insecure)
    with run.time_stage("merge"):
        faiss_build.merge_parts(plan.folder / trained.file, files, folder)


def _make_once(mark: Path, folder: Path, make: Callable[[], None]) -> None:
    """Call ``make`` to write files into ``folder``, unless ``mark`` lists them already."""
    with suppress(OSError, ValueError):
        expected = json.loads(mark.read_text())
        if all((folder / name).stat().st_size == size for name, size in expected.items()):
            return
    make()
    artefacts.write_text_whole(mark, json.dumps({file.name: file.stat().st_size for file in folder.iterdir()}))


def _write_manifest(run: _Build, folder: Path, search: dict[str, Any] | None) -> None:
    """Write the manifest; linked files have their checksums from the corpus and are not read."""
    config, corpus, vectors = run.config, run.corpus, run.vectors
    known = {name: entry for name, entry in corpus.files.items() if _is_linked(name)}
    settings = {
        **corpus.config,
        "retriever": RetrieverKind(corpus.config["retriever"]).with_vectors(),
        "kind": config.kind,
        "recall": config.recall,
        "questions": str(config.questions) if config.questions else None,
        "encoder": config.encoder or vectors.config["name"],
        "built": vectors.config["rows"],
        "search": search,
    }
    parents = {"corpus": corpus.parents["corpus"], "encoder": vectors.parents["encoder"]}
    artefacts.write_manifest(folder, "index", settings, parents, known=known)


def main() -> None:
    """Build an index from the command line."""
    with report_errors("index.build"):
        config = parse_config(BuildConfig, __doc__)
        with silence_ray():
            paths = ("corpus", "vectors", "out", "questions", "encoder")
            report = build(resolve_shared_paths(config, *paths), progress=Bars())
    if config.json:
        print_json(asdict(report))
        return
    passages = format_count(report.passages, "passages")
    print_text(f"index {report.fingerprint} in {report.index}: {passages}, {report.megabytes:,.1f} MB of vectors")
    if report.search:
        print_text(format_recall(report.search))


if __name__ == "__main__":
    main()
