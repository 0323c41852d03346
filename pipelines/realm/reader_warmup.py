"""Warm-up of REALM's reader: masked words guessed beside a passage that is given, before any is retrieved.

    python -m pipelines.realm.reader_warmup --corpus wiki.index --encoder runs/encoder/model --out runs/reader

A masked language model that has read single texts only makes nothing of a passage beside them, not even of one that
holds the very words; and as long as its reader does not, a retriever learns from noise. REALM's BERT and its 200,000
steps bring that along; few steps with eight candidates a text do not. Here a text is read beside one passage, so eight
times as many texts take the same time. At first it is the text's own, in which the very words stand: to copy is learned
there, and hardly anywhere else. Then, more and more, the text is cut out of it, or another passage is drawn at random.

Legend: B texts, M masked positions of the text that has most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipelines.common.config import MaskingConfig, require
from pipelines.common.masked_text import MaskedBatch, Text, masked_texts
from pipelines.common.run import Run, running, vacant, write_model
from pipelines.common.tokenized_passages import Blocks
from pipelines.realm.retrieve import read_beside
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.pretraining.salient import Tagger
from ragqa.progress import SILENT, Progress
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import optimise, parameter_groups

_GIVEN = 1
"""Beside seed and step: the stream of random numbers that choose passages."""


@dataclass(frozen=True, kw_only=True)
class WarmReaderConfig(MaskingConfig):
    """What is trained, on what, and for how long."""

    encoder: Path
    """Directory of the masked language model that it begins from."""
    steps: int = 10_000
    """Optimizer steps."""
    own: float = 0.5
    """Share of the texts that are read beside their own passage; the others beside one drawn at random. It begins at
    1 and falls to this over the first half of the steps."""
    kept: float = 0.5
    """Share of those whose passage still holds the text; it is cut out of the others. It begins at 1 as well."""
    lr: float = 1e-4
    """Learning rate at its peak."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(self, own=(0 <= self.own <= 1, "from 0 to 1"), kept=(0 <= self.kept <= 1, "from 0 to 1"))


@dataclass(frozen=True)
class Given:
    """The passages of a batch, one a text."""

    ids: list[list[int]]
    """Wordpieces, title first."""
    own_B: Tensor
    """Whether it is the text's own passage."""


class GivenPassages:
    """Those of a step are a pure function of (seed, step)."""

    def __init__(self, blocks: Blocks, config: WarmReaderConfig) -> None:
        self._blocks, self._config = blocks, config

    def at(self, step: int, texts: Sequence[Text]) -> Given:
        """For this process's texts of a step."""
        config, store = self._config, self._blocks.store
        own_share, kept = self.shares(step)
        rng = np.random.default_rng([config.seed, step, _GIVEN])
        drawn = zip(rng.random((config.batch, 2)), rng.integers(store.live_count, size=config.batch), strict=True)
        found, own = [], []
        for text, (chance, other) in zip(texts, parallel.take_share(list(drawn)), strict=True):
            own.append(bool(chance[0] < own_share))
            if not own[-1]:
                found.append(self._blocks.ids(int(store.live_rows(int(other))), config.max_block))
            elif chance[1] < kept:
                found.append(self._blocks.ids(text.row, config.max_block))
            else:
                found.append(self._without(text)[: config.max_block])
        return Given(found, torch.tensor(own))

    def shares(self, step: int) -> tuple[float, float]:
        """``own`` and ``kept`` at a step."""
        left = max(0.0, 1 - 2 * step / self._config.steps)
        own, kept = self._config.own, self._config.kept
        return own + left * (1 - own), kept + left * (1 - kept)

    def _without(self, text: Text) -> list[int]:
        """The passage of a text with the text cut out of it."""
        passage, (start, end) = self._blocks.store[text.row], text.place
        rest = replace(passage, text=f"{passage.text[:start]}{passage.text[end:]}")
        return self._blocks.tokenizer.tokenize(rest.titled).ids


def train_step(
    run: Run,
    model: KnowledgeAugmentedEncoder,
    batch: MaskedBatch,
    given: Given,
    special: tuple[int, int],
    config: WarmReaderConfig,
) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    rate = warmup_linear(
        run.step, peak=config.lr, warmup=warmup_steps(config.warmup, 1000, config.steps), total=config.steps
    )
    counted_BM = batch.labels_BM != IGNORED
    with autocast(config.device):
        gold_B1M, tokens = read_beside(model, batch, [[ids] for ids in given.ids], special)
    nll_BM = -gold_B1M[:, 0] * counted_BM
    loss = nll_BM.sum() / counted_BM.sum()
    weighing = parallel.compute_loss_weight(counted_BM)
    norm = optimise(loss * weighing, run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    run.stepped(
        **parallel.average_over_processes({"nll": loss.item()}, weighing),
        **_apart(nll_BM.detach(), counted_BM, given.own_B.to(nll_BM.device)),
        lr=rate,
        grad_norm=norm,
        tokens=parallel.sum_over_processes(tokens),
        flops=count_flops(model, tokens, batch.positions_BM.numel()),
    )


def _apart(nll_BM: Tensor, counted_BM: Tensor, own_B: Tensor) -> dict[str, float]:
    """The mean losses of all processes' texts beside their own passage, and beside another, where there are any."""
    found: dict[str, float] = {}
    for name, rows_B in (("nll_own", own_B), ("nll_other", ~own_B)):
        some_BM = counted_BM & rows_B[:, None]
        count = parallel.sum_over_processes(int(some_BM.sum()))
        mean = (nll_BM * some_BM).sum().item() / max(1, int(some_BM.sum()))
        if count:
            found |= parallel.average_over_processes({name: mean}, parallel.compute_loss_weight(some_BM))
    return found


def main(config: WarmReaderConfig, *, finds: Tagger | None = None, progress: Progress = SILENT) -> Path:
    """Train, or go on training; the directory of the model, which ``pipelines.realm.pretrain`` takes as its
    ``encoder``.

    ``finds`` finds salient spans, in place of the tagger that ``config`` names.

    Raises:
        BadInput, ArtefactError: a directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
    """
    vacant(config.out)
    torch.manual_seed(config.seed)
    model = KnowledgeAugmentedEncoder.from_encoder(config.encoder).to(config.device)
    set_dropout(model.train(), config.dropout)
    text = min(config.max_text, model.max_tokens // 2)
    config = replace(config, max_text=text, max_block=min(config.max_block, model.max_tokens - text - 1))
    blocks = Blocks.open(config.corpus, TextTokenizer(config.encoder), config.out / "blocks", progress=progress)
    texts, given = masked_texts(config, blocks, finds), GivenPassages(blocks, config)
    optimizer = torch.optim.AdamW(parameter_groups(model, decay=config.weight_decay), lr=config.lr)
    with running(config, model, optimizer, name="reading", progress=progress) as run:
        for step in run.left(config.save_every):
            batch = texts[step]
            passages = given.at(step, batch.texts)
            train_step(run, model, batch.to(config.device), passages, blocks.tokenizer.special_ids, config)
    if parallel.is_first_process():
        write_model(model, config.out / "model")
    return config.out / "model"


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.realm.reader_warmup"):
        print(together(main, parse_config(WarmReaderConfig, __doc__), progress=Bars()))
