"""The closed world asked for answers that are written: settings that generators need there, and what they say."""

from dataclasses import replace
from pathlib import Path

import torch

from eval.closed_world import Folders
from pipelines.closed_book import ClosedBookConfig
from pipelines.joint import RAG, REALM, JointConfig
from pipelines.library import Library, answerable
from pipelines.rag import RagConfig
from pipelines.writing import evaluate, searching
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generators import load_generator
from ragqa.models.warm_start import from_encoder


def begin_generator(start: Path, out: Path, seed: int) -> Path:
    """A generator of the world's shape: the encoder ``start`` and one layer that decodes, attending from nothing."""
    if not out.is_dir():
        torch.manual_seed(seed)
        from_encoder(start, decoder_layers=1).save(out)
    return out


def answering(
    folders: Folders, questions: Path, retriever: Path, generator: Path, out: Path, *, seed: int, steps: int
) -> RagConfig:
    """Settings of RAG in a small world, those of ``pretraining``: both towers learn once passages are read."""
    return RagConfig(
        corpus=folders.corpus,
        retriever=retriever,
        generator=generator,
        questions=questions,
        dev=folders.questions,
        sample=100,
        out=out,
        learn_passages=True,
        steps=steps,
        batch=32,
        k=7,
        smoothing=0.0,
        lr=1e-3,
        retriever_lr=2e-4,
        frozen=steps // 2,
        warmup=min(100, steps),
        weight_decay=0.01,
        clip=1.0,
        dropout=0.0,
        max_input=64,
        max_answer=4,
        max_block=32,
        refresh_every=50,
        eval_every=250,
        save_every=250,
        seed=seed,
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
    """Settings of joint training in a small world: half of RAG's batch of questions, as many masked statements."""
    return JointConfig(
        corpus=folders.corpus,
        encoder=start,
        retriever=retriever,
        generator=generator,
        questions=questions,
        texts=folders.texts,
        dev=folders.questions,
        sample=100,
        out=out,
        decoder_layers=1,
        span=0.0,
        steps=steps,
        lr=1e-3,
        retriever_lr=2e-4,
        frozen=steps // 4,
        warmup=min(100, steps),
        dropout=0.0,
        refresh_every=50,
        eval_every=250,
        save_every=250,
        seed=seed,
        realm=replace(REALM, batch=16, max_text=32, max_block=32),
        rag=replace(RAG, batch=16, k=7, smoothing=0.0, max_input=64, max_answer=4),
    )


def remembering(
    folders: Folders, questions: Path, generator: Path, out: Path, *, seed: int, steps: int
) -> ClosedBookConfig:
    """Settings of the closed book in a small world, those of ``answering`` without passages."""
    return ClosedBookConfig(
        generator=generator,
        questions=questions,
        dev=folders.questions,
        sample=100,
        out=out,
        steps=steps,
        batch=32,
        lr=1e-3,
        warmup=min(100, steps),
        dropout=0.0,
        max_input=64,
        max_answer=4,
        eval_every=250,
        save_every=250,
        seed=seed,
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
