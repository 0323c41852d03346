"""Pretrain a sequence-to-sequence model by denoising the passages of an index.

Either T5's span corruption (Raffel et al. 2020, section 3.1.4) or BART's text infilling (Lewis et al. 2020, section
2.2).

    python -m pipelines.denoise.train --corpus wiki.index --encoder encoder --decoder-layers 1 --out runs/generator
    python -m pipelines.denoise.train --corpus wiki.index --generator shape --fresh --out runs/generator

The result is a model that a generator can begin from, where no published one is available or wanted. Pretraining begins
from a sequence-to-sequence model, or from a BERT-like encoder. An encoder gets a decoder that copies what it reads from
the first step on (``ragqa.models.generation.copying``).

Legend: B texts, L tokens that are read, T tokens that are written, V vocabulary.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from pipelines.common.command import run_recipe
from pipelines.common.config import Rules, TrainingConfig, require_choice, require_positive, require_proper_share
from pipelines.common.run import BatchLoss, open_run
from pipelines.denoise.texts import DenoisedTexts, DenoisingBatch, Frame, Marks, make_corruption
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.models.generation.copying import initialise_copying
from ragqa.models.generation.encoder_decoder import make_from_encoder
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.training import parallel
from ragqa.training.meter import count_seq2seq_weights
from ragqa.training.precision import autocast

FITTED = 600
"""Number of passages on which a new decoder's copying is fitted."""
MARKS = "denoising.json"
"""File next to the weights: the objective, and the ids that replace the missing parts."""


@dataclass(frozen=True, kw_only=True)
class DenoiseConfig(TrainingConfig):
    """Settings of the pretraining.

    T5: batch 128 of 512 tokens, 524,288 steps. BART: batch 8000, 500,000 steps.
    """

    corpus: Path
    """Index directory of the passages."""
    generator: Path | None = None
    """Directory with config.json, a tokenizer, and weights to begin from unless ``fresh``."""
    fresh: bool = False
    """Begin from random weights."""
    encoder: Path | None = None
    """Directory of a BERT or RoBERTa to make a generator from, instead of ``generator``."""
    decoder_layers: int | None = None
    """Decoder layers of that generator; by default as many as the encoder has."""
    objective: Literal["spans", "infilling"] = "spans"
    """Objective: spans generates the missing parts (T5), infilling the whole text (BART)."""
    rate: float | None = None
    """Share of the tokens that are missing; by default 0.15 (spans) or 0.3 (infilling)."""
    mean_span: float = 3.0
    """Mean length of a span in tokens."""
    permute: bool = False
    """Put the sentences of a text into random order (infilling)."""
    batch: int = 128
    """Texts per step."""
    max_text: int = 288
    """Tokens of a text, special tokens included."""

    def rules(self) -> Rules:
        """Return the rules of all settings."""
        layers, has_encoder = self.decoder_layers, self.encoder is not None
        return {
            **super().rules(),
            "batch": require_positive(self.batch),
            "generator": ((self.generator is None) == has_encoder, "name a generator or an encoder, one of the two"),
            "fresh": (not (self.fresh and has_encoder), "for a generator only"),
            "decoder_layers": (layers is None or (has_encoder and layers > 0), "above 0, with an encoder"),
            "objective": require_choice(self.objective, ("spans", "infilling")),
            "rate": require_proper_share(self.rate),
            "mean_span": (self.mean_span >= 1, "1 or more"),
            "permute": (not self.permute or self.objective == "infilling", "for infilling only"),
            "max_text": (self.max_text > 5, "more than 5"),
        }


def compute_loss(model: Seq2Seq, batch: DenoisingBatch, weights: tuple[int, int]) -> BatchLoss:
    """Return the mean negative log-likelihood of the target ids, in nats.

    Args:
        model: sequence-to-sequence model.
        batch: corrupted texts.
        weights: numbers of weights that compute a token that is read, and one that is written.
    """
    is_written_BT = batch.labels_BT != IGNORED
    with autocast(batch.labels_BT.device):
        logits_MV = model.compute_logits(model.encode(batch.x), model.shift_labels(batch.labels_BT), is_written_BT)
        mean = cross_entropy(logits_MV, batch.labels_BT[is_written_BT])
    read, written = batch.x.ids_NL.numel(), batch.labels_BT.numel()
    flops = 6 * (weights[0] * read + weights[1] * written)
    return BatchLoss.from_mean(mean, is_written_BT, tokens=read + written, flops=flops)


def main(config: DenoiseConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Pretrain a generator, or continue; return its directory.

    Raises:
        BadInput, ArtefactError: a setting, file or directory cannot be used.
        NonFiniteLoss: a step would have spoiled the weights.
    """
    torch.manual_seed(config.seed)
    artefacts.read_manifest(config.corpus, "index")
    model = _init_model(config)
    config = replace(config, max_text=min(config.max_text, model.max_tokens))
    marks = Marks.from_tokenizer(model.tokens.tokenizer, model.model.get_input_embeddings().num_embeddings)
    store = PassageStore.open(config.corpus / "passages")
    texts = _open_texts(config, store, model, marks)
    set_dropout(model.train().to(config.device), config.dropout)
    weights = count_seq2seq_weights(model.model)
    with open_run(config, model, name="denoising", progress=progress, notify=notify) as run:
        if config.encoder and not run.step:
            initialise_copying(model, _sample_passages(store, config.seed))
        for step in run.remaining_steps(config.save_every):
            loss = compute_loss(model, texts[step].to(config.device), weights)
            run.take_step(loss, rate=config.compute_rate(step), clip=config.clip)
    if parallel.is_first_process():
        _save(config, model, marks)
    return config.out / "model"


def _find_source(config: DenoiseConfig) -> Path:
    source = config.generator or config.encoder
    assert source is not None
    return source


def _init_model(config: DenoiseConfig) -> Seq2Seq:
    if config.encoder:
        return make_from_encoder(config.encoder, decoder_layers=config.decoder_layers)
    return Seq2Seq.load(_find_source(config), fresh=config.fresh)


def _sample_passages(store: PassageStore, seed: int) -> list[str]:
    """Return the texts on which copying is fitted."""
    ranks = np.random.default_rng(seed).choice(store.live_count, min(FITTED, store.live_count), replace=False)
    return [passage.text for passage in store.get(store.get_live_rows(np.sort(ranks)).tolist())]


def _open_texts(config: DenoiseConfig, store: PassageStore, model: Seq2Seq, marks: Marks) -> DenoisedTexts:
    conventions, tokenizer = model.conventions, model.tokens.tokenizer
    frame = Frame.from_tokenizer(tokenizer, conventions.start, conventions.ends[0], conventions.pad)
    room = config.max_text - frame.room
    options: Any = {"rate": config.rate, "mean": config.mean_span, "permute": config.permute}
    corrupt = make_corruption(config.objective, marks, room=room, source=_find_source(config), **options)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        if not texts:  # a tokenizer fails without any
            return []
        rows: list[list[int]] = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return rows

    sizes = {"batch": config.batch, "room": room, "seed": config.seed}
    return DenoisedTexts(store, encode, corrupt, frame, has_sentences=config.permute, **sizes)


def _save(config: DenoiseConfig, model: Seq2Seq, marks: Marks) -> None:
    """Write the model in transformers' own format, and MARKS next to it."""
    with artefacts.replace_directory(config.out / "model") as folder:
        model.save(folder)
        if (file := _find_source(config) / "tokenizer.json").is_file():  # byte for byte, so that its fingerprint stays
            shutil.copyfile(file, folder / file.name)
        row = {"objective": config.objective, "mask": marks.mask, "sentinels": marks.sentinels}
        (folder / MARKS).write_text(json.dumps(row) + "\n")


if __name__ == "__main__":
    run_recipe("pipelines.denoise.train", DenoiseConfig, __doc__, main)
