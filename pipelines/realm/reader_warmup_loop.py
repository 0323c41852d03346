"""Training loop of the warm-up of REALM's reader (``pipelines.realm.reader_warmup``).

Legend: B texts, M masked positions (the largest number in a text).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipelines.common.masked_text import MaskedBatch, MaskedText, open_masked_texts
from pipelines.common.run import BatchLoss, open_run, write_model
from pipelines.common.run_directory import check_directory
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.realm.config import ReaderWarmupConfig
from pipelines.realm.masked_reading import read_with_passages
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.pretraining.salient import Tagger
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast

_PASSAGES = 1
"""Last part of the seed that chooses passages; the first parts are the seed of the run and the step."""


@dataclass(frozen=True)
class GivenPassages:
    """Passages to read with the texts of a batch, one per text."""

    ids: list[list[int]]
    """Wordpieces of each passage, title first."""
    is_own_B: Tensor
    """True for each text that is read with its own passage."""


class PassageChooser:
    """Sampler of a passage for each masked text; seed and step determine the choice."""

    def __init__(self, passages: TokenizedPassages, config: ReaderWarmupConfig) -> None:
        self._passages, self._config = passages, config

    def choose(self, step: int, texts: Sequence[MaskedText]) -> GivenPassages:
        """Return a passage for each text.

        Args:
            step: number of the step, from 0.
            texts: texts of this process's share of the batch.

        Raises:
            BadInput: the processes cannot share the batch evenly.
        """
        config, store = self._config, self._passages.store
        own_share, keep_share = self.compute_shares(step)
        rng = np.random.default_rng([config.seed, step, _PASSAGES])
        draws = zip(rng.random((config.batch, 2)), rng.integers(store.live_count, size=config.batch), strict=True)
        ids, is_own = [], []
        for text, (chances, other) in zip(texts, parallel.take_share(list(draws)), strict=True):
            is_own.append(bool(chances[0] < own_share))
            if not is_own[-1]:
                ids.append(self._passages.ids(int(store.get_live_rows(int(other))), config.max_block))
            elif chances[1] < keep_share:
                ids.append(self._passages.ids(text.row, config.max_block))
            else:
                ids.append(self._cut_out(text)[: config.max_block])
        return GivenPassages(ids, torch.tensor(is_own))

    def compute_shares(self, step: int) -> tuple[float, float]:
        """Return the values of ``own_share`` and ``keep_share`` in a step, counted from 0."""
        remaining = max(0.0, 1 - 2 * step / self._config.steps)
        own, keep = self._config.own_share, self._config.keep_share
        return own + remaining * (1 - own), keep + remaining * (1 - keep)

    def _cut_out(self, text: MaskedText) -> list[int]:
        passage, (start, end) = self._passages.store[text.row], text.characters
        rest = replace(passage, text=f"{passage.text[:start]}{passage.text[end:]}")
        return self._passages.tokenizer.tokenize(rest.titled_text).ids


def compute_loss(
    model: KnowledgeAugmentedEncoder, batch: MaskedBatch, passages: GivenPassages, special: tuple[int, int]
) -> BatchLoss:
    """Return the mean negative log-likelihood of the masked tokens, in nats.

    The figures ``nll_own`` and ``nll_other`` are the means for texts with their own and with random passages.

    Args:
        model: masked language model.
        batch: masked texts.
        passages: a passage for each text.
        special: ids of [CLS] and [SEP].
    """
    counted_BM = batch.labels_BM != IGNORED
    with autocast(batch.labels_BM.device):
        gold_B1M, tokens = read_with_passages(model, batch, [[ids] for ids in passages.ids], special)
    nll_BM = -gold_B1M[:, 0] * counted_BM
    flops = count_flops(model, tokens, batch.positions_BM.numel())
    loss = BatchLoss.from_mean(nll_BM.sum() / counted_BM.sum(), counted_BM, tokens=tokens, flops=flops)
    by_passage = _compute_losses_by_passage(nll_BM.detach(), counted_BM, passages.is_own_B.to(nll_BM.device))
    return replace(loss, figures=loss.figures | by_passage)


def _compute_losses_by_passage(nll_BM: Tensor, counted_BM: Tensor, is_own_B: Tensor) -> dict[str, float]:
    losses: dict[str, float] = {}
    for name, rows_B in (("nll_own", is_own_B), ("nll_other", ~is_own_B)):
        selected_BM = counted_BM & rows_B[:, None]
        count = parallel.sum_over_processes(int(selected_BM.sum()))
        mean = (nll_BM * selected_BM).sum().item() / max(1, int(selected_BM.sum()))
        if count:
            losses |= parallel.average_over_processes({name: mean}, parallel.compute_loss_weight(selected_BM))
    return losses


def main(
    config: ReaderWarmupConfig,
    *,
    tagger: Tagger | None = None,
    progress: Progress = SILENT,
    notify: Notify = ignore_line,
) -> Path:
    """Warm up a reader for pretraining, or continue a run; return the directory of the reader.

    Args:
        config: settings of the run.
        tagger: tagger of salient spans; None loads the tagger that ``config`` names.
        progress: shows the tokenization of the passages, and the steps.
        notify: receives a line if the run continues.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    check_directory(config.out)
    torch.manual_seed(config.seed)
    model = KnowledgeAugmentedEncoder.load(config.encoder).to(config.device)
    set_dropout(model.train(), config.dropout)
    text = min(config.masking.max_text, model.max_tokens // 2)  # the passage takes the rest of the input
    block = min(config.max_block, model.max_tokens - text - 1)
    config = replace(config, masking=replace(config.masking, max_text=text), max_block=block)
    tokenizer = TextTokenizer(config.encoder)
    passages = TokenizedPassages.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
    texts = open_masked_texts(config.masking, passages, tagger, batch=config.batch, seed=config.seed)
    chooser = PassageChooser(passages, config)
    with open_run(config, model, name="reader warm-up", progress=progress, notify=notify) as run:
        for step in run.remaining_steps(config.save_every):
            batch = texts[step].to(config.device)
            loss = compute_loss(model, batch, chooser.choose(step, batch.texts), tokenizer.special_ids)
            run.take_step(loss, rate=config.compute_rate(step), clip=config.clip)
    write_model(model, config.out / "model")
    return config.out / "model"
