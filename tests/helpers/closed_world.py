"""A closed world for tests of recipes, and small settings of the recipes that are trained in it."""

from pathlib import Path
from typing import Any

from eval.systems.world import (
    ObjectTagger,
    World,
    WorldFolders,
    init_encoder,
    init_generator,
    make_world,
    write_world,
)
from pipelines.fid.config import FidConfig
from pipelines.joint.config import RAG, REALM, JointConfig
from pipelines.orqa.config import InverseClozeConfig
from pipelines.rag.config import RagConfig
from pipelines.realm.config import PretrainConfig
from ragqa.settings.groups import make_config, replace_settings

__all__ = [
    "ObjectTagger",
    "World",
    "WorldFolders",
    "closed_book_config",
    "init_encoder",
    "init_generator",
    "inverse_cloze_config",
    "joint_config",
    "make_world",
    "rag_config",
    "realm_config",
    "write_world",
]

_ANSWERS: dict[str, Any] = {"max_input": 64, "max_answer": 4}
_GENERATORS: dict[str, Any] = {"lr": 1e-3, "dropout": 0.0, "sample": 100, "eval_every": 250, "save_every": 250}
_RETRIEVERS: dict[str, Any] = {"retriever_lr": 2e-4, "refresh_every": 50}


def inverse_cloze_config(
    folders: WorldFolders, encoder: Path, out: Path, *, seed: int, steps: int = 1000
) -> InverseClozeConfig:
    """Return settings of a warm start on passages that are single sentences."""
    return make_config(
        InverseClozeConfig, corpus=folders.known_corpus, encoder=encoder, out=out, seed=seed,
        steps=steps, batch=128, lr=1e-3, warmup=min(100, steps), dropout=0.0,
        width=64, pooling="mean", shared=True, gain=64**-0.25, drop_rate=0.5, max_query=32, max_block=32,
    )  # fmt: skip


def realm_config(
    folders: WorldFolders, encoder: Path, retriever: Path, out: Path, *, seed: int, steps: int
) -> PretrainConfig:
    """Return settings of REALM's pretraining."""
    return make_config(
        PretrainConfig, corpus=folders.corpus, encoder=encoder, retriever=retriever, texts=folders.texts, out=out,
        seed=seed, steps=steps, batch=32, lr=1e-3, warmup=min(100, steps), dropout=0.0, refresh_every=50, max_text=32,
        max_block=32, dev=folders.test_questions, sample=300, eval_every=100, save_every=250,
    )  # fmt: skip


def rag_config(
    folders: WorldFolders, questions: Path, retriever: Path, generator: Path, out: Path, *, seed: int, steps: int
) -> RagConfig:
    """Return settings of RAG in which both towers learn."""
    return make_config(
        RagConfig, corpus=folders.corpus, retriever=retriever, generator=generator, questions=questions,
        dev=folders.test_questions, out=out, seed=seed, learn_passages=True, steps=steps, batch=32, k=7,
        smoothing=0.0, frozen=min(1000, steps // 2), warmup=min(100, steps), weight_decay=0.01, clip=1.0,
        max_block=32, **_GENERATORS, **_ANSWERS, **_RETRIEVERS,
    )  # fmt: skip


def joint_config(
    folders: WorldFolders,
    encoder: Path,
    retriever: Path,
    generator: Path | None,
    out: Path,
    *,
    seed: int,
    steps: int,
) -> JointConfig:
    """Return settings of joint training: half of RAG's batch of questions, and as many masked statements."""
    return make_config(
        JointConfig, corpus=folders.corpus, encoder=encoder, retriever=retriever, generator=generator,
        questions=folders.train_questions, texts=folders.texts, dev=folders.test_questions, out=out, seed=seed,
        decoder_layers=1, span=0.0, steps=steps, frozen=min(1000, steps // 2), warmup=min(100, steps),
        realm=replace_settings(REALM, batch=16, max_text=32, max_block=32),
        rag=replace_settings(RAG, batch=16, k=7, smoothing=0.0, **_ANSWERS), **_GENERATORS, **_RETRIEVERS,
    )  # fmt: skip


def closed_book_config(folders: WorldFolders, generator: Path, out: Path, *, seed: int, steps: int) -> FidConfig:
    """Return settings of a closed book: those of RAG without passages."""
    return make_config(
        FidConfig, k=0, generator=generator, questions=folders.train_questions, dev=folders.test_questions,
        out=out, seed=seed, steps=steps, batch=32, warmup=min(100, steps), **_GENERATORS, **_ANSWERS,
    )  # fmt: skip
