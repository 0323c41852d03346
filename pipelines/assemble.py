"""A pipeline of what was trained: both models exported, the passages indexed, and all of it named in one place.

    python -m pipelines.assemble --corpus wiki.index --retriever runs/tuned/model --reader runs/tuned/reader \\
        --vectors runs/tuned/vectors --out system
    ragqa ask --pipeline system/pipeline "…"

Nothing of it needs torch any more, and the directory can be moved as a whole.
"""

from dataclasses import dataclass
from pathlib import Path

from index.build import BuildConfig, build
from index.carry import carry
from index.embed import EmbedConfig, embed
from pipelines.fine_tune import FineTuneConfig
from pipelines.run import require
from ragqa.pipeline import PASSAGES, Pipeline
from ragqa.progress import SILENT, Progress
from ragqa.retrieval import mips
from ragqa.runtime.export import export


@dataclass(frozen=True, kw_only=True)
class AssembleConfig:
    """What a pipeline is put together from."""

    corpus: Path
    """Index directory of the passages; its terms, if it has any, go along."""
    retriever: Path
    """Directory of the trained dual encoder."""
    out: Path
    """Directory of the parts: encoder, reader, vectors, index, and pipeline, which names them."""
    reader: Path | None = None
    """Directory of the trained reader; by default the one that comes with ragqa reads."""
    vectors: Path | None = None
    """Vectors of the passages by the same tower of passages: need not be made again."""
    kind: str = "flat"
    """Of the index: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    read: int = PASSAGES
    """Passages that are read for a question."""
    workers: int = 0
    """Ray actors that embed; 0 embeds in this process."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        mips.check(self.kind, "cpu")
        require(read=(self.read, self.read > 0), workers=(self.workers, self.workers >= 0))


def after(tune: FineTuneConfig, out: Path) -> AssembleConfig:
    """What a pipeline is put together from once a fine-tuning is done."""
    return AssembleConfig(
        corpus=tune.corpus,
        retriever=tune.out / "model",
        reader=tune.out / "reader",
        vectors=tune.out / "vectors",
        out=out,
        kind=tune.kind,
        read=tune.read,
        workers=tune.workers,
        device=tune.device,
    )


def main(config: AssembleConfig, *, progress: Progress = SILENT) -> Path:
    """Export, embed, index; the pipeline directory.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, Mismatch: a directory is not what it should be.
        MissingExtra: exporting, or this kind of index, needs what is not installed.
    """
    out = config.out.resolve()
    encoder, vectors, index = out / "encoder", out / "vectors", out / "index"
    export(config.retriever, encoder)
    if config.reader:
        export(config.reader, out / "reader")
    if config.vectors:
        carry(config.vectors, config.retriever, vectors)
    gpus = config.device.startswith("cuda")
    embed(
        EmbedConfig(
            corpus=config.corpus, out=vectors, encoder=str(config.retriever), workers=config.workers, gpus=gpus
        ),
        progress=progress,
    )
    build(
        BuildConfig(corpus=config.corpus, vectors=vectors, out=index, kind=config.kind, encoder=str(encoder)),
        progress=progress,
    )
    reader = out / "reader" if config.reader else None
    pipeline = Pipeline.load(index, retriever="dense", encoder=str(encoder), reader=reader, k=config.read)
    pipeline.save(out / "pipeline")
    return out / "pipeline"


if __name__ == "__main__":
    from index.command import one_line, parse
    from ragqa.progress import Bars

    with one_line("pipelines.assemble"):
        print(main(parse(AssembleConfig, __doc__), progress=Bars()))
