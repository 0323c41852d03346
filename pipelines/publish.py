r"""Make pipelines of published checkpoints, and add model cards to exports.

    ragqa index psgs_w100.tsv --retriever bm25 --out wiki.index
    python -m pipelines.publish --rag facebook/rag-token-nq --passages facebook/dpr-ctx_encoder-multiset-base \
        --corpus wiki.index --out rag-nq
    ragqa ask --pipeline rag-nq/system/pipeline "…"

    python -m pipelines.publish --questions facebook/dpr-question_encoder-single-nq-base \
        --passages facebook/dpr-ctx_encoder-single-nq-base --out dpr-nq
    ragqa index psgs_w100.tsv --retriever dense --encoder dpr-nq/model --out wiki.index

    python -m pipelines.publish --card CARD.md --export reader

A checkpoint of RAG holds the question tower and the generator. The published index of passages is not read. Instead,
the passages of ``--corpus`` are embedded by the DPR encoder with which the question tower was trained. Scores differ a
little from scores in the published index, because the encoder reads title and text without DPR's [SEP] between them.

Nothing is trained, but the output has the same directories as a training run: ``model`` has both towers; for RAG,
``generator`` has the generator, which pipelines.rag.train can train further. With a corpus, ``system/pipeline`` is the
pipeline, made by pipelines.common.assemble.

``--card`` adds a model card to an exported encoder or reader. Only the card and the manifest change.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pipelines.common.command import run_recipe
from pipelines.common.run_directory import lock_directory, record_settings
from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, IndexKind
from ragqa.runtime.export import CARD_FILE, amend_export
from ragqa.settings.checks import report_together, require_choice, require_non_negative


@dataclass(frozen=True, kw_only=True)
class PublishConfig:
    """Settings of the command: models to make a pipeline from, or a model card to add."""

    passages: str | None = None
    """Passage encoder of DPR: a directory or a hub name."""
    out: Path | None = None
    """Directory to write the models and the pipeline into."""
    rag: str | None = None
    """Checkpoint of RAG-Token or RAG-Sequence: a directory or a hub name.
    It must have been trained together with ``passages``."""
    questions: str | None = None
    """Question encoder of DPR, instead of ``rag``: a directory or a hub name.
    It must have been trained together with ``passages``."""
    corpus: Path | None = None
    """Index directory of the passages; default: make no pipeline."""
    kind: Annotated[str, IndexKind] = DEFAULT_KIND
    """Kind of vector index."""
    workers: int = 0
    """Number of Ray actors that embed the passages; 0 embeds in this process."""
    insecure: bool = False
    """Accept a Ray cluster that asks for no token; everybody who reaches the cluster can run code in it."""
    device: str = "cpu"
    """Device to embed on: cpu, cuda or cuda:N."""
    card: Path | None = None
    """Markdown file to add to ``export`` as model card."""
    export: Path | None = None
    """Directory of an exported encoder or reader that gets the card."""

    @report_together()
    def __post_init__(self) -> None:
        """Check the settings; raise BadInput, or MissingExtra if FAISS is needed and not installed."""
        require_non_negative(self, "workers")
        if require_choice(self, "kind", tuple(IndexKind)):
            mips.check_kind(self.kind, "cpu")
        if (self.card is None) != (self.export is None):
            raise BadInput("--card FILE and --export DIR belong together")
        if self.card and (self.rag or self.questions or self.passages):
            raise BadInput("--card adds a model card and does nothing else: leave out the names of models")
        if self.card:
            return
        if (self.rag is None) == (self.questions is None):
            raise BadInput("either --rag or --questions is needed: the encoder of questions")
        if self.passages is None or self.out is None:
            raise BadInput("--passages and --out are needed: the encoder of passages, and a directory to write")


def main(config: PublishConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Write published models and, with a corpus, their pipeline; or add a model card.

    Args:
        config: settings of the command.
        progress: shows the embedding and the building of the index.
        notify: receives lines about the generator and its confidence.

    Returns:
        The directory of the pipeline; without a corpus, of the retriever; with a card, of the export.

    Raises:
        ArtefactError, DamagedArtefact: a checkpoint, index or export has another format, or is damaged.
        BadInput: the card, the corpus or the directory ``out`` cannot be used.
        Mismatch: the encoders of questions and passages differ in width or vocabulary.
        MissingExtra: exporting, Ray or this kind of index needs a package that is not installed.
        RagqaError: the Ray cluster was lost.
    """
    if config.card and config.export:
        add_card(config.card, config.export)
        return config.export
    from pipelines.common import assemble  # needs torch, and --help does not

    assert config.out is not None and config.passages is not None
    if config.corpus:
        artefacts.read_manifest(config.corpus, "index")  # an error now saves the user minutes of loading
    retriever, generator = config.out / "model", config.out / "generator"
    kind = write_models(config, config.passages, config.out, notify)
    if config.corpus is None:
        return retriever
    assembled = assemble.AssembleConfig(
        corpus=config.corpus,
        retriever=retriever,
        generators=(generator,) if kind else (),
        out=config.out / "system",
        kind=config.kind,
        workers=config.workers,
        insecure=config.insecure,
        device=config.device,
    )
    return assemble.main(assembled, progress=progress, notify=notify)


def write_models(config: PublishConfig, passages: str, out: Path, notify: Notify) -> str | None:
    """Write the retriever and, for RAG, the generator.

    Args:
        config: settings, which name the checkpoint of RAG or the question encoder.
        passages: passage encoder of DPR, a directory or a hub name.
        out: directory to write into.
        notify: receives a line about the generator.

    Returns:
        The kind of the generator, or None without RAG.

    Raises:
        ArtefactError, DamagedArtefact, MissingExtra: a checkpoint is unusable, or needs a missing package.
        BadInput: ``out`` holds other files, or models of other checkpoints.
        Mismatch: the encoders of questions and passages differ in width or vocabulary.
    """
    # Imported here, so that --help needs no torch.
    from pipelines.common.generator_training import write_generator
    from ragqa.models.dpr import load_dpr_tower
    from ragqa.models.dual_encoder import DualEncoder
    from ragqa.models.generation.generators import load_rag, read_model_type
    from ragqa.models.generation.tokenizer import Seq2SeqTokenizer

    for source, expected_type in ((config.rag, "rag"), (config.questions, "dpr"), (passages, "dpr")):
        if source and (model_type := read_model_type(source)) != expected_type:
            raise ArtefactError(
                f"{source} is a model of type {model_type}, and a model of type {expected_type} is needed"
            )
    rag, source = load_rag(config.rag) if config.rag else None, config.rag or str(config.questions)
    questions = rag.questions if rag else load_dpr_tower(source, "DPRQuestionEncoder")
    tokenizer = (rag.question_tokens if rag else Seq2SeqTokenizer.load(source)).tokenizer
    passage_tower = load_dpr_tower(passages, "DPRContextEncoder")
    if questions.width != passage_tower.width:
        widths = f"{questions.width} and {passage_tower.width}"
        raise Mismatch(f"{source} and {passages} have vectors of width {widths}: they do not belong together")
    if tokenizer.get_vocab() != Seq2SeqTokenizer.load(passages).tokenizer.get_vocab():
        raise Mismatch(f"the vocabularies of {source} and {passages} differ: they do not belong together")
    retriever = out / "model"
    out.mkdir(parents=True, exist_ok=True)
    with lock_directory(out):
        record_settings(config, has_begun=retriever.is_dir())
    with artefacts.replace_directory(retriever) as folder:
        DualEncoder(questions, passage_tower).save(folder)
        for tower in folder.iterdir():
            tokenizer.backend_tokenizer.save(str(tower / "tokenizer.json"))
    if rag is None:
        return None
    write_generator(rag.generator, out / "generator", retriever)
    notify(f"{rag.generator.kind}, {rag.generator.passages} passages a question")
    return rag.generator.kind


def add_card(card: Path, export: Path) -> None:
    """Copy a model card to README.md of an exported encoder or reader.

    Args:
        card: Markdown file.
        export: directory of the export.

    Raises:
        BadInput: ``card`` does not exist, or is not text in UTF-8; or as for ``amend_export``.
        ArtefactError, DamagedArtefact, Mismatch: as for ``amend_export``.
    """
    if not card.is_file():
        raise BadInput(f"--card {card}: there is no such file")
    try:
        card.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"--card {card} is not in UTF-8: {error}") from error
    with amend_export(export) as folder:
        shutil.copyfile(card, folder / CARD_FILE)


if __name__ == "__main__":
    run_recipe("pipelines.publish", PublishConfig, __doc__, main, in_processes=False)
