"""Training loop of a span reader (``pipelines.span_reader.train``)."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipelines.common.best import BestWeights
from pipelines.common.examples.data_sets import TrainingSet, read_training_sets, split_held_out
from pipelines.common.examples.mining import PassageSearch
from pipelines.common.examples.passage_sampler import MinedPassages, PassageSampler, load_splitter
from pipelines.common.examples.retrieval_examples import list_gold_passages
from pipelines.common.examples.spans import ReaderBatch
from pipelines.common.questions import drop_known, make_question_keys, read_answerable
from pipelines.common.run import Run, open_run, write_model
from pipelines.common.run_directory import check_directory
from pipelines.span_reader.config import ReaderConfig
from pipelines.span_reader.data import BatchShape, ReaderBatches
from pipelines.span_reader.distant_supervision import RelevanceOrder, mine_passages, select_trainable
from pipelines.span_reader.loss import compute_losses, is_hard_step
from pipelines.span_reader.reader_evaluation import EvaluationSet, make_gold_set, make_open_set
from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.models.attention import BFLOAT16, choose_attention
from ragqa.models.pretrained import get_max_sequence, set_dropout
from ragqa.models.span_readers import SpanReader, load_reader, read_head_name
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.live import LiveRetriever, open_retriever
from ragqa.runtime.scorer import load_scorer, make_torch_scorer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast, is_bfloat16_fast
from ragqa.training.step import apply_gradients
from ragqa.types import Question


def main(config: ReaderConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Mine passages and train a reader, or continue a run; return the directory of the reader.

    Args:
        config: settings of the run.
        progress: shows the mined questions and the steps.
        notify: receives lines about the training questions, each evaluation, the chosen weights and a lowered input.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: as for ``train_step``.
    """
    check_directory(config.out)
    tokenizer = TextTokenizer(config.encoder)
    reader, teacher = load_models(config, tokenizer)
    if reader.max_tokens < config.max_input:
        limit = f"{config.encoder} reads at most {reader.max_tokens} wordpieces"
        notify(f"{limit}: --max-input is lowered from {config.max_input} to {reader.max_tokens}")
    config = replace(config, max_input=reader.max_tokens)
    excluded = make_question_keys(config.exclude)
    known = excluded | make_question_keys([config.dev] if config.dev else [])
    sets, held_out = read_training_sets(config.files, share=config.held_out, known=known)
    retriever = open_retriever(config.index, config.retriever) if config.index else None
    batches = make_batches(sets, retriever, tokenizer, config, progress=progress, notify=notify)
    is_first = parallel.is_first_process()
    held_out_sets = make_evaluation_sets(held_out, retriever, config, excluded) if is_first else []
    with open_run(config, reader, name="reader", progress=progress, notify=notify) as run:
        if config.device == "cpu" and is_bfloat16_fast(config.device):
            choose_attention(reader, BFLOAT16)
        best = BestWeights(run, "em")
        while True:
            if held_out_sets and run.step and run.is_due(config.eval_every):
                best.report(**evaluate(reader, tokenizer, held_out_sets, config))
            if run.is_due(config.save_every) and run.step:
                best.save()
            if run.is_done:
                break
            if config.patience:
                stale = parallel.broadcast_from_first(best.steps_since)
                if stale is not None and stale >= config.patience * config.eval_every:
                    break
            run.begin_step()
            train_step(run, reader, teacher, batches[run.step], config)
        best.restore()
    write_model(reader, config.out / "model", config.encoder / "tokenizer.json")
    return config.out / "model"


def train_step(
    run: Run, reader: SpanReader, teacher: SpanReader | None, parts: Sequence[ReaderBatch], config: ReaderConfig
) -> None:
    """Take an optimizer step on this process's share of a batch.

    Args:
        run: run in progress.
        reader: reader in training.
        teacher: reader whose scores the reader learns to imitate, or None.
        parts: windows of the questions, in parts that are computed one after the other; their gradients are added.
        config: settings of the run.

    Raises:
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    run.state.optimizer.zero_grad(set_to_none=True)
    size = config.batch // parallel.count_processes() // len(parts)
    is_hard, rows, tokens = is_hard_step(run.step, config), [], 0
    weight = parallel.compute_loss_weight(torch.ones(size, device=config.device)) / len(parts)
    for part in (part.to(config.device) for part in parts):
        losses = compute_losses(reader, teacher, part, size, config, is_hard=is_hard)
        (losses.total(config) * weight).backward()
        tokens += part.tokens
        rows.append(losses.measure(config))
    rate = config.compute_rate(run.step)
    norm = apply_gradients(run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    flops = count_flops(reader, tokens) + (count_flops(teacher, tokens) if teacher else 0.0)
    run.finish_step(
        **parallel.average_over_processes(means, weight * len(parts)),
        lr=rate,
        grad_norm=norm,
        tokens=parallel.sum_over_processes(tokens),
        flops=flops,
    )


def evaluate(
    reader: SpanReader, tokenizer: TextTokenizer, sets: Sequence[EvaluationSet], config: ReaderConfig
) -> dict[str, float]:
    """Evaluate a reader in training on held-out questions.

    Args:
        reader: reader in training.
        tokenizer: tokenizer of the reader.
        sets: held-out questions with passages.
        config: settings of the run.

    Returns:
        The scores of ``EvaluationSet.evaluate`` on each set, and ``em``, the unweighted mean of their exact match.
    """
    reader.eval()
    scorer = make_torch_scorer(reader, tokenizer, config.out, "in training", device=config.device)
    answering = ExtractiveReader(scorer, UNCALIBRATED)
    with autocast(config.device):  # takes half the time of float32, and training is in this precision
        scores = {name: value for part in sets for name, value in part.evaluate(answering).items()}
    reader.train()
    return {**scores, "em": float(np.mean([scores[f"{part.name}_em"] for part in sets]))}


def load_models(config: ReaderConfig, tokenizer: TextTokenizer) -> tuple[SpanReader, SpanReader | None]:
    """Load the reader to train, and its teacher; the teacher is None if the settings name none.

    Args:
        config: settings of the run.
        tokenizer: tokenizer of the encoder.

    Raises:
        BadInput: the encoder or the teacher is an export, ``early_layer`` does not fit the encoder, or the teacher has
            another head, other wordpieces or a smaller limit of wordpieces.
        ArtefactError, DamagedArtefact: a directory holds no model, or a damaged one.
    """
    for name, path in (("encoder", config.encoder), ("teacher", config.teacher)):
        if path and (path / artefacts.MANIFEST).is_file():
            words = "make torch weights of it with restore_weights of ragqa.runtime.restore"
            raise BadInput(f"--{name} {path} is an export: {words}")
    torch.manual_seed(config.seed)
    is_reader = read_head_name(config.encoder) == SpanReader.head_name
    reader = SpanReader.load(config.encoder) if is_reader else SpanReader.from_encoder(config.encoder)
    if config.early_layer:
        reader.add_early_head(config.early_layer)
    if config.absence:
        reader.config.reader_absence = True
    reader.to(config.device).train()
    reader.config.reader_tokens, reader.config.reader_span = config.max_input, config.max_span
    # The smaller of ``reader_tokens`` and the encoder's positions is saved, so that answering reads no more.
    reader.config.reader_tokens = reader.max_tokens
    set_dropout(reader, config.dropout)
    if config.freeze_embeddings:
        encoder: Any = reader.encoder
        encoder.get_input_embeddings().requires_grad_(False)
    if config.teacher is None:
        return reader, None
    teacher = load_reader(config.teacher)
    if not isinstance(teacher, SpanReader) or not TextTokenizer(config.teacher).tokenizes_like(tokenizer):
        raise BadInput(f"--teacher {config.teacher}: a reader of this recipe with the encoder's wordpieces is needed")
    if (longest := get_max_sequence(teacher.config)) < reader.max_tokens:
        raise BadInput(f"--teacher {config.teacher} reads {longest} wordpieces at most: lower --max-input to that")
    return reader, teacher.to(config.device).eval().requires_grad_(False)


def mine_training_passages(
    sets: Sequence[TrainingSet], retriever: LiveRetriever, config: ReaderConfig, progress: Progress
) -> list[MinedPassages]:
    """Mine passages for all questions, unless they were mined before in the run's directory.

    Args:
        sets: training questions.
        retriever: retriever that finds the passages.
        config: settings of the run.
        progress: shows the number of questions.

    Returns:
        The mined passages of the questions of all sets, in the same order.

    Raises:
        BadInput: ``rerank`` is a reader that does not score relevance, or as for ``mine_passages``.
        DamagedArtefact, SlowPattern: as for ``mine_passages``.
        ArtefactError, MissingExtra: as for ``load_scorer``, or the index is damaged.
    """
    assert config.index is not None
    manifest = artefacts.read_manifest(config.index, "index")
    identity: dict[str, Any] = {
        "index": manifest.fingerprint,
        "retriever": config.retriever or manifest.config["retriever"],
        "train": [artefacts.checksum(data_set.file.path) for data_set in sets],
        "patterns": [data_set.file.regex for data_set in sets],
        "questions": [len(data_set.questions) for data_set in sets],  # the rules that leave out questions may change
        "dev": config.dev and artefacts.checksum(config.dev),
        "refuse": [artefacts.checksum(file) for file in config.exclude],  # the old name, so that old files stay valid
        "held_out": config.held_out,
        "depth": config.depth,
        "pool": config.pool,
    }
    scorer = load_scorer(config.rerank, device=config.device) if config.rerank else None
    if scorer is not None:
        if scorer.head != SpanReader.head_name:
            words = f"a reader with the head '{SpanReader.head_name}' is needed, because '{scorer.head}'"
            raise BadInput(f"--rerank {config.rerank}: {words} does not score relevance")
        identity["rerank"] = scorer.fingerprint
    questions = [(question, data_set.file.regex) for data_set in sets for question in data_set.questions]
    search = PassageSearch(retriever, config.depth, config.pool)
    order = RelevanceOrder(scorer) if scorer else None
    with parallel.take_turns():
        return mine_passages(questions, search, config.out / "mined", identity, order=order, progress=progress)


def make_batches(
    sets: Sequence[TrainingSet],
    retriever: LiveRetriever | None,
    tokenizer: TextTokenizer,
    config: ReaderConfig,
    *,
    progress: Progress,
    notify: Notify,
) -> ReaderBatches:
    """Return the training batches; with an index, passages are mined first.

    Args:
        sets: training questions.
        retriever: retriever that finds passages, or None without an index.
        tokenizer: tokenizer of the reader.
        config: settings of the run.
        progress: shows the number of questions.
        notify: receives a line with the number of training questions of each file.

    Raises:
        BadInput, ArtefactError, MissingExtra: as for ``mine_training_passages`` and ``select_trainable``, or a question
            has no gold passage and there is no index.
    """
    mined: list[MinedPassages] = []
    if retriever is not None:
        sets, mined = select_trainable(sets, mine_training_passages(sets, retriever, config, progress))
    elif without := [data_set.file.path for data_set in sets if not all(map(list_gold_passages, data_set.questions))]:
        raise BadInput(f"{', '.join(map(str, without))}: questions without gold passages need --index")
    notify(
        "questions to train on: "
        + ", ".join(f"{len(data_set.questions):,} of {data_set.file.path}" for data_set in sets)
    )
    shape = BatchShape(
        batch=config.batch, parts=config.accumulate, max_tokens=config.max_input, max_span=config.max_span
    )
    store = retriever.passages if retriever else None
    sampler = PassageSampler(sets, mined, store, load_splitter(config.index, tokenizer), config.mix)
    return ReaderBatches(sets, sampler, tokenizer, shape, shares=config.shares, seed=derive_seed(config))


def derive_seed(config: ReaderConfig) -> int:
    """Return the seed of the batches: the seed of the run, changed if ``encoder`` is a reader.

    Otherwise a reader that was trained with the same seed would read the same passages in the same order again.

    Raises:
        ArtefactError: as for ``read_head_name``.
    """
    if read_head_name(config.encoder) is None:
        return config.seed
    return config.seed + int(artefacts.checksum(config.encoder / "model.safetensors")[:8], 16)


def make_evaluation_sets(
    held_out: Sequence[Sequence[Question]],
    retriever: LiveRetriever | None,
    config: ReaderConfig,
    excluded: Collection[str],
) -> list[EvaluationSet]:
    """Return the evaluation sets that select the weights: held-out articles and ``dev``.

    Args:
        held_out: questions about the held-out articles of each SQuAD file.
        retriever: retriever that finds passages for the questions of ``dev``, or None without an index.
        config: settings of the run.
        excluded: normalised texts of the questions to leave out, made by ``make_question_keys``.

    Raises:
        BadInput, BadLine: ``dev`` cannot be read, all its sampled questions are excluded, or ``patience`` is set
            without held-out questions.
    """

    def select(questions: Sequence[Question]) -> list[Question]:
        return drop_known(split_held_out(questions, config.sample, config.seed)[0], excluded)

    selected = [question for questions in held_out for question in select(questions)]
    sets = [make_gold_set(selected)] if selected else []
    if config.dev and retriever:
        if not (questions := select(read_answerable(config.dev))):
            raise BadInput(f"--dev {config.dev}: all of its questions are in the files of --exclude")
        sets.append(make_open_set(questions, retriever, config.read))
    if config.patience and not sets:
        raise BadInput("--patience waits for held-out questions: give --dev, or SQuAD's file with --held-out above 0")
    return sets
