"""A pipeline of what the authors of RAG have published: their checkpoint, and DPR's encoder of passages beside it.

    ragqa index psgs_w100.tsv --retriever bm25 --out wiki.index
    python -m pipelines.published --rag facebook/rag-token-nq --passages facebook/dpr-ctx_encoder-multiset-base \\
        --corpus wiki.index --out rag-nq
    ragqa ask --pipeline rag-nq/system/pipeline "…"

The checkpoint holds the tower of questions and the generator; its own index of passages is not read: the passages of
``--corpus`` are embedded by DPR's encoder, whose vectors that tower was trained beside. They are read as one segment,
where DPR has a [SEP] between title and text: scores differ a little from those of the published index. Nothing is
trained. What is written is what training writes, too: a ``model`` with both towers and a ``generator`` for
pipelines.rag to go on with, and in ``system`` what pipelines.assemble makes of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines import writing
from pipelines.assemble import AssembleConfig
from pipelines.assemble import main as assemble
from pipelines.settings import require
from ragqa import artefact
from ragqa.errors import ArtefactError, Mismatch
from ragqa.models.dpr import load_dpr
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generators import PublishedRag, load_rag, model_type
from ragqa.models.seq_tokens import SeqTokens
from ragqa.models.tower import Tower
from ragqa.progress import SILENT, Progress


@dataclass(frozen=True, kw_only=True)
class PublishedConfig:
    """What is put together."""

    rag: str
    """Checkpoint of RAG-Token or RAG-Sequence: a directory or a hub name."""
    passages: str
    """DPR's encoder of passages that its index was made with: a directory or a hub name."""
    corpus: Path
    """Index directory of the passages; its terms, if it has any, go along."""
    out: Path
    kind: str = "flat"
    """Of the index: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    workers: int = 0
    """Ray actors that embed; 0 embeds in this process."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(self)


def main(
    config: PublishedConfig, *, progress: Progress = SILENT, tell: Callable[[str], None] = lambda line: None
) -> Path:
    """Take both apart, embed, index; the pipeline directory.

    Raises:
        ArtefactError: one of the two is not what it should be.
        BadInput, DamagedArtefact: the corpus is not.
        Mismatch: their vectors or their vocabularies are not alike.
        MissingExtra: exporting, or this kind of index, needs what is not installed.
    """
    artefact.read(config.corpus, "index")  # before what takes long
    for source, kind in ((config.rag, "rag"), (config.passages, "dpr")):
        if (found := model_type(source)) != kind:
            raise ArtefactError(f"{source} is of the type {found}, and what is needed here is of the type {kind}")
    published, passages = load_rag(config.rag), Tower.from_dpr(*load_dpr(config.passages, "DPRContextEncoder"))
    check(config, published, passages)
    retriever, generator = config.out / "model", config.out / "generator"
    with artefact.writing(retriever) as folder:
        DualEncoder(published.questions, passages).save(folder)
        for tower in folder.iterdir():
            published.question_tokens.tokenizer.backend_tokenizer.save(str(tower / "tokenizer.json"))
    writing.save(published.generator, generator, retriever)
    tell(f"{published.generator.kind}, {published.generator.passages} passages a question")
    assembled = AssembleConfig(
        corpus=config.corpus,
        retriever=retriever,
        generators=(generator,),
        out=config.out / "system",
        kind=config.kind,
        workers=config.workers,
        device=config.device,
    )
    return assemble(assembled, progress=progress, tell=tell)


def check(config: PublishedConfig, published: PublishedRag, passages: Tower) -> None:
    """Raise Mismatch where questions and passages cannot belong together."""
    if published.questions.width != passages.width:
        widths = f"{published.questions.width} and {passages.width}"
        raise Mismatch(f"{config.rag} and {config.passages} have vectors of width {widths}: they must be alike")
    if published.question_tokens.tokenizer.get_vocab() != SeqTokens.load(config.passages).tokenizer.get_vocab():
        raise Mismatch(f"the vocabularies of {config.rag} and {config.passages} differ: they do not belong together")


if __name__ == "__main__":
    from index.command import one_line, parse
    from ragqa.progress import Bars

    with one_line("pipelines.published"):
        print(main(parse(PublishedConfig, __doc__), progress=Bars(), tell=print))
