"""REALM's pretraining: a retriever learns from masked language modelling alone (Guu et al. 2020).

    python -m pipelines.realm.pretrain --corpus wiki.index --encoder runs/encoder/model --retriever runs/cloze/model \\
        --out runs/realm

A text x with something masked asks for passages; a masked language model reads x beside each of them and guesses
what is masked; the likelihood, marginalised over the passages, teaches both. The index proposes passages with
weights some steps old and is made again while training goes on; the scores that carry gradient are those of the live
towers. What comes out is a retriever for ``pipelines.orqa.fine_tune``; ``pipelines.realm`` is the whole of the paper.

Legend: B texts of a batch, K passages of a text with the null passage last,
M masked positions, L tokens, D width, V vocabulary.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pipelines.common.config import FollowingConfig, MaskingConfig, require
from pipelines.common.masked_text import MaskedBatch, masked_texts, named_tagger
from pipelines.common.refreshed_index import LiveIndex
from pipelines.common.retrieval_eval import Examination, examine
from pipelines.common.run import Run, Taught, running, vacant, write_model
from pipelines.common.tokenized_passages import Blocks
from pipelines.realm.retrieve import NULL, gold, propose, read, relevance, telling
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED, marginal_nll
from ragqa.pretraining.salient import Tagger
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.health import Health, measure_retrieval
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import optimise, parameter_groups


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(FollowingConfig, MaskingConfig):
    """What is pretrained, on what, and for how long. REALM: batch 512, 200,000 steps, k 8, a refresh every 500."""

    encoder: Path
    """Directory of the masked language model that reads text and passage."""
    retriever: Path
    """Directory of the dual encoder that retrieves: warm-started, or it will hardly learn."""
    texts: Path | None = None
    """Index directory of the texts X that are masked; by default the passages themselves."""
    steps: int = 200_000
    k: int = 8
    """Passages of a text, the null passage among them."""
    null: bool = True
    """Have the empty passage among the candidates, for what needs no passage."""
    marginal: Literal["token", "sequence"] = "token"
    """Over each masked token (the released code), or over all of a text together (the paper)."""
    lr: float = 3e-5
    questions: Path | None = None
    """File of held-out questions, on which recall is measured as training goes on."""
    sample: int = 500
    """How many of them."""
    regex: bool = False
    """Their answers are patterns (CuratedTREC)."""
    eval_every: int = 500
    """Steps between two evaluations."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(self, k=(self.k > int(self.null), "more than the null passage"))

    @property
    def proposed(self) -> int:
        """Passages of a text but for the null passage."""
        return self.k - int(self.null)


class Realm(nn.Module):
    """What is trained: the retriever, and the model that reads what it finds."""

    def __init__(self, retriever: DualEncoder, reader: KnowledgeAugmentedEncoder) -> None:
        super().__init__()
        self.retriever, self.reader = retriever, reader


@dataclass(frozen=True)
class Guess:
    """What a batch comes to."""

    gold_BKM: Tensor
    """log p(y_j | z, x) of what was masked, or what another ``score`` makes of it."""
    alone_B1M: Tensor
    """The same with the null passage only, so without retrieval."""
    relevance_BK: Tensor
    rows_BK: np.ndarray
    """Of the passages."""
    tokens: tuple[int, int, int]
    """Of the texts, of the passages, and of what is read, one beside the other; padding included."""

    @property
    def guessed(self) -> int:
        """Masked positions, beside each passage; padding included."""
        return self.rows_BK.size * self.gold_BKM.shape[2]


def guess(
    model: Realm,
    index: Mips,
    blocks: Blocks,
    batch: MaskedBatch,
    own_B: list[int],
    config: PretrainConfig,
    score: Callable[[Tensor, Tensor], Tensor] = gold,
) -> Guess:
    """Retrieve, score and read: all of a step but the loss. ``own_B`` are the rows that the texts were taken from."""
    with autocast(config.device):
        query_BD = model.retriever.questions(batch.x.ids_NL, batch.x.mask_NL)
        rows_BK = propose(
            index, query_BD.detach().float().cpu().numpy(), telling(batch.texts, own_B, blocks), config.proposed
        )
        missing_BK = torch.from_numpy(rows_BK == NULL).to(query_BD.device)
        if config.null:
            rows_BK = np.pad(rows_BK, ((0, 0), (0, 1)), constant_values=NULL)
            missing_BK = pad(missing_BK, (0, 1), value=False)
        relevance_BK, encoded = relevance(model.retriever, query_BD, rows_BK, blocks, config.max_block)
        relevance_BK = relevance_BK.masked_fill(missing_BK, torch.finfo(relevance_BK.dtype).min)
        limit = min(config.max_block, model.reader.max_tokens - batch.x.ids_NL.shape[1] - 1)
        gold_BKM, tokens = read(model.reader, batch, rows_BK, blocks, limit, score)
        alone_B1M = gold_BKM[:, -1:]
        if not config.null:  # to measure what retrieval is worth takes about a hundredth of the step
            with torch.no_grad():
                alone_B1M, _ = read(model.reader, batch, np.full((len(rows_BK), 1), NULL), blocks, 0, score)
    return Guess(gold_BKM, alone_B1M, relevance_BK, rows_BK, (batch.x.ids_NL.numel(), encoded, tokens))


def train_step(
    run: Run,
    model: Realm,
    index: Mips,
    blocks: Blocks,
    batch: MaskedBatch,
    own_B: list[int],
    config: PretrainConfig,
    *,
    staleness: int,
) -> dict[str, float]:
    """One optimizer step; what it says of retrieval. Raises NonFiniteLoss before the weights change."""
    model.retriever.requires_grad_(run.step >= config.waits)
    taught = learn(model, index, blocks, batch, own_B, config)
    norm = optimise(taught.loss, run.state.optimizer, rate=rates(run.step, config), clip=config.clip, step=run.step)
    run.stepped(
        **taught.figures,
        grad_norm=norm,
        staleness=staleness,
        tokens=parallel.sum_over_processes(taught.tokens),
        flops=taught.flops,
    )
    return taught.figures


def learn(
    model: Realm, index: Mips, blocks: Blocks, batch: MaskedBatch, own_B: list[int], config: PretrainConfig
) -> Taught:
    """REALM's loss of a batch, and what it says of retrieval."""
    found = guess(model, index, blocks, batch, own_B, config)
    counted_BM = batch.labels_BM != IGNORED
    loss = marginal_nll(found.gold_BKM, found.relevance_BK, counted_BM, marginal=config.marginal)
    weighing = parallel.compute_loss_weight(counted_BM if config.marginal == "token" else counted_BM.any(-1))
    health = measure_retrieval(
        found.gold_BKM,
        found.alone_B1M,
        found.relevance_BK,
        counted_BM,
        parallel.gather_rows(torch.from_numpy(found.rows_BK))[0].numpy(),  # texts of all processes may share passages
        null=config.null,
        marginal=config.marginal,
    )
    health = parallel.average_over_processes({"nll": loss.item(), **health}, weighing)
    modules = (model.retriever.questions, model.retriever.passages, model.reader)
    flops = sum(map(count_flops, modules, found.tokens, (0, 0, found.guessed)))
    return Taught(loss * weighing, health, sum(found.tokens), flops)


class Paced(Protocol):
    """Settings of learning rates; see ``PretrainConfig``."""

    @property
    def steps(self) -> int:
        """Of the run."""
        ...

    @property
    def lr(self) -> float:
        """Of what reads."""
        ...

    @property
    def retriever_peak(self) -> float:
        """Of the towers."""
        ...

    @property
    def waits(self) -> int:
        """Steps before the retriever learns."""
        ...

    @property
    def warmup(self) -> int | None:
        """Steps; None for 1000, or a tenth of all if that is less."""
        ...


def rates(step: int, config: Paced) -> list[float]:
    """Learning rates of the retriever's two groups of weights, and the two of what reads."""
    warmup = warmup_steps(config.warmup, 1000, config.steps)
    reader = warmup_linear(step, peak=config.lr, warmup=warmup, total=config.steps)
    if step < config.waits:
        return [0.0, 0.0, reader, reader]
    step, total = step - config.waits, config.steps - config.waits
    retriever = warmup_linear(step, peak=config.retriever_peak, warmup=min(warmup, total), total=total)
    return [retriever, retriever, reader, reader]


def main(
    config: PretrainConfig,
    *,
    finds: Tagger | None = None,
    progress: Progress = SILENT,
    notify: Callable[[str], None] = lambda line: None,
) -> Path:
    """Pretrain, or go on pretraining; the directory of the retriever.

    Args:
        config: see there.
        finds: finds salient spans, in place of the tagger that ``config`` names.
        progress: told of the steps.
        notify: told of evaluations, new indexes and alarms, a line each.

    Raises:
        BadInput, ArtefactError: a directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
        StaleIndex, RefreshFailed: no index of the present weights could be made.
    """
    vacant(config.out)
    torch.manual_seed(config.seed)
    tokenizer = TextTokenizer(config.encoder)
    model = Realm(DualEncoder.load(config.retriever), KnowledgeAugmentedEncoder.from_encoder(config.encoder))
    same_pieces(model.retriever, tokenizer, config)
    config = fitted(config, model)
    model.retriever.passages.config.tower_tokens = config.max_block  # an index embeds no more of a passage either
    set_dropout(model.train().to(config.device), config.dropout)
    blocks = Blocks.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
    texts = masked_texts(config, blocks, finds, of=config.texts)
    themselves = config.texts is None or passages_of(config.texts) == passages_of(config.corpus)
    exam = config.questions and Examination.of(config.questions, blocks, config.sample, config.seed, regex=config.regex)
    optimizer = torch.optim.AdamW(
        parameter_groups(model.retriever, model.reader, decay=config.weight_decay), lr=config.lr
    )
    with ExitStack() as opened:
        run = opened.enter_context(running(config, model, optimizer, name="REALM", progress=progress, notify=notify))
        health = Health.from_state(run.state.extra.get("health"))
        live = opened.enter_context(closing(LiveIndex.of(config, run)))
        live.keep(run.kept("index"))
        while True:
            index, staleness = live.follow(run, model.retriever)
            if run.due(config.save_every):  # at step 0, too: no index but the first may be there without a checkpoint
                run.save(index=live.version, health=health.to_state())
                live.keep(run.kept("index"))
            if exam and run.due(config.eval_every):
                found = examine(exam, model.retriever.questions, index, config.device)
                run.told(**found, staleness=staleness)
                run.alarm(run.step, health.check_recall(found["recall@5"], len(exam.questions)))
            if run.done:
                break
            step = run.step
            run.begin()
            batch = texts[step].to(config.device)
            own = [text.row if themselves else NULL for text in batch.texts]
            row = train_step(run, model, index, blocks, batch, own, config, staleness=staleness)
            run.alarm(step, health.check_step(row, retriever_steps=step + 1 - config.waits))
    if parallel.is_first_process():
        write_model(model.retriever, config.out / "model")
        write_model(model.reader, config.out / "reader")
    return config.out / "model"


def check(config: PretrainConfig) -> None:
    """Raise now, as ``main`` would after days of a warm start, for all that is wrong but with the retriever."""
    KnowledgeAugmentedEncoder.from_encoder(config.encoder)
    _ = TextTokenizer(config.encoder).mask_id
    for index in (config.corpus, config.texts):
        if index is not None:
            passages_of(index)
    if (live := PassageStore.open(config.corpus / "passages").live_count) <= config.proposed:
        raise BadInput(
            f"{config.corpus} holds {live} passages; {config.proposed} beside the one that a text is from: lower --k"
        )
    if config.masking == "salient":
        named_tagger(config.tagger, (), ())


def fitted(config: PretrainConfig, model: Realm) -> PretrainConfig:
    """The settings with no longer texts and passages than the models can read, one beside the other."""
    text = min(config.max_text, model.retriever.questions.max_tokens, model.reader.max_tokens // 2)
    return replace(config, max_text=text, max_block=min(config.max_block, model.retriever.passages.max_tokens))


def same_pieces(retriever: DualEncoder, tokenizer: TextTokenizer, config: PretrainConfig) -> None:
    """Raise BadInput where retriever and encoder would read the same ids as other words."""
    assert retriever.tokenizer is not None
    if TextTokenizer(retriever.tokenizer.parent).fingerprint != tokenizer.fingerprint:
        raise BadInput(
            f"{config.retriever} and {config.encoder} have different tokenizers: begin both from one encoder"
        )


def passages_of(index: Path) -> str:
    """Fingerprint of the passages in an index directory."""
    return artefacts.read_manifest(index, "index").parents["corpus"]


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.realm.pretrain"):
        print(together(main, parse_config(PretrainConfig, __doc__), progress=Bars(), notify=print))
