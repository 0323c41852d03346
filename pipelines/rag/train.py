"""Retrieval-augmented generation: retriever and generator end to end, from questions and answers (Lewis et al. 2020).

    python -m pipelines.rag.train --corpus wiki.index --retriever runs/dpr/model --generator bart-large \\
        --questions train.jsonl --dev dev.jsonl --out runs/rag

A question asks for passages; a sequence-to-sequence model reads it beside each of them and writes the answer; the
likelihood, marginalised over the passages, teaches the tower of questions and the generator. The passages' vectors
stay as they are, as in the paper, or with ``--learn-passages`` their tower learns, too: then the index is made again
while training goes on, as in ``pipelines.realm.pretrain``. ``pipelines.common.assemble`` makes a pipeline of what
comes out.

Legend: B questions, K passages a question, T tokens of an answer, D width.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.common import generation
from pipelines.common.assemble import AssembleConfig
from pipelines.common.best import BestWeights
from pipelines.common.config import (
    HeldOutConfig,
    RefreshConfig,
    Rules,
    TrainingConfig,
    TrainingIndexConfig,
    above_0,
    at_least_0,
    one_of,
    schedule_rules,
    share_below_1,
    text_length,
)
from pipelines.common.learning_rates import LearningRates
from pipelines.common.processes import device_of
from pipelines.common.questions import read_training_questions
from pipelines.common.run import BatchLoss, Run, open_run, write_model
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.common.training_index.base import TrainingIndex, check_corpus_size
from pipelines.common.training_index.frozen import FrozenIndex
from pipelines.common.training_index.refreshed import RefreshedIndex
from ragqa.cli.groups import FLAT
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.pretrained import set_dropout
from ragqa.models.tower import Tower
from ragqa.objectives import IGNORED, sequence_nll, token_nll
from ragqa.progress import SILENT, Progress
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.health import Health, measure_retrieval
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.training.step import optimise, parameter_groups
from ragqa.types import Question


@dataclass(frozen=True, kw_only=True)
class RagConfig(TrainingConfig):
    """What is trained, on what, and for how long. RAG: DPR and BART-large, 100 epochs at most, k 5 or 10."""

    corpus: Path
    """Index directory of the passages."""
    retriever: Path
    """Directory of the dual encoder that retrieves: DPR's, or one of pipelines.realm.pretrain."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    writing: Annotated[generation.WritingConfig, FLAT]
    """Generator that training begins from."""
    marginal: Literal["token", "sequence"] = "token"
    """RAG-Token: any passage gives a token; RAG-Sequence: one gives the whole answer."""
    learn_passages: bool = False
    """Let the tower of passages learn, too, and refresh the index; the paper leaves it as it is."""
    steps: int = 100_000
    batch: int = 8
    """Questions a step."""
    k: int = 5
    """Passages of a question."""
    smoothing: float = 0.1
    """Share of the loss that asks for every token alike."""
    lr: float = 3e-5
    retriever_lr: float | None = None
    """Of the towers; by default that of the generator, as in the paper."""
    frozen: int | None = 0
    """Steps before the retriever learns: none, as in the paper, whose generator is BART; one that starts from nothing
    has to use passages first."""
    weight_decay: float = 0.001
    clip: float = 0.1
    """Largest norm of the gradient."""
    max_block: int = 288
    """Wordpieces of a passage, where their tower learns."""

    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index that proposes passages."""
    refresh: Annotated[RefreshConfig, FLAT] = RefreshConfig()
    """How the index follows the retriever, if the passage tower learns."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions."""

    def rules(self) -> Rules:
        """Return the rules of all settings."""
        return {
            **super().rules(),
            **schedule_rules(self.steps, self.lr, self.warmup),
            "batch": above_0(self.batch),
            "k": above_0(self.k),
            "marginal": one_of(self.marginal, ("token", "sequence")),
            "retriever_lr": at_least_0(self.retriever_lr),
            "frozen": at_least_0(self.frozen),
            "smoothing": share_below_1(self.smoothing),
            "max_block": text_length(self.max_block),
        }

    @property
    def rates(self) -> LearningRates:
        """Learning rates of retriever and generator."""
        return LearningRates(
            steps=self.steps,
            reader=self.lr,
            retriever=self.lr if self.retriever_lr is None else self.retriever_lr,
            frozen=self.steps // 2 if self.frozen is None else self.frozen,
            warmup=self.warmup,
        )


class Rag(nn.Module):
    """What is trained: the tower of questions or both, and the generator."""

    def __init__(self, retriever: DualEncoder | Tower, generator: RagGenerator) -> None:
        super().__init__()
        self.retriever, self.generator = retriever, generator
        self.operations = generation.operations(generator.seq2seq)

    @property
    def questions(self) -> Tower:
        """The tower of questions."""
        return self.retriever if isinstance(self.retriever, Tower) else self.retriever.questions


@dataclass(frozen=True)
class Read:
    """What a batch of questions comes to."""

    nll_B: Tensor
    """As it is learned from, so with smoothing."""
    gold_BKT: Tensor
    """log p(y_i | x, z, y_<i) of the answers' tokens."""
    alone_B1T: Tensor
    """The same with an empty passage, so without retrieval; without a gradient."""
    relevance_BK: Tensor
    rows_BK: np.ndarray
    """Of the passages."""
    counted_BT: Tensor
    tokens: int
    """That went through a model, padding included."""
    flops: float


def read(model: Rag, index: TrainingIndex, texts: list[str], answers: Sequence[str], config: RagConfig) -> Read:
    """Search with the live tower, score by live towers, and say the answers beside each passage."""
    generator = model.generator
    query_BD = index.encode(model.questions, texts, config.device)
    rows_BK = index.propose(query_BD.detach().float().cpu().numpy(), config.k)
    passages = [index.passages(rows) for rows in rows_BK]
    rows_BK = rows_BK[:, : max(1, *map(len, passages))]
    relevance_BK = generation.present(index.score(query_BD, rows_BK), rows_BK)
    labels_BT = generator.seq2seq.tokens.labels(answers, config.writing.max_answer).to(config.device)
    inputs = generator.inputs(texts, passages).to(config.device)
    alone = generator.inputs(texts, [[] for _ in texts]).to(config.device)
    with autocast(config.device):
        nll_B, gold_BKT = generator.scores(inputs, relevance_BK, labels_BT, smoothing=config.smoothing)
        with torch.no_grad():  # what retrieval is worth takes about one part in 3 K of the step
            _, alone_B1T = generator.scores(alone, torch.zeros_like(relevance_BK[:, :1]), labels_BT)
    reads, writes = model.operations
    tokens = inputs.ids_NL.numel() + rows_BK.size * labels_BT.shape[1]
    flops = reads * (inputs.ids_NL.numel() + alone.ids_NL.numel() / 3)
    flops += writes * labels_BT.numel() * (rows_BK.shape[1] + 1 / 3)
    if isinstance(index, RefreshedIndex):
        tokens, flops = tokens + index.encoded_tokens, flops + count_flops(model.retriever, index.encoded_tokens)
    return Read(nll_B, gold_BKT, alone_B1T, relevance_BK, rows_BK, labels_BT != IGNORED, tokens, flops)


def learn(model: Rag, index: TrainingIndex, asked: list[Question], answers: list[str], config: RagConfig) -> BatchLoss:
    """RAG's loss of a batch, and what it says of retrieval.

    ``nll`` is that of an answer, without smoothing; ``loss`` is what is learned from.
    """
    found = read(model, index, [question.text for question in asked], answers, config)
    loss, weighing = found.nll_B.mean(), parallel.compute_loss_weight(torch.ones_like(found.nll_B))
    with torch.no_grad():
        plain = token_nll if config.marginal == "token" else sequence_nll
        nll = plain(found.gold_BKT, found.relevance_BK, found.counted_BT).mean().item()
    health = measure_retrieval(
        found.gold_BKT,
        found.alone_B1T,
        found.relevance_BK,
        found.counted_BT,
        found.rows_BK,
        null=False,
        marginal="sequence",  # of the answers alone: a mean over them, as nll is
    )
    row = parallel.average_over_processes({"nll": nll, "loss": loss.item(), **health}, weighing)
    return BatchLoss(loss * weighing, row, found.tokens, found.flops)


def train_step(
    run: Run, model: Rag, index: TrainingIndex, teach: list[Question], config: RagConfig, *, staleness: int
) -> dict[str, float]:
    """One optimizer step; what it says of retrieval. Raises NonFiniteLoss before the weights change."""
    model.retriever.requires_grad_(run.step >= config.rates.frozen)
    taught = learn(
        model,
        index,
        *generation.draw_questions(teach, batch=config.batch, seed=config.seed, step=run.step),
        config,
    )
    norm = optimise(taught.loss, run.state.optimizer, rate=config.rates.at(run.step), clip=config.clip, step=run.step)
    run.finish_step(
        **taught.figures,
        grad_norm=norm,
        staleness=staleness,
        tokens=parallel.sum_over_processes(taught.tokens),
        flops=taught.flops,
    )
    return taught.figures


def begin(config: RagConfig, notify: Callable[[str], None] = lambda line: None) -> tuple[Rag, DualEncoder]:
    """The model as it begins, and the retriever of which part or all is in it."""
    retriever = DualEncoder.load(config.retriever)
    if retriever.shared and not config.learn_passages:  # what is learned of questions must not move the passages
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


def main(config: RagConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Path:
    """Train, or go on training; the directory of the retriever, beside which is that of the ``generator``.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
        StaleIndex, RefreshFailed: no index of the present weights could be made.
    """
    teach, ask = read_training_questions(config.questions, config.held_out, config.seed, notify)
    check_corpus_size(config.corpus, config.k, "--k")
    torch.manual_seed(config.seed)
    model, retriever = begin(config, notify)
    optimizer = torch.optim.AdamW(
        parameter_groups(model.retriever, model.generator, decay=config.weight_decay), lr=config.lr
    )
    with ExitStack() as held:
        run = held.enter_context(
            open_run(config, model, optimizer, steps=config.steps, name="RAG", progress=progress, notify=notify)
        )
        best, health = BestWeights(run, "em"), Health.from_state(run.state.extra.get("health"))
        index: TrainingIndex = (
            held.enter_context(closing(open_refreshed_index(config, retriever, run, progress)))
            if config.learn_passages
            else FrozenIndex.open(config.corpus, config.retriever, config, config.index, progress=progress)
        )
        while True:
            staleness = index.follow() if isinstance(index, RefreshedIndex) else 0
            if run.is_due(config.save_every):
                save(best, health, index)
            if ask and run.is_due(config.held_out.eval_every):
                examine(run, best, health, model, index, ask, config)
            if run.is_done:
                break
            step = run.step
            run.begin_step()
            row = train_step(run, model, index, teach, config, staleness=staleness)
            run.alarm(step, health.check_step(row))
        best.restore()
    if parallel.is_first_process():
        write_model(retriever, config.out / "model")
        generation.save(model.generator, config.out / "generator", config.out / "model")
    return config.out / "model"


def save(best: BestWeights, health: Health, index: TrainingIndex) -> None:
    """Write a checkpoint; no index but the first may be there without one."""
    refreshed = index if isinstance(index, RefreshedIndex) else None
    best.save(index=refreshed and refreshed.version, health=health.to_state())
    if refreshed:
        refreshed.keep_saved_versions()


def examine(
    run: Run,
    best: BestWeights,
    health: Health,
    model: Rag,
    index: TrainingIndex,
    ask: list[Question],
    config: RagConfig,
) -> None:
    """Ask held-out questions; the first of several processes does, and remembers what is alarming."""
    if not parallel.is_first_process():
        return
    search = generation.searching(index, model.questions, config.k, config.device)
    found = generation.evaluate(model.generator, search, ask, device=config.device, regex=config.held_out.regex)
    best.report(**found)
    run.alarm(run.step, [*health.check_recall(found["recall@5"], len(ask)), *health.check_answers(found["em"])])


def plan_pipeline(config: RagConfig, out: Path) -> AssembleConfig:
    """Return the settings that make a pipeline of a finished run."""
    return AssembleConfig(
        corpus=config.corpus,
        retriever=config.out / "model",
        generators=(config.out / "generator",),
        vectors=None if config.learn_passages else config.out / "vectors",
        out=out,
        kind=config.index.kind,
        workers=config.index.workers,
        dev=config.held_out.dev,
        regex=config.held_out.regex,
        taught=config.questions,
        judged_by=config.held_out.sample or 0,
        device=device_of(config),
        seed=config.seed,
    )


if __name__ == "__main__":
    from pipelines.common.processes import train_in_processes
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.rag.train"):
        print(train_in_processes(main, parse_config(RagConfig, __doc__), progress=Bars(), notify=print))
