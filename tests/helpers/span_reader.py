"""A small training of a span reader: data, settings and batches."""

import json
from pathlib import Path
from typing import Any

from conftest import untimed

from pipelines.common.examples.data_sets import read_training_sets
from pipelines.common.examples.mining import PassageSearch
from pipelines.common.examples.passage_sampler import (
    MinedPassages,
    PassageMix,
    PassageSampler,
    load_splitter,
)
from pipelines.span_reader.config import ReaderConfig
from pipelines.span_reader.data import BatchShape, ReaderBatches
from pipelines.span_reader.distant_supervision import mine_passages
from ragqa.question_files import read_questions
from ragqa.retrieval.live import open_retriever
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.log import read_rows
from tests.helpers import tiny


def write_squad(path: Path, *, articles: int = 8) -> Path:
    """Write a SQuAD file in which each answer is the word after the word of the question."""
    data = []
    for a in range(articles):
        paragraphs = []
        for p in range(3):
            words = [f"w{(a * 31 + p * 7 + i * 3) % 1000}" for i in range(12)]
            questions = [
                {
                    "id": f"{a}-{p}-{i}",
                    "question": f"what follows {words[i]}",
                    "answers": [{"text": words[i + 1], "answer_start": " ".join(words).find(words[i + 1])}],
                }
                for i in range(0, 10, 2)
            ]
            paragraphs.append({"context": " ".join(words), "qas": questions})
        data.append({"title": f"w{a}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"data": data}))
    return path


def make_config(encoder: Path, world: tiny.TinyWorld, folder: Path) -> ReaderConfig:
    """Return the settings of a small run: paragraphs with questions, and questions with answers over an index."""
    return ReaderConfig(
        train=(write_squad(folder / "squad.json"), world.train),
        index=world.corpus,
        dev=world.dev,
        encoder=encoder,
        out=folder / "run",
        steps=6,
        batch=4,
        warmup=2,
        held_out=0.3,
        dropout=0.1,
        max_input=32,
        max_span=4,
        read=3,
        eval_every=4,
        save_every=3,
        sample=6,
    )


def read_figures(out: Path) -> list[dict[str, Any]]:
    return [untimed(row) for row in read_rows(out)]


def mine_all(config: ReaderConfig, folder: Path, **other: Any) -> list[MinedPassages]:
    assert config.index is not None
    questions = [(question, False) for file in config.train for question in read_questions(file)]
    search = PassageSearch(open_retriever(config.index), 10, 3)
    return mine_passages(questions, search, folder, {"files": "these", **other})


def make_batches(config: ReaderConfig, folder: Path | None = None, **options: Any) -> ReaderBatches:
    sets, _ = read_training_sets(config.files, share=0.0)
    mix = {"positives": 1, "distant": 1, "negatives": 1.0, "hard": 0.5, "whole": 0.5, "untitled": 0.5} | options
    retriever = open_retriever(config.index) if config.index and folder else None
    store, tokenizer = retriever.passages if retriever else None, TextTokenizer(config.encoder)
    passages = mine_all(config, folder) if folder else []
    sampler = PassageSampler(sets, passages, store, load_splitter(config.index, tokenizer), PassageMix(**mix))
    shape = BatchShape(
        batch=config.batch, parts=config.accumulate, max_tokens=config.max_input, max_span=config.max_span
    )
    return ReaderBatches(sets, sampler, tokenizer, shape, shares=config.shares, seed=config.seed)
