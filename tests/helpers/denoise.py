"""Seq2seq pretraining for tests: a few steps on passages that count up."""

from pathlib import Path
from typing import Any

from pipelines.denoise import loop as denoise
from pipelines.denoise.config import DenoiseConfig
from pipelines.denoise.texts import DenoisedTexts, DenoisingBatch, Marks
from ragqa.corpus.store import PassageStore
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.objectives import IGNORED
from tests.helpers import seq2seq

KINDS = ("t5", "bart", "bert")


def write_shapes(root: Path) -> dict[str, Path]:
    """Write a model directory of each kind, without weights."""
    return {kind: seq2seq.write_shape(kind, root / kind) for kind in KINDS}


def make_denoise_config(corpus: Path, generator: Path, out: Path) -> DenoiseConfig:
    """Return settings of six steps from random weights, with a checkpoint after the third."""
    few = {"steps": 6, "batch": 4, "max_text": 24, "lr": 1e-2, "save_every": 3, "warmup": 1}
    return DenoiseConfig(corpus=corpus, generator=generator, fresh=True, out=out, **few)


def open_texts(config: DenoiseConfig) -> tuple[DenoisedTexts, Any]:
    """Return the denoised texts of a run, and the tokenizer of its generator."""
    model = Seq2Seq.load(config.generator, fresh=config.fresh)
    marks = Marks.from_tokenizer(model.tokens.tokenizer, model.vocabulary)
    store = PassageStore.open(config.corpus / "passages")
    return denoise._open_texts(config, store, model, marks), model.tokens.tokenizer


def list_inputs(batch: DenoisingBatch) -> list[list[int]]:
    """Return the ids that the encoder reads, without padding."""
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch.x.ids_NL, batch.x.mask_NL, strict=True)]


def list_targets(batch: DenoisingBatch) -> list[list[int]]:
    """Return the ids that the decoder learns to write, without padding."""
    return [row[row != IGNORED].tolist() for row in batch.labels_BT]
