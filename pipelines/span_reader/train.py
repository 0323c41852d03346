"""Train an extractive reader: spans normalised over all passages of a question, marginalised over its answers.

    python -m pipelines.span_reader.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \\
        --out gold.jsonl
    ragqa index wiki/ gold.jsonl --retriever bm25 --out reader.index
    python -m pipelines.span_reader.train --train squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \\
        nq/train.jsonl \\
        --index reader.index --encoder DIR --dev nq/dev.jsonl --out runs/reader

A question is read in its gold passage or, where only answers are known, in some that the index finds and that hold one
(distant supervision), and beside them in passages that hold none. All spans of all of them compete in one softmax
(Clark & Gardner 2018, "shared norm"), so that scores of different passages can be compared; every occurrence of an
answer is right, and what is learned is that some right span is chosen, whichever (ORQA, Lee et al. 2019, section 4), or
with ``--loss hard`` the one that is thought best (Min et al. 2019). The first token learns whether its passage holds an
answer at all. ``--teacher`` has a larger reader say how probable each span is.

Passages are read in the windows of answering: ``--max-input`` is what the reader says of itself as ``reader_tokens``.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipelines.common.best import Best
from pipelines.common.data_sets import TrainingSet, read_training_sets, split_held_out
from pipelines.common.mining import PassageSearch
from pipelines.common.negatives import list_gold_passages
from pipelines.common.questions import answerable, asked_in, unasked
from pipelines.common.run import Run, running, vacant, write_model
from pipelines.common.spans import ReaderBatch
from pipelines.span_reader.config import ReaderConfig
from pipelines.span_reader.data import Cut, ReaderBatches
from pipelines.span_reader.exam import Exam, gold_exam, open_exam
from pipelines.span_reader.loss import is_hard, losses
from pipelines.span_reader.mining import Mined, mine, teachable
from pipelines.span_reader.passages import Beside, splitter_of
from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.models.encoder_attention import BFLOAT16, choose_attention
from ragqa.models.pretrained import max_sequence_tokens, set_dropout
from ragqa.models.readers import load_reader, read_reader_kind
from ragqa.models.span_reader import SpanReader
from ragqa.progress import SILENT, Progress
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.live import LiveRetriever, open_retriever
from ragqa.runtime.scorer import torch_scorer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast, bfloat16_is_fast
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import apply_gradients, parameter_groups
from ragqa.types import Question


def train_step(
    run: Run, reader: SpanReader, teacher: SpanReader | None, parts: Sequence[ReaderBatch], config: ReaderConfig
) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    run.state.optimizer.zero_grad(set_to_none=True)
    size = config.batch // parallel.count_processes() // len(parts)
    hard, rows, tokens = is_hard(run.step, config), [], 0
    weighing = parallel.compute_loss_weight(torch.ones(size, device=config.device)) / len(parts)
    for part in (each.to(config.device) for each in parts):
        found = losses(reader, teacher, part, size, config, hard=hard)
        total = found.total(config)
        (total * weighing).backward()
        tokens += part.tokens
        figures = {"loss": total, "span_nll": found.nll_B, "relevance_bce": found.relevance_B, "right": found.right_B}
        figures |= {"kl": found.kl_B} if teacher else {}
        rows.append({name: value.float().mean().item() for name, value in figures.items()})
    rate = warmup_linear(
        run.step, peak=config.lr, warmup=warmup_steps(config.warmup, 1000, config.steps), total=config.steps
    )
    norm = apply_gradients(run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    flops = count_flops(reader, tokens) + (count_flops(teacher, tokens) if teacher else 0.0)
    run.stepped(
        **parallel.average_over_processes(means, weighing * len(parts)),
        lr=rate,
        grad_norm=norm,
        tokens=parallel.sum_over_processes(tokens),
        flops=flops,
    )


def examined(
    reader: SpanReader, tokenizer: TextTokenizer, exams: Sequence[Exam], config: ReaderConfig
) -> dict[str, float]:
    """What the exams come to, and ``em``, the mean of their exact matches."""
    reader.eval()
    scorer = torch_scorer(reader, tokenizer, config.out, "in training", device=config.device)
    answering = ExtractiveReader(scorer, UNCALIBRATED)
    with autocast(config.device):  # as in training, half the time
        found = {name: value for exam in exams for name, value in exam.taken(answering).items()}
    reader.train()
    return {**found, "em": float(np.mean([found[f"{exam.name}_em"] for exam in exams]))}


def stopped(best: Best, config: ReaderConfig) -> bool:
    """Whether as many evaluations as ``patience`` has were no better than the best."""
    stale = parallel.broadcast_from_first(best.stale)
    assert config.patience is not None
    return stale is not None and stale >= config.patience * config.eval_every


def begin(config: ReaderConfig, tokenizer: TextTokenizer) -> tuple[SpanReader, SpanReader | None]:
    """The reader as it begins, and its teacher."""
    torch.manual_seed(config.seed)
    goes_on = read_reader_kind(config.encoder) == SpanReader.kind
    reader = SpanReader.load(config.encoder) if goes_on else SpanReader.from_encoder(config.encoder)
    reader.to(config.device).train()
    reader.config.reader_tokens, reader.config.reader_span = config.max_input, config.max_span  # answers as trained,
    reader.config.reader_tokens = reader.max_tokens  # as far as its encoder has positions
    set_dropout(reader, config.dropout)
    if config.freeze_embeddings:
        encoder: Any = reader.encoder
        encoder.get_input_embeddings().requires_grad_(False)
    if config.teacher is None:
        return reader, None
    teacher = load_reader(config.teacher)
    if not isinstance(teacher, SpanReader) or not TextTokenizer(config.teacher).cuts_like(tokenizer):
        raise BadInput(f"--teacher {config.teacher}: a reader of this recipe with the encoder's wordpieces is needed")
    if (longest := max_sequence_tokens(teacher.config)) < reader.max_tokens:
        raise BadInput(f"--teacher {config.teacher} reads {longest} wordpieces at most: lower --max-input to that")
    return reader, teacher.to(config.device).eval().requires_grad_(False)


def mined(
    sets: Sequence[TrainingSet], retriever: LiveRetriever, config: ReaderConfig, progress: Progress
) -> list[Mined]:
    """What the index finds for all questions, searched for once."""
    assert config.index is not None
    manifest = artefacts.read_manifest(config.index, "index")
    identity: dict[str, Any] = {
        "index": manifest.fingerprint,
        "retriever": config.retriever or manifest.config["retriever"],
        "train": [artefacts.checksum(each.file.path) for each in sets],
        "patterns": [each.file.regex for each in sets],
        "questions": [len(each.questions) for each in sets],  # which are left out has changed, and may again
        "dev": config.dev and artefacts.checksum(config.dev),
        "refuse": [artefacts.checksum(file) for file in config.refuse],
        "held_out": config.held_out,
        "depth": config.depth,
        "pool": config.pool,
    }
    asked = [(question, each.file.regex) for each in sets for question in each.questions]
    search = PassageSearch(retriever, config.depth, config.pool)
    with parallel.take_turns():
        return mine(asked, search, config.out / "mined", identity, progress=progress)


def batches_of(
    sets: Sequence[TrainingSet],
    retriever: LiveRetriever | None,
    tokenizer: TextTokenizer,
    config: ReaderConfig,
    *,
    progress: Progress,
    notify: Callable[[str], None],
) -> ReaderBatches:
    """The questions that can be trained on, beside what is found for them.

    Raises:
        BadInput: questions have no passages, and there is no index to find some.
    """
    found: list[Mined] = []
    if retriever is not None:
        sets, found = teachable(sets, mined(sets, retriever, config, progress))
    elif without := [each.file.path for each in sets if not all(map(list_gold_passages, each.questions))]:
        raise BadInput(f"{', '.join(map(str, without))}: questions without passages need --index to find some")
    notify("questions to train on: " + ", ".join(f"{len(each.questions):,} of {each.file.path.name}" for each in sets))
    return ReaderBatches(
        sets,
        found,
        retriever.passages if retriever else None,
        tokenizer,
        shares=config.shares,
        split=splitter_of(config.index, tokenizer),
        beside=Beside(
            positives=config.positives,
            distant=config.distant,
            negatives=config.negatives,
            hard=config.hard,
            whole=config.whole,
            untitled=config.untitled,
        ),
        cut=Cut(batch=config.batch, parts=config.accumulate, max_tokens=config.max_input, width=config.max_span),
        seed=drawn_by(config),
    )


def drawn_by(config: ReaderConfig) -> int:
    """Seed of what is read: one that goes on from a reader would else read what that one read, in the same order."""
    if read_reader_kind(config.encoder) is None:
        return config.seed
    return config.seed + int(artefacts.checksum(config.encoder / "model.safetensors")[:8], 16)


def exams_of(
    held: Sequence[Sequence[Question]], retriever: LiveRetriever | None, config: ReaderConfig, refused: Collection[str]
) -> list[Exam]:
    """What the reader is asked as it learns: questions of held-out articles, those of ``dev``, or both.

    Raises:
        BadInput: ``dev`` has none but those of ``refuse``, or there are none at all, and ``patience`` waits for them.
    """

    def chosen(questions: Sequence[Question]) -> list[Question]:
        return unasked(split_held_out(questions, config.sample, config.seed)[0], refused)

    own = [question for file in held for question in chosen(file)]
    exams = [gold_exam(own)] if own else []
    if config.dev and retriever:
        if not (asked := chosen(answerable(config.dev))):
            raise BadInput(f"--dev {config.dev}: all that would be asked stands in a file of --refuse")
        exams.append(open_exam(asked, retriever, config.read))
    if config.patience and not exams:
        raise BadInput("--patience waits for held-out questions: give --dev, or SQuAD's file with --held-out above 0")
    return exams


def main(
    config: ReaderConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Mine and train, or go on with it; the directory of the reader.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
    """
    vacant(config.out)
    for name in ("encoder", "teacher"):
        path = getattr(config, name)
        if path and (path / artefacts.MANIFEST).is_file():
            raise BadInput(f"--{name} {path} is an export: ragqa.runtime.restore makes torch weights of it")
    tokenizer = TextTokenizer(config.encoder)
    reader, teacher = begin(config, tokenizer)
    if reader.max_tokens < config.max_input:
        most = f"{config.encoder} reads {reader.max_tokens} wordpieces at most"
        notify(f"{most}: trained with these, not {config.max_input}")
    config = replace(config, max_input=reader.max_tokens)
    refused = asked_in(config.refuse)
    known = refused | asked_in([config.dev] if config.dev else [])
    sets, held = read_training_sets(config.sources, share=config.held_out, known=known)
    retriever = open_retriever(config.index, config.retriever) if config.index else None
    batches = batches_of(sets, retriever, tokenizer, config, progress=progress, notify=notify)
    first = parallel.is_first_process()
    exams = exams_of(held, retriever, config, refused) if first else []
    optimizer = torch.optim.AdamW(parameter_groups(reader, decay=config.weight_decay), lr=config.lr)
    with running(config, reader, optimizer, name="reader", progress=progress, notify=notify) as run:
        if config.device == "cpu" and bfloat16_is_fast(config.device):
            choose_attention(reader, BFLOAT16)
        best = Best(run, "em")
        while True:
            if exams and run.step and run.due(config.eval_every):
                best.told(**examined(reader, tokenizer, exams, config))
            if run.due(config.save_every) and run.step:
                best.save()
            if run.done or (config.patience and stopped(best, config)):
                break
            run.begin()
            train_step(run, reader, teacher, batches[run.step], config)
        best.restore()
    if first:
        write_model(reader, config.out / "model", config.encoder / "tokenizer.json")
    return config.out / "model"


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.span_reader.train"):
        print(together(main, parse_config(ReaderConfig, __doc__), progress=Bars(), notify=print))
