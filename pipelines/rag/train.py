r"""Train retriever and generator end to end (RAG, Lewis et al. 2020) from questions and answers.

    python -m pipelines.rag.train --corpus wiki.index --retriever runs/dpr/model --generator bart-large \
        --questions train.jsonl --dev dev.jsonl --out runs/rag

For each question passages are retrieved; a sequence-to-sequence model reads the question with each passage and writes
the answer. The likelihood of the answer, marginalised over the passages, trains the question tower and the generator.
The vectors of the passages are fixed, as in the paper. With ``--learn-passages`` the passage tower learns, too, and the
index is refreshed during training, as in ``pipelines.realm.pretrain``. ``pipelines.common.assemble`` makes a pipeline
of the result.
"""

from contextlib import ExitStack, closing
from copy import deepcopy
from pathlib import Path

import torch

from pipelines.common import generation
from pipelines.common.assemble import AssembleConfig
from pipelines.common.best import BestWeights
from pipelines.common.command import run_recipe
from pipelines.common.questions import read_training_questions
from pipelines.common.run import Run, open_run, write_model
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.common.training_index import FrozenIndex, RefreshedIndex, TrainingIndex, check_corpus_size
from pipelines.rag.config import RagConfig
from pipelines.rag.losses import Rag, compute_loss
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.pretrained import set_dropout
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.health import Health
from ragqa.training.step import group_parameters
from ragqa.types import Question


def main(config: RagConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train, or continue a run.

    Args:
        config: settings of the run.
        progress: receives the number of steps done.
        notify: receives lines for the user: evaluations, alarms.

    Returns:
        The directory of the retriever; ``generator`` lies next to it.

    Raises:
        BadInput, ArtefactError: a setting, file or directory cannot be used.
        NonFiniteLoss: a step would have spoiled the weights.
        StaleIndex, RefreshFailed: no index of the present weights could be made.
    """
    training, held_out = read_training_questions(config.questions, config.held_out, config.seed, notify)
    check_corpus_size(config.corpus, config.k, "--k")
    torch.manual_seed(config.seed)
    model, retriever = load_models(config, notify)
    groups = group_parameters(model.retriever, model.generator, decay=config.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=config.lr)
    with ExitStack() as stack:
        run = stack.enter_context(
            open_run(config, model, optimizer, steps=config.steps, name="RAG", progress=progress, notify=notify)
        )
        best, health = BestWeights(run, "em"), Health.from_state(run.state.extra.get("health"))
        index: TrainingIndex = (
            stack.enter_context(closing(open_refreshed_index(config, retriever, run, progress)))
            if config.learn_passages
            else FrozenIndex.open(config.corpus, config.retriever, config, config.index, progress=progress)
        )
        while True:
            staleness = index.follow() if isinstance(index, RefreshedIndex) else 0
            if run.is_due(config.save_every):
                save_checkpoint(best, health, index)
            if held_out and run.is_due(config.held_out.eval_every) and parallel.is_first_process():
                scores = evaluate(model, index, held_out, config)
                best.report(**scores)
                alarms = health.check_recall(scores["recall@5"], len(held_out))
                run.alarm(run.step, [*alarms, *health.check_answers(scores["em"])])
            if run.is_done:
                break
            step = run.step
            run.begin_step()
            figures = train_step(run, model, index, training, config, staleness=staleness)
            run.alarm(step, health.check_step(figures))
        best.restore()
    if parallel.is_first_process():
        write_model(retriever, config.out / "model")
        generation.write_generator(model.generator, config.out / "generator", config.out / "model")
    return config.out / "model"


def train_step(
    run: Run, model: Rag, index: TrainingIndex, training: list[Question], config: RagConfig, *, staleness: int
) -> dict[str, float]:
    """Take one optimizer step and return its figures; raise NonFiniteLoss before the weights change."""
    model.retriever.requires_grad_(run.step >= config.rates.frozen)
    questions, answers = generation.draw_questions(training, batch=config.batch, seed=config.seed, step=run.step)
    batch = compute_loss(model, index, questions, answers, config)
    run.take_step(batch, rate=config.rates.at(run.step), clip=config.clip, staleness=staleness)
    return batch.figures


def load_models(config: RagConfig, notify: Notify = ignore_line) -> tuple[Rag, DualEncoder]:
    """Return the modules in training, and the retriever that they are part of."""
    retriever = DualEncoder.load(config.retriever)
    if retriever.is_shared and not config.learn_passages:
        # The question tower gets weights of its own: what it learns must not change the vectors of the passages.
        retriever = DualEncoder(deepcopy(retriever.questions), retriever.passages, tokenizer=retriever.tokenizer)
    generator = generation.load_for_training(f"rag-{config.marginal}", config, config.writing, config.k, notify)
    assert isinstance(generator, RagGenerator)
    set_dropout(retriever.train().to(config.device), config.dropout)
    return Rag(retriever if config.learn_passages else retriever.questions, generator), retriever


def open_refreshed_index(
    config: RagConfig, retriever: DualEncoder, run: Run, progress: Progress = SILENT
) -> RefreshedIndex:
    """Open the index of a run whose passage tower learns."""
    assert retriever.tokenizer is not None
    tokenizer = TextTokenizer(retriever.tokenizer.parent)
    passages = TokenizedPassages.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
    tower = retriever.passages
    tower.config.tower_tokens = min(config.max_block, tower.max_tokens)
    return RefreshedIndex(
        run,
        passages,
        retriever,
        config,
        config.index,
        config.refresh,
        corpus=config.corpus,
        frozen=config.rates.frozen,
    )


def save_checkpoint(best: BestWeights, health: Health, index: TrainingIndex) -> None:
    """Write a checkpoint; an index version other than the first must not exist without one."""
    refreshed = index if isinstance(index, RefreshedIndex) else None
    best.save(index=refreshed and refreshed.version, health=health.to_state())
    if refreshed:
        refreshed.keep_saved_versions()


def evaluate(model: Rag, index: TrainingIndex, held_out: list[Question], config: RagConfig) -> dict[str, float]:
    """Return exact match and recall on held-out questions."""
    find_passages = generation.make_passage_finder(index, model.questions, config.k, config.device)
    regex = config.held_out.regex
    return generation.evaluate_generator(model.generator, find_passages, held_out, device=config.device, regex=regex)


def plan_pipeline(config: RagConfig, out: Path) -> AssembleConfig:
    """Return the settings that make a pipeline of a finished run."""
    return AssembleConfig.after_training(
        config,
        config.index,
        config.held_out,
        corpus=config.corpus,
        generators=(config.out / "generator",),
        vectors=None if config.learn_passages else config.out / "vectors",
        out=out,
        train=config.questions,
    )


if __name__ == "__main__":
    run_recipe("pipelines.rag.train", RagConfig, __doc__, main)
