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
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.common import generation
from pipelines.common.best import Best
from pipelines.common.config import FollowingConfig, WritingConfig, require
from pipelines.common.questions import taught_and_asked
from pipelines.common.refreshed_index import LiveIndex
from pipelines.common.refreshed_training_index import LiveLibrary
from pipelines.common.run import Run, Taught, running, write_model
from pipelines.common.tokenized_passages import Blocks
from pipelines.common.training_index import Library, Shelf
from pipelines.realm.pretrain import passages_of, rates
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
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
class RagConfig(FollowingConfig, WritingConfig):
    """What is trained, on what, and for how long. RAG: DPR and BART-large, 100 epochs at most, k 5 or 10."""

    corpus: Path
    """Index directory of the passages."""
    retriever: Path
    """Directory of the dual encoder that retrieves: DPR's, or one of pipelines.realm.pretrain."""
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

    @property
    def retriever_peak(self) -> float:
        """The retriever's learning rate at its peak: by default the generator's, as in the paper."""
        return self.lr if self.retriever_lr is None else self.retriever_lr

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(self, smoothing=(0 <= self.smoothing < 1, "0 or more and below 1"))


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


def read(model: Rag, shelf: Shelf, texts: list[str], answers: Sequence[str], config: RagConfig) -> Read:
    """Search with the live tower, score by live towers, and say the answers beside each passage."""
    generator = model.generator
    query_BD = shelf.encode(model.questions, texts, config.device)
    rows_BK = shelf.propose(query_BD.detach().float().cpu().numpy(), config.k)
    passages = [shelf.passages(rows) for rows in rows_BK]
    rows_BK = rows_BK[:, : max(1, *map(len, passages))]
    relevance_BK = generation.present(shelf.relevance(query_BD, rows_BK), rows_BK)
    labels_BT = generator.seq2seq.tokens.labels(answers, config.max_answer).to(config.device)
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
    if isinstance(shelf, LiveLibrary):
        tokens, flops = tokens + shelf.encoded, flops + count_flops(model.retriever, shelf.encoded)
    return Read(nll_B, gold_BKT, alone_B1T, relevance_BK, rows_BK, labels_BT != IGNORED, tokens, flops)


def learn(model: Rag, shelf: Shelf, asked: list[Question], answers: list[str], config: RagConfig) -> Taught:
    """RAG's loss of a batch, and what it says of retrieval.

    ``nll`` is that of an answer, without smoothing; ``loss`` is what is learned from.
    """
    found = read(model, shelf, [question.text for question in asked], answers, config)
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
    return Taught(loss * weighing, row, found.tokens, found.flops)


def train_step(
    run: Run, model: Rag, shelf: Shelf, teach: list[Question], config: RagConfig, *, staleness: int
) -> dict[str, float]:
    """One optimizer step; what it says of retrieval. Raises NonFiniteLoss before the weights change."""
    model.retriever.requires_grad_(run.step >= config.waits)
    taught = learn(model, shelf, *generation.taught(teach, config, run.step), config)
    norm = optimise(taught.loss, run.state.optimizer, rate=rates(run.step, config), clip=config.clip, step=run.step)
    run.stepped(
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
    generator = generation.opened(f"rag-{config.marginal}", config, config.k, notify)
    assert isinstance(generator, RagGenerator)
    set_dropout(retriever.train().to(config.device), config.dropout)
    return Rag(retriever if config.learn_passages else retriever.questions, generator), retriever


def live_library(config: RagConfig, retriever: DualEncoder, run: Run, progress: Progress = SILENT) -> LiveLibrary:
    """The passages with a tower that learns, and the index of a run."""
    assert retriever.tokenizer is not None
    tokenizer = TextTokenizer(retriever.tokenizer.parent)
    blocks = Blocks.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
    limit = min(config.max_block, retriever.passages.max_tokens)
    return LiveLibrary(LiveIndex.of(config, run), blocks, retriever, limit, passages_of(config.corpus))


def check_size(corpus: Path, k: int) -> None:
    """Raise BadInput where the passages are fewer than are to be read, before hours are spent on them."""
    artefacts.read_manifest(corpus, "index")
    if (live := PassageStore.open(corpus / "passages").live_count) < k:
        raise BadInput(f"{corpus} holds {live} passages, not {k} to read: lower --k")


def main(config: RagConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Path:
    """Train, or go on training; the directory of the retriever, beside which is that of the ``generator``.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
        StaleIndex, RefreshFailed: no index of the present weights could be made.
    """
    teach, ask = taught_and_asked(config, notify)
    check_size(config.corpus, config.k)
    torch.manual_seed(config.seed)
    model, retriever = begin(config, notify)
    optimizer = torch.optim.AdamW(
        parameter_groups(model.retriever, model.generator, decay=config.weight_decay), lr=config.lr
    )
    with ExitStack() as held:
        run = held.enter_context(running(config, model, optimizer, name="RAG", progress=progress, notify=notify))
        best, health = Best(run, "em"), Health.from_state(run.state.extra.get("health"))
        live: Shelf = (
            held.enter_context(closing(live_library(config, retriever, run, progress)))
            if config.learn_passages
            else Library.of(config, progress)
        )
        while True:
            staleness = live.follow(run) if isinstance(live, LiveLibrary) else 0
            if run.due(config.save_every):
                save(run, best, health, live)
            if ask and run.due(config.eval_every):
                examine(run, best, health, model, live, ask, config)
            if run.done:
                break
            step = run.step
            run.begin()
            row = train_step(run, model, live, teach, config, staleness=staleness)
            run.alarm(step, health.check_step(row))
        best.restore()
    if parallel.is_first_process():
        write_model(retriever, config.out / "model")
        generation.save(model.generator, config.out / "generator", config.out / "model")
    return config.out / "model"


def save(run: Run, best: Best, health: Health, shelf: Shelf) -> None:
    """Write a checkpoint; no index but the first may be there without one."""
    live = shelf if isinstance(shelf, LiveLibrary) else None
    best.save(index=live and live.version, health=health.to_state())
    if live:
        live.keep(run.kept("index"))


def examine(
    run: Run, best: Best, health: Health, model: Rag, shelf: Shelf, ask: list[Question], config: RagConfig
) -> None:
    """Ask held-out questions; the first of several processes does, and remembers what is alarming."""
    if not parallel.is_first_process():
        return
    search = generation.searching(shelf, model.questions, config.k, config.device)
    found = generation.evaluate(model.generator, search, ask, device=config.device, regex=config.regex)
    best.told(**found)
    run.alarm(run.step, [*health.check_recall(found["recall@5"], len(ask)), *health.check_answers(found["em"])])


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.rag.train"):
        print(together(main, parse_config(RagConfig, __doc__), progress=Bars(), notify=print))
