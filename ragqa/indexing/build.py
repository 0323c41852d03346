"""Documents to an index directory, in steps that a killed run does not do again.

    passages/       what can be found: Arrow, memory-mapped        (corpus.store)
    bm25/           the terms                                      (retrieval.bm25)
    dense/          vectors.npy, and FAISS's file where one is     (retrieval.mips)
    manifest.json   written last

Work goes on in ``.NAME.building`` beside the target, under a lock; what is whole of the index lies
there in ``made/``, the vectors in one file for 512 passages. The target changes at the end, at once.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import __version__, artefacts
from ragqa.artefacts import resume
from ragqa.corpus import hub
from ragqa.corpus.blocks import make_splitter
from ragqa.corpus.sources import CorpusReport, count_input_bytes, read_documents
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.corpus.walk import walk_files
from ragqa.errors import BadInput
from ragqa.indexing.embed import embed_shard, open_shards, prepare_shard_folder, read_shard_record, split_into_shards
from ragqa.progress import SILENT, Progress
from ragqa.questions import read_questions
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
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND, IndexKind
from ragqa.runtime.encoder import (
    DEFAULT,
    TextEncoder,
    encoder_path,
    is_export,
    load_encoder,
    tokenizer_folder,
)
from ragqa.runtime.tokens import TextTokenizer

SHARD = 512
"""Passages whose vectors are one file, and so the most that a kill costs."""
SAMPLE = 400
"""Questions on which recall is tried."""


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """How documents become an index."""

    retriever: str = DEFAULT_RETRIEVER
    """What the index can do: bm25, dense, or hybrid, which is both."""
    kind: str = DEFAULT_KIND
    """Of the dense part: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    recall: float = mips.RECALL
    """Share of the 20 nearest passages that an approximate kind is to find."""
    questions: str | None = None
    """File of sample questions on which that is tried; without it some are made up from the passages."""
    encoder: str = DEFAULT
    """Export, Hugging Face directory or hub name."""
    engine: str = DEFAULT_ENGINE
    """Of BM25: tantivy or lucene."""
    blocks: str = "words"
    """What a passage is: words, sentences or wordpieces."""
    block_size: int | None = None
    """Words (100 by default) or wordpieces (288) of a passage."""
    skip_bad: bool = False
    device: str = "cpu"
    """Where torch encoders and FAISS run; exports run on the CPU."""

    def __post_init__(self) -> None:
        choices = {
            "retriever": tuple(RetrieverKind),
            "kind": tuple(IndexKind),
            "engine": tuple(TermEngine),
            "blocks": ("words", "sentences", "wordpieces"),
        }
        wrong = [
            f"{name} '{getattr(self, name)}': choose one of {', '.join(allowed)}"
            for name, allowed in choices.items()
            if getattr(self, name) not in allowed
        ]
        if not 0 < self.recall <= 1:
            wrong.append(f"recall {self.recall}: a share above 0 and up to 1")
        if self.retriever in list(RetrieverKind) and not self.dense and self.kind != IndexKind.FLAT:
            wrong.append(f"kind {self.kind} is for vectors, and an index of {self.retriever} has none")
        elif self.kind == IndexKind.FLAT and (self.questions or self.recall != mips.RECALL):
            wrong.append("recall and questions are for approximate kinds: flat finds everything")
        if wrong:
            raise BadInput("; ".join(wrong))

    @property
    def dense(self) -> bool:
        """Whether vectors are part of the index."""
        return RetrieverKind(self.retriever).needs_vectors

    @property
    def sparse(self) -> bool:
        """Whether terms are part of the index."""
        return RetrieverKind(self.retriever).needs_terms


def build_index(
    paths: Sequence[Path], out: Path, config: IndexConfig | None = None, *, progress: Progress = SILENT
) -> CorpusReport:
    """Read documents, cut them into passages and index them into the directory ``out``.

    Raises:
        BadInput: nothing to index, an unreadable file, a directory that is not an index, a full disk.
        MissingExtra: the configuration needs a package that is not installed.
    """
    config = config or IndexConfig()
    if isinstance(paths, str | Path):
        raise BadInput(f"paths = {str(paths)!r}: a list of files and folders is needed")
    out = Path(out).resolve()
    # A citation leads back, and an encoder is found, from wherever the index is used.
    paths = [hub.make_absolute(path) for path in paths]
    if config.questions:
        config = replace(config, questions=str(Path(config.questions).absolute()))
    if Path(config.encoder).exists():
        config = replace(config, encoder=str(Path(config.encoder).absolute()))
    artefacts.check_replaceable(out, "index")
    encoder = _check_parts(config)
    queries = encode_sample_questions(config.questions, encoder) if encoder and config.questions else None
    with resume.open_workspace(out, _signature(paths, out, config, encoder)) as folder:
        if not resume.is_complete(folder):
            _make(folder, paths, config, encoder, queries, progress)
        report = CorpusReport(**json.loads(_report(folder).read_text()))
        resume.move_into_place(folder, out)
    return report


def _make(
    folder: Path,
    paths: Sequence[Path],
    config: IndexConfig,
    encoder: TextEncoder | None,
    queries: np.ndarray | None,
    progress: Progress,
) -> None:
    """All of the index, but for what an earlier run left whole."""
    made = folder / "made"
    _passages(folder, paths, config, progress)
    store = PassageStore.open(made / "passages")
    if config.sparse:
        _once(made, TERMS_FOLDER, lambda part: _terms(store, part, config.engine, progress))
    if encoder is not None:
        _vectors(folder, store, encoder, progress)
        _once(made, VECTORS_FOLDER, lambda part: _dense(folder, part, store, config, queries, progress))
    search = json.loads(_search(folder).read_text()) if encoder else None
    settings = {**asdict(config), "passages": len(store), "sources": [str(p) for p in paths], "search": search}
    parents = {"encoder": encoder.fingerprint} if encoder else {}
    artefacts.write_manifest(made, "index", settings, {"corpus": store.fingerprint(), **parents})


def _check_parts(config: IndexConfig) -> TextEncoder | None:
    """The encoder, if one is needed; raises now what would else be raised after hours of work."""
    if config.sparse:
        check_engine(config.engine)
    if not config.dense:
        return None
    mips.check_kind(config.kind, config.device)
    if config.kind == IndexKind.FLAT and config.device != "cpu" and is_export(encoder_path(config.encoder)):
        raise BadInput(
            f"--device {config.device}: encoder '{config.encoder}' is exported for the CPU; "
            "name a directory or a hub name with torch weights in --encoder"
        )
    return load_encoder(config.encoder, device=config.device)


def _signature(paths: Sequence[Path], out: Path, config: IndexConfig, encoder: TextEncoder | None) -> str:
    """Changes with ragqa, the configuration, the encoder, and any input file's path, size or time."""
    stats = []
    for file in walk_files(paths, on_error=lambda error: None):
        if hub.is_hub_name(file):
            stats.append((str(file), 0, 0))
            continue
        with suppress(OSError):
            stats.append((str(file), file.stat().st_size, file.stat().st_mtime_ns))
    questions = artefacts.checksum(Path(config.questions)) if encoder and config.questions else None
    maker = [__version__, artefacts.FORMAT, asdict(config), encoder.fingerprint if encoder else None, questions]
    return hashlib.sha256(json.dumps([maker, stats], default=str).encode()).hexdigest()


def _once(folder: Path, name: str, make: Callable[[Path], None]) -> None:
    """Make the part ``name`` of ``folder`` unless an earlier run left it whole."""
    if (folder / name).is_dir():
        return
    aside = folder / f".{name}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    make(aside)
    aside.rename(folder / name)


def _passages(folder: Path, paths: Sequence[Path], config: IndexConfig, progress: Progress) -> None:
    report = CorpusReport()

    def make(part: Path) -> None:
        tokenizer = None
        if config.blocks == "wordpieces":
            tokenizer = TextTokenizer(tokenizer_folder(config.encoder))
        split = make_splitter(config.blocks, config.block_size, tokenizer)
        documents = read_documents(paths, skip_bad=config.skip_bad, report=report)
        with progress.step("reading", count_input_bytes(paths), "B") as step, PassageWriter(part) as writer:
            for document in documents:
                writer.add_document(document, split(document.text, document.body))
                step.advance_to(report.bytes_read)
            step.advance_to(report.bytes_read)
        if not writer.rows:
            raise BadInput(f"nothing to index in {', '.join(map(str, paths))}: {_counts(report)}")
        _report(folder).write_text(json.dumps(asdict(report)))  # before the passages count as made

    _once(folder / "made", "passages", make)


def _report(folder: Path) -> Path:
    """Where it is kept what was read, and what was not."""
    return folder / "report.json"


def _counts(report: CorpusReport) -> str:
    counts = {k: v for k, v in asdict(report).items() if isinstance(v, int) and v and k != "bytes_read"}
    said = ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in counts.items()) or "no documents"
    return f"{said} ({report.notes[0]})" if report.notes else said


def _terms(store: PassageStore, part: Path, engine: str, progress: Progress) -> None:
    with progress.step(RetrieverKind.BM25, len(store), "passages") as step:
        BM25.build(store, part, engine=engine, progress=step.advance_to)


def _vectors(folder: Path, store: PassageStore, encoder: TextEncoder, progress: Progress) -> None:
    """A file of vectors for every ``SHARD`` passages."""
    target = folder / "vectors"
    if (folder / "made" / VECTORS_FOLDER).is_dir():
        return
    parts = split_into_shards(len(store), SHARD)
    missing = [shard for shard in parts if not read_shard_record(target, shard, encoder.fingerprint)]
    done = len(store) - sum(shard.last - shard.first for shard in missing)
    with prepare_shard_folder(target), progress.step("embedding", len(store), "passages", done) as step:
        for shard in missing:
            embed_shard(store, encoder, target, shard)
            done += shard.last - shard.first
            step.advance_to(done)


def _dense(
    folder: Path,
    part: Path,
    store: PassageStore,
    config: IndexConfig,
    queries: np.ndarray | None,
    progress: Progress,
) -> None:
    vectors = open_shards(folder / "vectors", len(store))
    tuned = mips.build(
        vectors, config.kind, part, device=config.device, recall=config.recall, queries=queries, progress=progress
    )
    _search(folder).write_text(json.dumps(tuned and tuned.as_dict()))  # before the vectors count as made


def _search(folder: Path) -> Path:
    """Where it is kept how hard the index is to be searched, until the manifest says it."""
    return folder / "search.json"


def encode_sample_questions(file: str | Path, encoder: TextEncoder) -> np.ndarray:
    """Vectors [B, D] of some of the questions in ``file``, on which recall is tried; raises as ``read_questions``."""
    questions = [question.text for question in read_questions(Path(file))]
    if not questions:
        raise BadInput(f"no questions in {file}")
    chosen = np.random.default_rng(0).permutation(len(questions))[:SAMPLE]
    return encoder.encode_questions([questions[row] for row in np.sort(chosen)])


def format_summary(report: CorpusReport, out: Path, *, as_json: bool = False) -> str:
    """What was indexed and what was left out, for people or for machines."""
    manifest = artefacts.peek_manifest(out)
    if as_json:
        found = {name: manifest.config[name] for name in ("passages", "search")}
        return json.dumps({"index": str(out), **found, **asdict(report)})
    size = sum(file["size"] for file in manifest.files.values()) / 1e6
    search = manifest.config["search"]
    counts = ((report.documents, "document"), (manifest.config["passages"], "passage"))
    said = ", ".join(f"{count} {what}{'s' * (count != 1)}" for count, what in counts)
    lines = [f"{said}, {size:.1f} MB in {out}", *([format_recall(search)] if search else [])]
    return "\n".join([*lines, *report.describe_problems()])


def format_recall(search: dict[str, Any]) -> str:
    """What the tuning of an index found, for people."""
    sample = f"{search['queries']} {'made-up queries' if search['made_up'] else 'questions'}"
    line = f"recall@20 {search['recall']:.3f} on {sample}"
    if search["sure"]:
        return line
    if search["recall"] >= search["wanted"]:
        return f"{line}: too few to be sure of the {search['wanted']} that is wanted"
    return f"{line}: less than the {search['wanted']} that is wanted, and no effort reaches it"
