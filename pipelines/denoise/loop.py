"""Training loop of denoising (``pipelines.denoise``).

Legend: B texts, T tokens of a target, M target tokens of all texts, V vocabulary.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from pipelines.common.run import BatchLoss, open_run
from pipelines.denoise.config import DenoiseConfig
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
"""Number of passages on which a new decoder is fitted to copy its input."""
MARKS = "denoising.json"
"""Name of the file beside the weights with the objective and the ids that replace missing parts."""


def compute_loss(model: Seq2Seq, batch: DenoisingBatch, weights: tuple[int, int]) -> BatchLoss:
    """Return the mean negative log-likelihood of the target ids, in nats.

    Args:
        model: seq2seq model.
        batch: corrupted texts.
        weights: numbers of weights that multiply an input token, and an output token (``count_seq2seq_weights``).
    """
    is_written_BT = batch.labels_BT != IGNORED
    with autocast(batch.labels_BT.device):
        logits_MV = model.compute_logits(model.encode(batch.x), model.shift_labels(batch.labels_BT), is_written_BT)
        mean = cross_entropy(logits_MV, batch.labels_BT[is_written_BT])
    read, written = batch.x.ids_NL.numel(), batch.labels_BT.numel()
    flops = 6 * (weights[0] * read + weights[1] * written)
    return BatchLoss.from_mean(mean, is_written_BT, tokens=read + written, flops=flops)


def main(config: DenoiseConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Pretrain a generator, or continue a run; return the directory of the generator.

    Args:
        config: settings of the run.
        progress: shows the steps.
        notify: receives a line if the run continues.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
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
    ranks = np.random.default_rng(seed).choice(store.live_count, min(FITTED, store.live_count), replace=False)
    return [passage.text for passage in store.get(store.get_live_rows(np.sort(ranks)).tolist())]


def _open_texts(config: DenoiseConfig, store: PassageStore, model: Seq2Seq, marks: Marks) -> DenoisedTexts:
    conventions, tokenizer = model.conventions, model.tokens.tokenizer
    frame = Frame.from_tokenizer(tokenizer, conventions.start, conventions.ends[0], conventions.pad)
    room = config.max_text - frame.room
    options: Any = {"rate": config.rate, "mean": config.mean_span, "is_permuted": config.permute}
    corrupt = make_corruption(config.objective, marks, room=room, source=_find_source(config), **options)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        if not texts:  # the tokenizers of transformers fail on an empty list
            return []
        rows: list[list[int]] = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return rows

    sizes = {"batch": config.batch, "room": room, "seed": config.seed}
    return DenoisedTexts(store, encode, corrupt, frame, has_sentences=config.permute, **sizes)


def _save(config: DenoiseConfig, model: Seq2Seq, marks: Marks) -> None:
    with artefacts.replace_directory(config.out / "model") as folder:
        model.save(folder)
        if (file := _find_source(config) / "tokenizer.json").is_file():  # copied, so that its fingerprint stays
            shutil.copyfile(file, folder / file.name)
        row = {"objective": config.objective, "mask": marks.mask, "sentinels": marks.sentinels}
        (folder / MARKS).write_text(json.dumps(row) + "\n")
