"""Pretrain an encoder by masked language modelling alone (BERT, Devlin et al. 2019), on the passages of an index.

    python -m pipelines.masked_lm --corpus wiki.index --encoder shape --fresh --out runs/encoder

What REALM's towers and its knowledge-augmented encoder begin from, where nothing published is to be had or wanted.

Legend: B texts, L tokens, M masked positions of the text that has most, V vocabulary.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pipelines.common.config import TrainingConfig, require
from pipelines.common.masked_text import MaskedBatch, MaskedTexts, chooser
from pipelines.common.run import Run, running, write_model
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.progress import SILENT, Progress
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import optimise, parameter_groups


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(TrainingConfig):
    """What is pretrained, on what, and for how long. BERT: batch 256 of 512 tokens, 1,000,000 steps."""

    corpus: Path
    """Index directory of the passages."""
    encoder: Path
    """Directory with tokenizer.json and config.json; its weights are taken where they are, unless ``fresh``."""
    fresh: bool = False
    """Begin from random weights."""
    steps: int = 100_000
    """Optimizer steps."""
    batch: int = 256
    """Texts a step."""
    masking: str = "words"
    """words (whole ones), spans (SpanBERT) or uniform."""
    rate: float = 0.15
    """Share of the wordpieces that are guessed."""
    max_text: int = 128
    """Wordpieces of a text, [CLS] and [SEP] included."""
    lr: float = 1e-4
    """Learning rate at its peak."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(self)
        if self.masking == "salient":
            raise BadInput("masking salient: that is pipelines.realm.pretrain's; choose words, spans or uniform")


def nll(model: KnowledgeAugmentedEncoder, batch: MaskedBatch) -> Tensor:
    """Mean negative log-likelihood of the masked tokens, in nats."""
    types = torch.zeros_like(batch.x.ids_NL)
    logits_BMV = model(batch.x.ids_NL, batch.x.mask_NL, types, batch.positions_BM)
    return cross_entropy(logits_BMV.float().flatten(0, 1), batch.labels_BM.flatten(), ignore_index=IGNORED)


def train_step(run: Run, model: KnowledgeAugmentedEncoder, batch: MaskedBatch, config: MaskedLMConfig) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    warmup = warmup_steps(config.warmup, 1000, config.steps)
    rate = warmup_linear(run.step, peak=config.lr, warmup=warmup, total=config.steps)
    with autocast(config.device):
        loss = nll(model, batch)
    weighing = parallel.compute_loss_weight(batch.labels_BM != IGNORED)
    norm = optimise(loss * weighing, run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    tokens = batch.x.ids_NL.numel()
    row = parallel.average_over_processes({"nll": loss.item()}, weighing)
    flops = count_flops(model, tokens, batch.positions_BM.numel())
    run.stepped(**row, lr=rate, grad_norm=norm, tokens=parallel.sum_over_processes(tokens), flops=flops)


def main(config: MaskedLMConfig, *, progress: Progress = SILENT) -> Path:
    """Train, or go on training; the directory of the model.

    Raises:
        BadInput, ArtefactError: a directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
    """
    torch.manual_seed(config.seed)
    begin = KnowledgeAugmentedEncoder.from_config if config.fresh else KnowledgeAugmentedEncoder.from_encoder
    shape = (config.encoder / "config.json").is_file() and not list(config.encoder.glob("*.safetensors"))
    if shape and not config.fresh:
        raise BadInput(f"{config.encoder} has no weights: --fresh begins from random ones of its shape")
    model = begin(config.encoder).to(config.device)
    set_dropout(model.train(), config.dropout)
    artefacts.read_manifest(config.corpus, "index")
    texts = MaskedTexts(
        PassageStore.open(config.corpus / "passages"),
        TextTokenizer(config.encoder),
        chooser(config.masking, None, rate=config.rate, count=1),
        batch=config.batch,
        max_text=min(config.max_text, model.max_tokens),
        seed=config.seed,
        masks_only=False,
        together=config.masking == "spans",
    )
    optimizer = torch.optim.AdamW(parameter_groups(model, decay=config.weight_decay), lr=config.lr)
    with running(config, model, optimizer, name="masked words", progress=progress) as run:
        for step in run.left(config.save_every):
            train_step(run, model, texts[step].to(config.device), config)
    if parallel.is_first_process():
        write_model(model, config.out / "model")
    return config.out / "model"


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.masked_lm"):
        print(together(main, parse_config(MaskedLMConfig, __doc__), progress=Bars()))
