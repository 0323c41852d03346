"""What others have published, made into what is used here: RAG's checkpoints as pipelines, DPR's pairs as retrievers.

    ragqa index psgs_w100.tsv --retriever bm25 --out wiki.index
    python -m pipelines.publish --rag facebook/rag-token-nq --passages facebook/dpr-ctx_encoder-multiset-base \\
        --corpus wiki.index --out rag-nq
    ragqa ask --pipeline rag-nq/system/pipeline "…"

    python -m pipelines.publish --questions facebook/dpr-question_encoder-single-nq-base \\
        --passages facebook/dpr-ctx_encoder-single-nq-base --out dpr-nq
    ragqa index psgs_w100.tsv --retriever dense --encoder dpr-nq/model --out wiki.index

A checkpoint of RAG holds the tower of questions and the generator; its own index of passages is not read: the passages
of ``--corpus`` are embedded by DPR's encoder, whose vectors that tower was trained beside. They are read as one
segment, where DPR has a [SEP] between title and text: scores differ a little from those of the published index. Nothing
is trained. What is written is what training writes, too: a ``model`` with both towers, of RAG a ``generator`` for
pipelines.rag.train to go on with, and with a corpus, in ``system``, what pipelines.common.assemble makes of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.common import generation
from pipelines.common.assemble import AssembleConfig
from pipelines.common.assemble import main as assemble
from pipelines.common.config import require
from pipelines.common.run import held, settle
from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.models.dpr import load_dpr
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.generators import load_rag, read_model_type
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.tower import Tower
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND


@dataclass(frozen=True, kw_only=True)
class PublishedConfig:
    """What is put together."""

    passages: str
    """DPR's encoder of passages: a directory or a hub name."""
    out: Path
    rag: str | None = None
    """Checkpoint of RAG-Token or RAG-Sequence whose index was made with it: a directory or a hub name."""
    questions: str | None = None
    """DPR's encoder of questions that was trained with it, in place of ``rag``: a directory or a hub name."""
    corpus: Path | None = None
    """Index directory of the passages; its terms, if it has any, go along. Without it no pipeline is made."""
    kind: str = DEFAULT_KIND
    """Of the index: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    workers: int = 0
    """Ray actors that embed; 0 embeds in this process."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(self)
        if (self.rag is None) == (self.questions is None):
            raise BadInput("either --rag or --questions is needed: where questions' vectors come from")


def main(
    config: PublishedConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Take them apart, embed, index; the pipeline directory, or without a corpus that of the retriever.

    Raises:
        ArtefactError: one of the two is not what it should be.
        BadInput, DamagedArtefact: the corpus is not.
        Mismatch: their vectors or their vocabularies are not alike.
        MissingExtra: exporting, or this kind of index, needs what is not installed.
    """
    if config.corpus:
        artefacts.read_manifest(config.corpus, "index")  # before what takes long
    for source, kind in ((config.rag, "rag"), (config.questions, "dpr"), (config.passages, "dpr")):
        if source and (found := read_model_type(source)) != kind:
            raise ArtefactError(f"{source} is of the type {found}, and what is needed here is of the type {kind}")
    published = load_rag(config.rag) if config.rag else None
    asking = (published.questions, published.question_tokens) if published else questions_of(str(config.questions))
    passages = Tower.from_dpr(*load_dpr(config.passages, "DPRContextEncoder"))
    check(config, *asking, passages)
    retriever, generator = config.out / "model", config.out / "generator"
    config.out.mkdir(parents=True, exist_ok=True)
    with held(config.out):
        settle(config, begun=retriever.is_dir())
    with artefacts.replace_directory(retriever) as folder:
        DualEncoder(asking[0], passages).save(folder)
        for tower in folder.iterdir():
            asking[1].tokenizer.backend_tokenizer.save(str(tower / "tokenizer.json"))
    if published:
        generation.save(published.generator, generator, retriever)
        notify(f"{published.generator.kind}, {published.generator.passages} passages a question")
    if config.corpus is None:
        return retriever
    assembled = AssembleConfig(
        corpus=config.corpus,
        retriever=retriever,
        generators=(generator,) if published else (),
        out=config.out / "system",
        kind=config.kind,
        workers=config.workers,
        device=config.device,
    )
    return assemble(assembled, progress=progress, notify=notify)


def questions_of(source: str) -> tuple[Tower, Seq2SeqTokenizer]:
    """DPR's encoder of questions and its tokenizer."""
    return Tower.from_dpr(*load_dpr(source, "DPRQuestionEncoder")), Seq2SeqTokenizer.load(source)


def check(config: PublishedConfig, questions: Tower, tokens: Seq2SeqTokenizer, passages: Tower) -> None:
    """Raise Mismatch where questions and passages cannot belong together."""
    source = config.rag or config.questions
    if questions.width != passages.width:
        widths = f"{questions.width} and {passages.width}"
        raise Mismatch(f"{source} and {config.passages} have vectors of width {widths}: they must be alike")
    if tokens.tokenizer.get_vocab() != Seq2SeqTokenizer.load(config.passages).tokenizer.get_vocab():
        raise Mismatch(f"the vocabularies of {source} and {config.passages} differ: they do not belong together")


if __name__ == "__main__":
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.publish"):
        print(main(parse_config(PublishedConfig, __doc__), progress=Bars(), notify=print))
