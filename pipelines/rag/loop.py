"""Training loop of RAG (``pipelines.rag.train``)."""

from contextlib import closing
from copy import deepcopy
from pathlib import Path

import torch

from pipelines.common import generator_training
from pipelines.common.assemble import AssembleConfig
from pipelines.common.best import BestWeights
from pipelines.common.questions import read_training_questions
from pipelines.common.run import Run, open_run, write_model
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.common.training_index import FrozenIndex, RefreshedIndex, TrainingIndex, check_corpus_size
from pipelines.rag.config import RagConfig
from pipelines.rag.step import Rag, compute_loss
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.pretrained import set_dropout
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.health import Health


def main(config: RagConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train retriever and generator, or continue a run; return the directory of the retriever.

    The retriever is written into ``model`` in ``config.out``, and the generator into ``generator``.

    Args:
        config: settings of the run.
        progress: shows the embedding or tokenization of the passages, and the steps.
        notify: receives lines about the questions, the generator and the run.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        StaleIndex, RefreshFailed: as for ``RefreshedIndex.adopt_newer_index``.
        RagqaError: the Ray cluster was lost.
    """
    training, held_out = read_training_questions(config.questions, config.held_out, config.seed, notify)
    check_corpus_size(config.corpus, config.k, "--k")
    torch.manual_seed(config.seed)
    model, retriever = load_models(config, notify)
    opened = open_run(config, model, model.retriever, model.generator, name="RAG", progress=progress, notify=notify)
    with opened as run, closing(open_index(config, retriever, run, progress)) as index:
        best, health = BestWeights(run, "em"), Health.from_state(run.state.extra.get("health"))

        def save() -> None:
            best.save(index=index.version, health=health.to_state())
            index.keep_saved_versions()

        def evaluate() -> None:
            find_passages = generator_training.make_passage_finder(index, model.questions, config.k, config.device)
            scores = generator_training.evaluate_generator(
                model.generator, find_passages, held_out, device=config.device, regex=config.held_out.regex
            )
            best.report(**scores)
            alarms = health.check_recall(scores["recall@5"], len(held_out))
            run.alarm(run.step, [*alarms, *health.check_answers(scores["em"])])

        for step in run.remaining_steps(
            config.save_every,
            save=save,
            adopt_index=index.adopt_newer_index,
            evaluate=evaluate if held_out else None,
            eval_every=config.held_out.eval_every,
        ):
            model.retriever.requires_grad_(step >= config.rates.frozen)
            questions, answers = generator_training.draw_questions(
                training, batch=config.batch, seed=config.seed, step=step
            )
            loss = compute_loss(model, index, questions, answers, config)
            run.take_step(loss, rate=config.rates.compute_rates(step), clip=config.clip, staleness=index.staleness)
            run.alarm(step, health.check_step(loss.figures))
        best.restore()
    write_model(retriever, config.out / "model")
    generator_training.write_generator(model.generator, config.out / "generator", config.out / "model")
    return config.out / "model"


def load_models(config: RagConfig, notify: Notify = ignore_line) -> tuple[Rag, DualEncoder]:
    """Load the modules in training, and the dual encoder with both towers.

    Args:
        config: settings of the run.
        notify: receives a line if the generator is limited to shorter texts than the settings.

    Raises:
        ArtefactError, DamagedArtefact, Mismatch, BadInput, MissingExtra: the retriever or the generator cannot be used.
    """
    retriever = DualEncoder.load(config.retriever)
    if retriever.is_shared and not config.learn_passages:
        # The question tower gets its own weights, because the vectors of the passages must not change.
        retriever = DualEncoder(deepcopy(retriever.questions), retriever.passages, tokenizer=retriever.tokenizer)
    generator = generator_training.load_for_training(f"rag-{config.marginal}", config, config.writing, config.k, notify)
    assert isinstance(generator, RagGenerator)
    set_dropout(retriever.train().to(config.device), config.dropout)
    return Rag(retriever if config.learn_passages else retriever.questions, generator), retriever


def open_index(config: RagConfig, retriever: DualEncoder, run: Run, progress: Progress = SILENT) -> TrainingIndex:
    """Open the index that training searches; it is refreshed if the passage tower learns.

    Args:
        config: settings of the run.
        retriever: retriever in training.
        run: run in progress, whose checkpoints name the version of the index.
        progress: shows the number of passages.

    Raises:
        RagqaError: as for ``FrozenIndex.open`` and ``open_refreshed_index``.
    """
    if not config.learn_passages:
        return FrozenIndex.open(config.corpus, config.retriever, config, config.index, progress=progress)
    return open_refreshed_index(config, retriever, run, progress)


def open_refreshed_index(
    config: RagConfig, retriever: DualEncoder, run: Run, progress: Progress = SILENT
) -> RefreshedIndex:
    """Open the index of a run in which the passage tower learns.

    The tower is limited to ``config.max_block`` wordpieces. Arguments are as for ``open_index``.

    Raises:
        RagqaError: as for ``TokenizedPassages.open`` and ``RefreshedIndex``.
    """
    assert retriever.tokenizer is not None
    tokenizer = TextTokenizer(retriever.tokenizer.parent)
    passages = TokenizedPassages.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
    tower = retriever.passages
    tower.config.tower_tokens = min(config.max_block, tower.max_tokens)
    frozen = config.rates.frozen
    return RefreshedIndex(
        run, passages, retriever, config, config.index, config.refresh, corpus=config.corpus, frozen=frozen
    )


def plan_pipeline(config: RagConfig, out: Path) -> AssembleConfig:
    """Return the settings that make a pipeline from a finished run, in the directory ``out``."""
    return AssembleConfig.after_training(
        config,
        config.index,
        config.held_out,
        corpus=config.corpus,
        train=config.questions,
        out=out,
        generators=(config.out / "generator",),
        vectors=None if config.learn_passages else config.out / "vectors",
    )
