"""The closed world asked for answers that are written: settings that generators need there, and what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from eval.closed_world import Folders
from pipelines.closed_book import ClosedBookConfig
from pipelines.common.generation import evaluate, searching
from pipelines.common.questions import answerable
from pipelines.common.training_index import Library
from pipelines.joint.__main__ import RAG, REALM, JointConfig
from pipelines.rag.train import RagConfig
from ragqa import artefacts
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.encoder_decoder import from_encoder
from ragqa.models.generation.generators import load_generator

_SMALL: dict[str, Any] = {
    "lr": 1e-3,
    "dropout": 0.0,
    "sample": 100,
    "eval_every": 250,
    "save_every": 250,
}
"""What all recipes are told in a small world."""
_WRITTEN: dict[str, Any] = {"max_input": 64, "max_answer": 4}
_FOLLOWED: dict[str, Any] = {"retriever_lr": 2e-4, "refresh_every": 50}
FROZEN = 1000
"""Steps in which nothing but the reader learns, in every run: what has just begun does not use passages yet."""


def begin_generator(start: Path, out: Path, seed: int) -> Path:
    """A generator of the shape of the encoder ``start``, with one layer that decodes, attending from nothing."""
    if not out.is_dir():
        torch.manual_seed(seed)
        with artefacts.writing(out) as folder:
            from_encoder(start, decoder_layers=1).save(folder)
    return out


def answering(
    folders: Folders, questions: Path, retriever: Path, generator: Path, out: Path, *, seed: int, steps: int
) -> RagConfig:
    """Settings of RAG in a small world: both towers learn once passages are read."""
    return RagConfig(
        corpus=folders.corpus,
        retriever=retriever,
        generator=generator,
        questions=questions,
        dev=folders.questions,
        out=out,
        learn_passages=True,
        steps=steps,
        batch=32,
        k=7,
        smoothing=0.0,
        frozen=min(FROZEN, steps // 2),
        warmup=min(100, steps),
        weight_decay=0.01,
        clip=1.0,
        max_block=32,
        seed=seed,
        **_SMALL,
        **_WRITTEN,
        **_FOLLOWED,
    )


def together(
    folders: Folders,
    start: Path,
    retriever: Path,
    generator: Path | None,
    questions: Path,
    out: Path,
    *,
    seed: int,
    steps: int,
) -> JointConfig:
    """Settings of joint training in a small world: half of RAG's batch of questions, and as many masked statements."""
    return JointConfig(
        corpus=folders.corpus,
        encoder=start,
        retriever=retriever,
        generator=generator,
        questions=questions,
        texts=folders.texts,
        dev=folders.questions,
        out=out,
        decoder_layers=1,
        span=0.0,
        steps=steps,
        frozen=min(FROZEN, steps // 2),
        warmup=min(100, steps),
        seed=seed,
        realm=replace(REALM, batch=16, max_text=32, max_block=32),
        rag=replace(RAG, batch=16, k=7, smoothing=0.0, **_WRITTEN),
        **_SMALL,
        **_FOLLOWED,
    )


def remembering(
    folders: Folders, questions: Path, generator: Path, out: Path, *, seed: int, steps: int
) -> ClosedBookConfig:
    """Settings of the closed book in a small world, those of ``answering`` without passages."""
    return ClosedBookConfig(
        generator=generator,
        questions=questions,
        dev=folders.questions,
        out=out,
        steps=steps,
        batch=32,
        warmup=min(100, steps),
        seed=seed,
        **_SMALL,
        **_WRITTEN,
    )


def answered(folders: Folders, out: Path, questions: Path) -> dict[str, float]:
    """What a finished run of RAG or joint training says to questions, by an index of its final weights."""
    library = Library.open(folders.corpus, out / "model", out / "final")
    generator, tower = load_generator(out / "generator"), DualEncoder.load(out / "model").questions
    search = searching(library, tower, generator.passages, "cpu")
    return evaluate(generator, search, answerable(questions), device="cpu", regex=False)


def remembered(out: Path, questions: Path) -> dict[str, float]:
    """What a finished closed book says to questions."""
    generator = load_generator(out / "model")
    return evaluate(generator, lambda texts: [[] for _ in texts], answerable(questions), device="cpu", regex=False)
