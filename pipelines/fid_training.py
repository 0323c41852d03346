"""A generator that learns from questions and passages that others find, or from questions alone: what
``pipelines.fid`` and ``pipelines.closed_book`` share.

Legend: B questions, K passages a question.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from pipelines.common import generation
from pipelines.common.best import BestWeights
from pipelines.common.calibration import calibrate_reader, select_unseen_questions
from pipelines.common.config import HeldOutConfig, Rules, TrainingConfig, above_0, at_least_0, schedule_rules
from pipelines.common.processes import device_of
from pipelines.common.questions import read_training_questions
from pipelines.common.run import Run, open_run
from ragqa.cli.groups import FLAT
from ragqa.models.generation.generators import Generator, read_generator_kind
from ragqa.pipeline import Pipeline
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.live import open_retriever
from ragqa.training import parallel
from ragqa.training.health import Health
from ragqa.training.precision import autocast
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import optimise, parameter_groups
from ragqa.types import Question


@dataclass(frozen=True, kw_only=True)
class GeneratingConfig(TrainingConfig):
    """Settings that both have."""

    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    writing: Annotated[generation.WritingConfig, FLAT]
    """Generator that training begins from."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig(eval_every=500)
    """Held-out questions."""
    calibrate: int = 1000
    """Held-out questions on which confidence is fitted, at most."""
    steps: int = 10_000
    """Optimizer steps."""
    batch: int = 64
    """Questions a step."""
    lr: float = 1e-4
    """Learning rate at its peak."""

    def rules(self) -> Rules:
        """Return the rules of all settings."""
        return {
            **super().rules(),
            **schedule_rules(self.steps, self.lr, self.warmup),
            "batch": above_0(self.batch),
            "calibrate": at_least_0(self.calibrate),
        }


def train_step(
    run: Run,
    generator: Generator,
    search: generation.Search,
    teach: list[Question],
    config: GeneratingConfig,
    operations: tuple[int, int],
) -> dict[str, float]:
    """One optimizer step, and its ``nll``; raises NonFiniteLoss before the weights change."""
    asked, answers = generation.draw_questions(teach, batch=config.batch, seed=config.seed, step=run.step)
    texts = [question.text for question in asked]
    hits = [found[: generator.passages] for found in search(texts)]
    inputs = generator.inputs(texts, [[hit.passage for hit in found] for found in hits]).to(config.device)
    labels_BT = generator.seq2seq.tokens.labels(answers, config.writing.max_answer).to(config.device)
    with autocast(config.device):
        loss = generator.nll(inputs, generation.scores(hits, config.device), labels_BT).mean()
    weighing = parallel.compute_loss_weight(torch.ones(len(asked), device=config.device))
    warmup = warmup_steps(config.warmup, 1000, config.steps)
    rate = warmup_linear(run.step, peak=config.lr, warmup=warmup, total=config.steps)
    norm = optimise(loss * weighing, run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    read, wrote = inputs.ids_NL.numel(), labels_BT.numel()
    taught = parallel.average_over_processes({"nll": loss.item()}, weighing)
    run.finish_step(
        **taught,
        lr=rate,
        grad_norm=norm,
        tokens=parallel.sum_over_processes(read + wrote),
        flops=operations[0] * read + operations[1] * wrote,
    )
    return taught


def train(
    config: GeneratingConfig,
    generator: Generator,
    search: generation.Search,
    *,
    name: str,
    progress: Progress = SILENT,
    notify: Callable[[str], None] = lambda line: None,
) -> Path:
    """Train, or go on training; the directory of the generator.

    Args:
        config: see there.
        generator: as it begins.
        search: finds what it reads; nothing where the book is closed.
        name: of the work, for the bar.
        progress: told of the steps.
        notify: told of evaluations, a line each.

    Raises:
        BadInput: a file is not what it should be, or the run in the directory has other settings.
        NonFiniteLoss: training would have spoiled the weights.
    """
    teach, ask = read_training_questions(config.questions, config.held_out, config.seed, notify)
    operations = generation.operations(generator.seq2seq)
    optimizer = torch.optim.AdamW(parameter_groups(generator, decay=config.weight_decay), lr=config.lr)
    with open_run(config, generator, optimizer, steps=config.steps, name=name, progress=progress, notify=notify) as run:
        best, health = BestWeights(run, "em"), Health.from_state(run.state.extra.get("health"))
        while True:
            if run.is_due(config.save_every) and run.step:
                best.save(health=health.to_state())
            if ask and run.is_due(config.held_out.eval_every) and parallel.is_first_process():
                found = generation.evaluate(generator, search, ask, device=config.device, regex=config.held_out.regex)
                best.report(**found)
                run.alarm(run.step, health.check_answers(found["em"], reads=not generator.template.closed))
            if run.is_done:
                break
            run.begin_step()
            health.check_step(train_step(run, generator, search, teach, config, operations))
        best.restore()
    if parallel.is_first_process():
        generation.save(generator, config.out / "model")
    return config.out / "model"


def publish(
    config: GeneratingConfig,
    index: Path,
    *,
    retriever: str | None = None,
    progress: Progress = SILENT,
    notify: Callable[[str], None] = lambda line: None,
) -> Path:
    """The pipeline directory of an index and the generator that was trained, confidence fitted as ``assemble`` does."""
    model, device = config.out / "model", device_of(config)
    if config.held_out.dev and config.calibrate:
        fresh = select_unseen_questions(config.held_out.dev, config.questions, config.held_out.sample or 0, config.seed)
        order = np.random.default_rng(config.seed).permutation(len(fresh))[: config.calibrate]
        questions = [fresh[at] for at in np.sort(order)]
        found = open_retriever(index, retriever, device=device)
        line = calibrate_reader(
            model,
            found,
            questions,
            None,
            name=config.held_out.dev.name,
            regex=config.held_out.regex,
            device=device,
            progress=progress,
        )
        notify(line)
    kind = read_generator_kind(model)
    pipeline = Pipeline.load(index, retriever=retriever, reader=model, readers={kind: model})
    pipeline.save(config.out / "pipeline")
    return config.out / "pipeline"
