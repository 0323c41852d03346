"""Training loop of a dual encoder (``pipelines.dpr.train``)."""

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from pipelines.common.best import BestWeights
from pipelines.common.config import HeldOutConfig
from pipelines.common.contrastive import ContrastiveBatch, contrastive_step
from pipelines.common.retrieval_eval import HeldOutQuestions, evaluate_with_new_index
from pipelines.common.run import Run, open_run, write_model
from pipelines.common.run_directory import check_directory, lock_directory, record_settings
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.dpr.batches import RetrievalBatches
from pipelines.dpr.config import DprConfig
from pipelines.dpr.mine import EXAMPLES_FILE, mine_bm25_examples, mine_retriever_negatives
from ragqa import artefacts
from ragqa.errors import BadInput, MissingExtra
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.runtime.export import export
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel


def main(config: DprConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Mine examples, train a retriever and export it, or continue a run.

    Args:
        config: settings of the run.
        progress: shows mining, the tokenization of the passages, and the steps.
        notify: receives lines about mined examples, the rounds and the result.

    Returns:
        The directory of the retriever.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        RagqaError: the Ray cluster was lost.
    """
    first = load_start(config, 1)  # first, so that an error is raised before hours of mining
    check_inputs(config)
    if not (config.out / EXAMPLES_FILE).is_file():
        check_directory(config.out)
    config.out.mkdir(parents=True, exist_ok=True)
    with lock_directory(config.out):
        limit = first.passages.max_tokens
        config = replace(config, max_query=min(config.max_query, limit), max_block=min(config.max_block, limit))
        assert first.tokenizer is not None
        tokenizer = TextTokenizer(first.tokenizer.parent)
        with parallel.take_turns():
            mined = mine_bm25_examples(config, progress, notify)
            blocks = TokenizedPassages.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
        held_out_config = HeldOutConfig(dev=config.dev, sample=config.sample, regex=config.dev_regex)
        held_out = HeldOutQuestions.read(held_out_config, blocks, config.seed)
        examples, sizes = mined, {name: getattr(config, name) for name in ("batch", "hard", "max_query", "max_block")}
        for number in range(1, config.rounds + 1):
            if number > 1:
                folder, before = get_round_folder(config, number), get_round_folder(config, number - 1) / "model"
                with parallel.take_turns():
                    examples = mine_retriever_negatives(config, folder, before, mined, progress, notify)
            batches = RetrievalBatches(examples, blocks, **sizes, seed=(config.seed, number))
            train_round(config, number, batches, held_out, progress, notify)
        with parallel.take_turns():
            return publish(config, notify) if parallel.is_first_process() else config.out / "model"


def train_round(
    config: DprConfig,
    number: int,
    batches: RetrievalBatches,
    held_out: HeldOutQuestions | None,
    progress: Progress,
    notify: Notify,
) -> None:
    """Train the retriever of a round, unless the round is finished.

    An interrupted training continues from its newest checkpoint.

    Args:
        config: settings of the run.
        number: number of the round, from 1.
        batches: batches of training examples.
        held_out: held-out questions to measure recall on, or None.
        progress: shows the steps.
        notify: receives lines about the run of the round.

    Raises:
        BadInput: the round was trained with other settings or inputs.
        ArtefactError, DamagedArtefact: the weights to begin from, the recorded settings or a checkpoint cannot be read.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        RagqaError: as for ``evaluate_with_new_index``.
    """
    steps = config.steps or max(1, round(config.epochs * batches.per_epoch))
    folder = get_round_folder(config, number)
    settings = replace(config, out=folder, steps=steps, rounds=number, no_export=False)
    if (folder / "model").is_dir():  # the end of a round writes it
        record_settings(settings, has_begun=True)
        return
    torch.manual_seed(config.seed)
    retriever = load_start(config, number).to(config.device)
    retriever.limit_tokens(config.max_query, config.max_block)
    set_dropout(retriever.train(), config.dropout)
    with open_run(settings, retriever, name=f"DPR, round {number}", progress=progress, notify=notify) as run:
        best = BestWeights(run, "recall@5")

        def evaluate() -> None:
            assert held_out
            recall = evaluate_with_new_index(
                folder / "dev",
                retriever,
                held_out,
                config.corpus,
                device=config.device,
                workers=config.workers,
                insecure=config.insecure,
            )
            best.report(**recall)

        for step in run.remaining_steps(
            config.save_every,
            save=best.save,
            evaluate=evaluate if held_out else None,
            eval_every=config.eval_every,
        ):
            train_step(run, retriever, batches[step], settings)
        best.restore()
    write_model(retriever, folder / "model")


def train_step(run: Run, retriever: DualEncoder, batch: ContrastiveBatch, config: DprConfig) -> None:
    """Take an optimizer step on a batch of questions and passages.

    Args:
        run: run in progress.
        retriever: dual encoder in training.
        batch: questions and passages of all processes.
        config: settings of the round.

    Raises:
        BadInput, NonFiniteLoss: as for ``contrastive_step``.
    """
    rate = config.compute_rate(run.step, default_warmup=1237)
    padded = batch.pad_passages(parallel.count_processes())
    contrastive_step(run, retriever, padded, config, chunk=config.chunk, rate=rate, passages=len(batch.passages))


def check_inputs(config: DprConfig) -> None:
    """Check that the files of questions exist and that the corpus can be searched with BM25.

    Raises:
        BadInput, ArtefactError, MissingExtra: a file or the index cannot be used.
    """
    for file in (*config.questions, *config.patterns, *((config.dev,) if config.dev else ())):
        if not file.is_file():
            raise BadInput(f"{file}: no such file of questions")
    open_retriever(config.corpus, RetrieverKind.BM25)


def load_start(config: DprConfig, number: int) -> DualEncoder:
    """Load the retriever with which the round ``number``, from 1, begins.

    Raises:
        BadInput: the directory to begin from does not exist.
        ArtefactError, Mismatch: the directory to begin from has no encoder, or the tokenizer of another encoder.
    """
    if number > 1 and config.continue_weights:
        return DualEncoder.load(get_round_folder(config, number - 1) / "model")
    start = config.retriever or config.encoder
    assert start is not None
    if not start.is_dir():  # transformers would ask the hub for a model of this name
        raise BadInput(f"{start}: no such directory to begin from")
    if config.retriever is not None:
        return DualEncoder.load(start)
    return DualEncoder.from_encoder(start, width=config.width, pooling=config.pooling, shared=config.shared)


def get_round_folder(config: DprConfig, number: int) -> Path:
    """Return the directory of round ``number``, from 1."""
    return config.out / f"round-{number}"


def publish(config: DprConfig, notify: Notify) -> Path:
    """Copy the last round's model to ``model``, and export the copy to ``export``.

    Both directories are in ``config.out``. With ``config.no_export``, nothing is exported.

    Args:
        config: settings of the run.
        notify: receives a command to index with the retriever, and a line if packages for the export are missing.

    Returns:
        The directory ``model``.

    Raises:
        BadInput: a directory holds other files, or cannot be written.
        ArtefactError: the retriever cannot be exported.
    """
    model = config.out / "model"
    with artefacts.replace_directory(model) as folder:
        shutil.copytree(get_round_folder(config, config.rounds) / "model", folder, dirs_exist_ok=True)
    encoder = model
    if not config.no_export:
        try:
            export(model, config.out / "export")
            encoder = config.out / "export"
        except MissingExtra as error:
            notify(f"not exported: {error}")
    corpus = artefacts.peek_manifest(config.corpus).config
    documents = shlex.join(corpus["sources"]) if len(corpus["sources"]) <= 3 else "DOCUMENTS"
    # The encoder was trained on passages of this kind; `ragqa index` makes other ones by default.
    passages = f"--blocks {corpus['blocks']}" + (f" --block-size {size}" if (size := corpus["block_size"]) else "")
    notify(f"index with it: ragqa index {documents} --out NAME.index --retriever dense {passages} --encoder {encoder}")
    return model
