r"""Make a pipeline from trained models: export, index the passages, calibrate the reader.

    python -m pipelines.common.assemble --corpus wiki.index --retriever runs/tuned/model --reader runs/tuned/reader \
        --vectors runs/tuned/vectors --dev dev.jsonl --train train.jsonl --out system
    ragqa ask --pipeline system/pipeline "…"

A span reader answers without torch. Generators (``--generators``) need torch; ``ragqa ask --reader rag-token …``
chooses one by its kind. The directory of ``--out`` can be moved as a whole.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from index.build import BuildConfig, build
from index.embed import EmbedConfig, embed, reuse_vectors
from pipelines.common.command import run_recipe
from pipelines.common.config import HeldOutConfig, TrainingConfig, TrainingIndexConfig
from pipelines.common.questions import read_answerable
from pipelines.common.recipe_calibration import calibrate_reader, select_unseen_questions
from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.pipeline import Pipeline
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.reading import registry
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, IndexKind
from ragqa.runtime.export import export
from ragqa.settings.checks import report_together, require_choice, require_non_negative, require_positive


@dataclass(frozen=True, kw_only=True)
class AssembleConfig:
    """Settings of the assembly of a pipeline."""

    corpus: Path
    """Index directory of the passages; its terms of BM25, if any, become part of the new index."""
    retriever: Path
    """Directory of the trained dual encoder."""
    out: Path
    """Directory to write: encoder, reader, generators, vectors, index, and the pipeline that names them."""
    reader: Path | None = None
    """Directory of the trained reader; default: the first generator or, without generators, the shipped reader."""
    generators: tuple[Path, ...] = ()
    """Directories of trained generators, at most one of each kind."""
    vectors: Path | None = None
    """Existing vectors, which are used if the passage tower of ``retriever`` made them; default: none."""
    kind: Annotated[str, IndexKind] = DEFAULT_KIND
    """Kind of vector index."""
    read: int | None = None
    """Number of passages that a span reader reads per question; default: 30. Generators read as many as in training."""
    workers: int = 0
    """Number of Ray actors that embed; 0 embeds in this process."""
    insecure: bool = False
    """Accept a Ray cluster that asks for no token; everybody who reaches the cluster can run code in it."""
    dev: Path | None = None
    """File of held-out questions on which confidence is calibrated; default: do not calibrate."""
    regex: bool = False
    """Treat the answers in ``dev`` as regular expressions (CuratedTREC)."""
    train: Path | None = None
    """File of the training questions; calibration does not use them."""
    selection_sample: int = 0
    """Number of questions of ``dev`` that selected the weights (``--sample`` of the training).
    Calibration does not use them if enough other questions remain."""
    calibrate: int = 1000
    """Largest number of held-out questions on which confidence is calibrated; 0 does not calibrate."""
    device: str = "cpu"
    """Device for embedding and generating: cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of the training; it determines which questions of ``dev`` selected the weights."""

    @report_together()
    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            BadInput: values are out of range.
            MissingExtra: the kind of index needs FAISS, which is not installed.
        """
        require_positive(self, "read")
        require_non_negative(self, "selection_sample", "workers", "calibrate")
        if require_choice(self, "kind", tuple(IndexKind)):
            mips.check_kind(self.kind, "cpu")

    @classmethod
    def after_training(
        cls, config: TrainingConfig, index: TrainingIndexConfig, held_out: HeldOutConfig, **parts: Any
    ) -> "AssembleConfig":
        """Return the settings that make a pipeline from a finished run.

        Args:
            config: settings of the run.
            index: settings of its index.
            held_out: settings of its held-out questions.
            parts: further settings of ``AssembleConfig``.
        """
        return cls(
            retriever=config.out / "model",
            kind=index.kind,
            workers=index.workers,
            dev=held_out.dev,
            regex=held_out.regex,
            selection_sample=held_out.sample or 0,
            insecure=config.insecure,
            device=config.single_device,
            seed=config.seed,
            **parts,
        )


def main(config: AssembleConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Make a pipeline from trained parts; return its directory.

    Args:
        config: settings of the assembly.
        progress: shows the embedding, the building of the index, and the calibration.
        notify: receives a line about the calibration of each reader.

    Raises:
        BadInput, BadLine, SlowPattern: a setting or a file of questions cannot be used.
        ArtefactError, DamagedArtefact, Mismatch: a directory is missing, damaged, or does not fit the others.
        MissingExtra: exporting, Ray or this kind of index needs a package that is not installed.
        RagqaError: the Ray cluster was lost.
    """
    for file in (config.dev, config.train):
        if file is not None:
            read_answerable(file)
    generators = get_generators_by_kind(config.generators)
    out = config.out.resolve()
    encoder, vectors, index = out / "encoder", out / "vectors", out / "index"
    if config.vectors:  # first, because the export takes minutes, and missing vectors should be reported before it
        reuse_vectors(config.vectors, config.retriever, vectors)
    export(config.retriever, encoder)
    if config.reader:
        export(config.reader, out / "reader")
    for kind, generator in generators.items():
        with artefacts.replace_directory(out / kind) as folder:
            shutil.copytree(generator, folder, dirs_exist_ok=True)
    gpus = config.device.startswith("cuda")
    embedding = EmbedConfig(
        corpus=config.corpus,
        out=vectors,
        encoder=str(config.retriever),
        workers=config.workers,
        gpus=gpus,
        insecure=config.insecure,
    )
    embed(embedding, progress=progress)
    indexing = BuildConfig(
        corpus=config.corpus,
        vectors=vectors,
        out=index,
        kind=config.kind,
        encoder=str(encoder),
        insecure=config.insecure,
    )
    build(indexing, progress=progress)
    return save_pipeline(config, progress=progress, notify=notify)


def save_pipeline(config: AssembleConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Calibrate the exported readers, and write the pipeline; return its directory.

    Args:
        config: settings; the directory ``out`` has the encoder, the readers and the index.
        progress: shows the number of questions.
        notify: receives a line about the calibration of each reader.

    Raises:
        BadInput, ArtefactError, MissingExtra: as for ``main``.
    """
    out = config.out.resolve()
    readers: dict[str, Path] = {registry.SPAN: out / "reader"} if config.reader else {}
    readers |= {kind: out / kind for kind in get_generators_by_kind(config.generators)}
    retriever = open_retriever(out / "index", RetrieverKind.DENSE, encoder=str(out / "encoder"))
    for name, reader in readers.items():
        line = calibrate_part(config, reader, retriever, progress)
        notify(f"{name}: {line}" if len(readers) > 1 else line)
    pipeline = Pipeline.load(
        out / "index",
        retriever=RetrieverKind.DENSE,
        encoder=str(out / "encoder"),
        reader=next(iter(readers.values()), None),
        k=config.read if config.reader or not readers else None,
        readers=readers if config.generators else {},
    )
    pipeline.save(out / "pipeline")
    return out / "pipeline"


def get_generators_by_kind(generators: tuple[Path, ...]) -> dict[str, Path]:
    """Return the directories of generators by kind, in the given order.

    Raises:
        BadInput: two generators have the same kind, or a directory has no generator.
    """
    # Imported here, because it loads torch, which --help does not need.
    from ragqa.models.generation.generators import read_generator_kind

    paths: dict[str, Path] = {}
    for path in generators:
        kind = read_generator_kind(path)
        if kind in paths:
            raise BadInput(f"{paths[kind]} and {path} are both {kind}: a pipeline has one generator of each kind")
        paths[kind] = path
    return paths


def calibrate_part(config: AssembleConfig, reader: Path, retriever: Retriever, progress: Progress) -> str:
    """Calibrate an exported reader or a generator; return a line about the result for the user.

    Without ``config.dev``, or if ``config.calibrate`` is 0, nothing is calibrated.

    Args:
        config: settings, which name the held-out questions.
        reader: directory of the reader or generator.
        retriever: retriever of the passages.
        progress: shows the number of questions.

    Raises:
        RagqaError: as for ``select_unseen_questions`` and ``calibrate_reader``.
    """
    if config.dev is None or not config.calibrate:
        return "confidence is the raw probability, because there are no held-out questions to calibrate on"
    return calibrate_reader(
        reader,
        retriever,
        select_unseen_questions(config.dev, config.train, config.selection_sample, config.seed, config.calibrate),
        None if registry.is_generator(reader) else config.read,
        name=config.dev.name,
        regex=config.regex,
        device=config.device,
        progress=progress,
    )


if __name__ == "__main__":
    run_recipe("pipelines.common.assemble", AssembleConfig, __doc__, main, in_processes=False)
