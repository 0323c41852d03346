"""Training loop of masked language modelling (``pipelines.masked_lm``).

Legend: B texts, M masked positions (the largest number in a text), V vocabulary.
"""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from pipelines.common.masked_text import MaskedBatch, MaskedTexts, make_position_chooser
from pipelines.common.run import BatchLoss, open_run, write_model
from pipelines.masked_lm.config import MaskedLMConfig
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast


def compute_loss(model: KnowledgeAugmentedEncoder, batch: MaskedBatch) -> BatchLoss:
    """Return the mean negative log-likelihood of the masked tokens, in nats.

    Args:
        model: masked language model.
        batch: masked texts.
    """
    types = torch.zeros_like(batch.x.ids_NL)
    with autocast(batch.labels_BM.device):
        logits_BMV = model(batch.x.ids_NL, batch.x.mask_NL, types, batch.positions_BM)
        mean = cross_entropy(logits_BMV.float().flatten(0, 1), batch.labels_BM.flatten(), ignore_index=IGNORED)
    tokens = batch.x.ids_NL.numel()
    flops = count_flops(model, tokens, batch.positions_BM.numel())
    return BatchLoss.from_mean(mean, batch.labels_BM != IGNORED, tokens=tokens, flops=flops)


def main(config: MaskedLMConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Pretrain an encoder, or continue a run; return the directory of the encoder.

    Args:
        config: settings of the run.
        progress: shows the steps.
        notify: receives a line if the run continues.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    torch.manual_seed(config.seed)
    init_model = KnowledgeAugmentedEncoder.from_config if config.fresh else KnowledgeAugmentedEncoder.load
    has_no_weights = (config.encoder / "config.json").is_file() and not list(config.encoder.glob("*.safetensors"))
    if has_no_weights and not config.fresh:
        raise BadInput(f"{config.encoder} has no weights: --fresh begins from random ones of its shape")
    model = init_model(config.encoder).to(config.device)
    set_dropout(model.train(), config.dropout)
    artefacts.read_manifest(config.corpus, "index")
    texts = MaskedTexts(
        PassageStore.open(config.corpus / "passages"),
        TextTokenizer(config.encoder),
        make_position_chooser(config.masking, None, rate=config.rate, count=1),
        batch=config.batch,
        max_text=min(config.max_text, model.max_tokens),
        seed=config.seed,
        only_masks=False,
        in_spans=config.masking == "spans",
    )
    with open_run(config, model, name="masked words", progress=progress, notify=notify) as run:
        for step in run.remaining_steps(config.save_every):
            loss = compute_loss(model, texts[step].to(config.device))
            run.take_step(loss, rate=config.compute_rate(step), clip=config.clip)
    write_model(model, config.out / "model")
    return config.out / "model"
