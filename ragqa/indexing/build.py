"""Build an index from documents; after a kill, the next run continues the build.

    passages/       passages in memory-mapped Arrow files          (ragqa.corpus.store)
    files.json      files that were read, with size and time       (ragqa.indexing.file_table)
    bm25/           terms                                          (ragqa.retrieval.bm25)
    dense/          vectors, and the index of FAISS, if any        (ragqa.retrieval.vectors.store)
    manifest.json   written last

A build works under a lock in the workspace ``.NAME.building`` next to the target (``ragqa.artefacts.resume``). The
folder ``made/`` of the workspace has the finished parts of the index, and the folder ``vectors/`` the vectors in shards
of 512 passages (``ragqa.indexing.embed``). At the end, the build replaces the target in one step.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ragqa import __version__, artefacts
from ragqa.artefacts import resume
from ragqa.artefacts.paths import make_encoder_absolute
from ragqa.corpus import hub
from ragqa.corpus.formats.office.ocr import find_tesseract
from ragqa.corpus.passages import split_document
from ragqa.corpus.sources import CorpusReport
from ragqa.corpus.splitter_limits import Splitter
from ragqa.corpus.splitters import DEFAULT_BLOCKS, DEFAULT_SIZES, make_splitter
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.corpus.walk import walk_files
from ragqa.errors import BadInput
from ragqa.indexing.embed import embed_shard, open_shards, prepare_shard_folder, read_shard_record, split_into_shards
from ragqa.indexing.file_table import FileScan, write_table
from ragqa.indexing.read_progress import read_with_progress
from ragqa.progress import SILENT, Progress, Step
from ragqa.question_files import read_questions, sample_questions
from ragqa.retrieval.bm25 import BM25, check_engine
from ragqa.retrieval.registry import (
    DEFAULT_ENGINE,
    DEFAULT_RETRIEVER,
    TERMS_FOLDER,
    VECTORS_FOLDER,
    RetrieverKind,
    TermEngine,
)
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, DEFAULT_RECALL, IndexKind
from ragqa.runtime.encoder import (
    DEFAULT_ENCODER,
    TextEncoder,
    find_tokenizer,
    get_encoder_path,
    is_export,
    load_encoder,
)
from ragqa.runtime.tokens import TextTokenizer

SHARD = 512
"""Number of passages whose vectors share a file; after a kill, at most this number is embedded again."""
SAMPLE = 400
"""Maximum number of sample questions for the measurement of recall."""
REPORT_FILE, SEARCH_FILE = "report.json", "search.json"
"""Files of a workspace: the report on the documents that were read, and the result of tuning the search."""


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """Options of an index build.

    Raises:
        BadInput: an option is unknown or out of range, or two options do not fit together.
    """

    retriever: str = DEFAULT_RETRIEVER
    """Retriever of the index, a ``RetrieverKind``."""
    kind: str = DEFAULT_KIND
    """Kind of vector index, an ``IndexKind``."""
    recall: float = DEFAULT_RECALL
    """Share of the 20 nearest passages that a search should find, for approximate kinds."""
    questions: str | None = None
    """File of sample questions to measure recall; None to make queries from the passages."""
    encoder: str = DEFAULT_ENCODER
    """Export, Hugging Face directory or hub name of the encoder."""
    engine: str = DEFAULT_ENGINE
    """Engine of BM25, a ``TermEngine``."""
    blocks: str = DEFAULT_BLOCKS
    """Kind of splitter of documents into passages, a key of ``DEFAULT_SIZES``."""
    block_size: int | None = None
    """Maximum size of a passage, in wordpieces for ``blocks="wordpieces"``, else in words; None for 288 or 100."""
    ocr: bool = False
    """True to read images and scanned pages with Tesseract, which must be installed."""
    strict: bool = False
    """True to stop at the first malformed file or record instead of leaving it out."""
    device: str = "cpu"
    """Device of torch encoders and FAISS; exports run on the CPU."""

    def __post_init__(self) -> None:
        choices: dict[str, list[str]] = {"retriever": [*RetrieverKind], "kind": [*IndexKind]}
        choices |= {"engine": [*TermEngine], "blocks": [*DEFAULT_SIZES]}
        errors = [
            f"{name} '{getattr(self, name)}': choose one of {', '.join(allowed)}"
            for name, allowed in choices.items()
            if getattr(self, name) not in allowed
        ]
        if not 0 < self.recall <= 1:
            errors.append(f"recall {self.recall}: it must be a share above 0 and up to 1")
        if self.retriever in choices["retriever"] and not self.needs_vectors and self.kind != IndexKind.FLAT:
            errors.append(f"kind {self.kind} is for vectors, and an index of {self.retriever} has none")
        elif self.kind == IndexKind.FLAT and (self.questions or self.recall != DEFAULT_RECALL):
            errors.append("recall and questions are for approximate kinds: flat finds everything")
        if errors:
            raise BadInput("; ".join(errors))

    @property
    def needs_vectors(self) -> bool:
        """True if the index has vectors."""
        return RetrieverKind(self.retriever).needs_vectors

    def make_absolute(self) -> "IndexConfig":
        """Return the options with absolute paths of the questions and the encoder."""
        questions = str(Path(self.questions).absolute()) if self.questions else None
        return replace(self, questions=questions, encoder=make_encoder_absolute(self.encoder))


def build_index(
    paths: Sequence[Path], out: Path, config: IndexConfig | None = None, *, progress: Progress = SILENT
) -> CorpusReport:
    """Build an index: read documents, split them into passages, and index the passages.

    Args:
        paths: files, folders, and names of data sets ``hf:…``.
        out: directory of the index; an existing index is replaced.
        config: options of the index; by default a hybrid index.
        progress: receiver of progress reports.

    Returns:
        The report on the documents that were read.

    Raises:
        BadInput: a path or option cannot be used, no document has text, ``out`` is not an index, another process
            changes it, or the disk is full; with ``config.strict``, a file cannot be read.
        BadLine: with ``config.strict``, a record of a file is malformed.
        ArtefactError, DamagedArtefact, Mismatch: the encoder does not exist, is damaged, or cannot be used.
        MissingExtra: the configuration needs a package that is not installed.
    """
    config = config or IndexConfig()
    if isinstance(paths, str | Path):
        raise BadInput(f"paths = {str(paths)!r}: a list of files and folders is needed")
    out = Path(out).resolve()
    # Absolute, so that cited files and the encoder are found from every working directory.
    paths, config = [hub.make_absolute(path) for path in paths], config.make_absolute()
    artefacts.check_replaceable(out, "index")
    encoder = _load_parts(config)
    queries = encode_sample_questions(config.questions, encoder) if encoder and config.questions else None
    with resume.open_workspace(out, _compute_signature(paths, config, encoder)) as folder:
        if not resume.is_complete(folder):
            _IndexBuild(folder, paths, config, encoder, queries, progress).run()
        report = CorpusReport(**json.loads((folder / REPORT_FILE).read_text()))
        resume.move_into_place(folder, out)
    return report


def open_splitter(blocks: str, size: int | None, encoder: str, *, has_vectors: bool) -> Splitter:
    """Return the splitter of documents into passages.

    Args:
        blocks: kind of splitter, as for ``make_splitter``.
        size: maximum size of a passage, as for ``make_splitter``.
        encoder: encoder whose tokenizer counts wordpieces: export, Hugging Face directory or hub name.
        has_vectors: True if the passages get vectors; else only ``wordpieces`` needs the tokenizer.

    Raises:
        BadInput: the kind is unknown, or the size is out of range.
        ArtefactError, DamagedArtefact: the encoder does not exist, or its tokenizer is damaged.
        MissingExtra: the encoder must be downloaded, and transformers is not installed.
    """
    tokenizer = TextTokenizer(find_tokenizer(encoder)) if has_vectors or blocks == "wordpieces" else None
    return make_splitter(blocks, size, tokenizer)


def encode_sample_questions(file: str | Path, encoder: TextEncoder) -> np.ndarray:
    """Return the float32 vectors [questions, width] of at most ``SAMPLE`` questions of a file.

    The questions are chosen at random, but always the same.

    Args:
        file: question file.
        encoder: encoder of the questions.

    Raises:
        BadInput: the file cannot be read, has a malformed line, or has no questions.
    """
    questions = list(read_questions(Path(file)))
    if not questions:
        raise BadInput(f"no questions in {file}")
    return encoder.encode_questions([q.text for q in sample_questions(questions, len(questions), SAMPLE)])


def _load_parts(config: IndexConfig) -> TextEncoder | None:
    """Check all options before hours of work; return the encoder, or None without vectors."""
    if RetrieverKind(config.retriever).needs_terms:
        check_engine(config.engine)
    if config.ocr:
        find_tesseract()
    if not config.needs_vectors:
        return None
    mips.check_kind(config.kind, config.device)
    if config.kind == IndexKind.FLAT and config.device != "cpu" and is_export(get_encoder_path(config.encoder)):
        raise BadInput(
            f"--device {config.device}: encoder '{config.encoder}' is exported for the CPU; "
            "name a directory or a hub name with torch weights in --encoder"
        )
    return load_encoder(config.encoder, device=config.device)


def _compute_signature(paths: Sequence[Path], config: IndexConfig, encoder: TextEncoder | None) -> str:
    stats = []
    for file in walk_files(paths, on_error=lambda error: None):
        with suppress(OSError):
            is_remote = hub.is_hub_name(file)
            size, modified = (0, 0) if is_remote else (file.stat().st_size, file.stat().st_mtime_ns)
            stats.append((str(file), size, modified))
    questions = artefacts.checksum(Path(config.questions)) if encoder and config.questions else None
    settings = [__version__, artefacts.FORMAT, asdict(config), encoder.fingerprint if encoder else None, questions]
    return hashlib.sha256(json.dumps([settings, stats], default=str).encode()).hexdigest()


@dataclass(frozen=True)
class _IndexBuild:
    folder: Path
    """Workspace of the build."""
    paths: Sequence[Path]
    config: IndexConfig
    encoder: TextEncoder | None
    queries: np.ndarray | None
    """Vectors [questions, width] of the sample questions; None without a file of questions."""
    progress: Progress

    def run(self) -> None:
        index, config = self.folder / resume.BUILD_FOLDER, self.config
        _make_once(index, "passages", self._write_passages)
        store = PassageStore.open(index / "passages")
        if RetrieverKind(self.config.retriever).needs_terms:
            _make_once(index, TERMS_FOLDER, lambda part: build_terms(store, part, config.engine, self.progress))
        search = None
        if self.encoder is not None:
            if not (index / VECTORS_FOLDER).is_dir():
                self._embed(store, self.encoder)
            _make_once(index, VECTORS_FOLDER, lambda part: self._index_vectors(store, part))
            search = json.loads((self.folder / SEARCH_FILE).read_text())
        sources = [str(path) for path in self.paths]
        settings = {**asdict(config), "passages": len(store), "sources": sources, "search": search}
        parents = {"encoder": self.encoder.fingerprint} if self.encoder else {}
        artefacts.write_manifest(index, "index", settings, {"corpus": store.compute_fingerprint(), **parents})

    def _write_passages(self, part: Path) -> None:
        config, report, left_out = self.config, CorpusReport(), set[str]()
        split = open_splitter(config.blocks, config.block_size, config.encoder, has_vectors=self.encoder is not None)
        documents = read_with_progress(
            self.paths,
            self.progress,
            report,
            strict=config.strict,
            ocr=config.ocr,
            on_left_out=lambda document: left_out.add(document.path),
        )
        scan = FileScan(self.paths)
        with PassageWriter(part) as writer:
            for document in documents:
                writer.add_document(document, split_document(document, split))
        if not writer.rows:
            problems = "; ".join(line.strip() for line in report.describe_problems())
            raise BadInput(f"nothing to index in {', '.join(map(str, self.paths))}: {problems or 'no documents'}")
        # Both files are written before the passages count as finished, so a killed build cannot lose them.
        write_table(self.folder / resume.BUILD_FOLDER, scan.finish(scan.files, left_out))
        (self.folder / REPORT_FILE).write_text(json.dumps(asdict(report)))

    def _embed(self, store: PassageStore, encoder: TextEncoder) -> None:
        target = self.folder / "vectors"
        shards = split_into_shards(len(store), SHARD)
        missing = [shard for shard in shards if not read_shard_record(target, shard, encoder.fingerprint)]
        done = len(store) - sum(shard.last - shard.first for shard in missing)
        with prepare_shard_folder(target), self.progress.step("embedding", len(store), "passages", done) as step:
            for shard in missing:
                embed_shard(store, encoder, target, shard, on_done=_add_to(step, done))
                done += shard.last - shard.first
                step.advance_to(done)

    def _index_vectors(self, store: PassageStore, part: Path) -> None:
        tuned = mips.build(
            open_shards(self.folder / "vectors", len(store)),
            self.config.kind,
            part,
            device=self.config.device,
            recall=self.config.recall,
            queries=self.queries,
            progress=self.progress,
        )
        # The effort is written before the vectors count as finished, so a killed build cannot lose it.
        (self.folder / SEARCH_FILE).write_text(json.dumps(tuned and tuned.as_dict()))


def _add_to(step: Step, before: int) -> Callable[[int], None]:
    return lambda done: step.advance_to(before + done)


def build_terms(store: PassageStore, folder: Path, engine: str, progress: Progress) -> None:
    """Index the terms of all live passages into ``folder``, for BM25.

    Args:
        store: passages to index.
        folder: directory to write.
        engine: a ``TermEngine``.
        progress: receiver of progress reports.

    Raises:
        BadInput, MissingExtra: as for ``BM25.build``.
    """
    with progress.step(RetrieverKind.BM25, len(store), "passages") as step:
        BM25.build(store, folder, engine=engine, progress=step.advance_to)


def _make_once(folder: Path, name: str, make: Callable[[Path], None]) -> None:
    if not (folder / name).is_dir():
        with artefacts.create_directory(folder / name) as part:
            make(part)
