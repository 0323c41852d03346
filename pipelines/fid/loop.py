"""Training loop of FiD and of the closed book (``pipelines.fid``).

Legend: B questions, T tokens of the longest answer.
"""

from dataclasses import replace
from pathlib import Path

import torch

from pipelines.common import generator_training
from pipelines.common.best import BestWeights
from pipelines.common.generator_training import PassageFinder
from pipelines.common.processes import train_in_processes
from pipelines.common.questions import read_training_questions
from pipelines.common.recipe_calibration import calibrate_reader, select_unseen_questions
from pipelines.common.retrieval_eval import KS
from pipelines.common.run import BatchLoss, open_run
from pipelines.common.training_index import check_corpus_size
from pipelines.fid.config import FidConfig
from ragqa import artefacts
from ragqa.models.generation.generator_kinds import GeneratorKind
from ragqa.models.generation.generators import Generator, read_generator_kind
from ragqa.pipeline import Pipeline
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.retrieval.live import open_retriever
from ragqa.training.health import Health
from ragqa.training.precision import autocast
from ragqa.types import Hit, Question


def train(config: FidConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train a generator, or continue a run; return the directory of the generator.

    Args:
        config: settings of the run.
        progress: shows the steps.
        notify: receives lines about the questions, the generator and the run.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    find_passages = open_passage_finder(config)
    torch.manual_seed(config.seed)
    kind, passages = (GeneratorKind.CLOSED_BOOK, 1) if config.is_closed_book else (GeneratorKind.FID, config.k)
    generator = generator_training.load_for_training(kind, config, config.writing, passages, notify)
    training, held_out = read_training_questions(config.questions, config.held_out, config.seed, notify)
    name = "closed book" if config.is_closed_book else "FiD"
    with open_run(config, generator, name=name, progress=progress, notify=notify) as run:
        best, health = BestWeights(run, "em"), Health.from_state(run.state.extra.get("health"))

        def evaluate() -> None:
            scores = generator_training.evaluate_generator(
                generator, find_passages, held_out, device=config.device, regex=config.held_out.regex
            )
            best.report(**scores)
            run.alarm(run.step, health.check_answers(scores["em"], reads_passages=not config.is_closed_book))

        for step in run.remaining_steps(
            config.save_every,
            save=lambda: best.save(health=health.to_state()),
            evaluate=evaluate if held_out else None,
            eval_every=config.held_out.eval_every,
        ):
            loss = compute_loss(generator, find_passages, training, config, step)
            run.take_step(loss, rate=config.compute_rate(step), clip=config.clip)
            health.check_step(loss.figures)
        best.restore()
    generator_training.write_generator(generator, config.out / "model")
    return config.out / "model"


def open_passage_finder(config: FidConfig) -> PassageFinder:
    """Return a function that searches the index, or that finds no passages for a closed book.

    Raises:
        BadInput, ArtefactError, MissingExtra: the index cannot be used, or has fewer than ``config.k`` passages.
    """
    if config.index is None or config.k == 0:
        return lambda texts: [[] for _ in texts]
    check_corpus_size(config.index, config.k, "--k")
    retriever = open_retriever(config.index, config.retriever, device=config.device)

    def find_passages(texts: list[str]) -> list[list[Hit]]:
        return retriever.search(texts, max(*KS, config.k))  # as many as recall needs, even if fewer are read

    return find_passages


def compute_loss(
    generator: Generator, find_passages: PassageFinder, training: list[Question], config: FidConfig, step: int
) -> BatchLoss:
    """Return the mean negative log-likelihood of the answers of a step, in nats.

    Args:
        generator: generator in training.
        find_passages: function that retrieves the passages.
        training: all training questions.
        config: settings of the run.
        step: number of the step, from 0; with the seed, it determines the questions and their answers.

    Raises:
        BadInput: the processes cannot share the batch evenly.
    """
    questions, answers = generator_training.draw_questions(training, batch=config.batch, seed=config.seed, step=step)
    texts = [question.text for question in questions]
    hits = [question_hits[: generator.passages] for question_hits in find_passages(texts)]
    passages = [[hit.passage for hit in question_hits] for question_hits in hits]
    inputs = generator.make_inputs(texts, passages).to(config.device)
    labels_BT = generator.seq2seq.tokens.make_labels(answers, config.writing.max_answer).to(config.device)
    with autocast(config.device):
        nll_B = generator.compute_nll(inputs, generator_training.stack_scores(hits, config.device), labels_BT)
    read, written = inputs.ids_NL.numel(), labels_BT.numel()
    read_flops, write_flops = generator_training.count_token_flops(generator.seq2seq)
    flops = read_flops * read + write_flops * written
    return BatchLoss.from_mean(nll_B.mean(), torch.ones_like(nll_B), tokens=read + written, flops=flops)


def main(config: FidConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train in ``config.processes`` processes, and write a pipeline if there is an index.

    Args:
        config: settings of the run.
        progress: shows the steps, and the questions of the calibration.
        notify: receives lines about the training and the calibration.

    Returns:
        The directory of the pipeline; without an index, the directory of the generator.

    Raises:
        RagqaError: an input cannot be used, a package is missing, or training fails.
    """
    if config.index is not None:
        artefacts.read_manifest(config.index, "index")  # an error now saves the user hours of training
    model = train_in_processes(train, config, progress=progress, notify=notify)
    if config.index is None:
        return model
    return publish(config, config.index, progress=progress, notify=notify)


def train_closed_book(config: FidConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train a closed-book generator: run ``main`` with ``config.k`` = 0."""
    return main(replace(config, k=0), progress=progress, notify=notify)


def publish(config: FidConfig, index: Path, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Calibrate the trained generator if there are held-out questions, and write its pipeline.

    Args:
        config: settings of the run.
        index: index directory of the pipeline.
        progress: shows the number of questions.
        notify: receives a line about the calibration.

    Returns:
        The directory of the pipeline.

    Raises:
        BadInput, ArtefactError, MissingExtra: a file of questions, the index or the generator cannot be used.
    """
    model, device, held_out = config.out / "model", config.single_device, config.held_out
    retriever = None if config.is_closed_book else config.retriever
    if held_out.dev and config.calibrate:
        line = calibrate_reader(
            model,
            open_retriever(index, retriever, device=device),
            select_unseen_questions(
                held_out.dev, config.questions, held_out.sample or 0, config.seed, config.calibrate
            ),
            None,
            name=held_out.dev.name,
            regex=held_out.regex,
            device=device,
            progress=progress,
        )
        notify(line)
    kind = read_generator_kind(model)
    pipeline = Pipeline.load(index, retriever=retriever, reader=model, readers={kind: model})
    pipeline.save(config.out / "pipeline")
    return config.out / "pipeline"
