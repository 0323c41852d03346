"""Recall of a retriever in training, measured with its current weights and an index.

Legend: B questions, K passages, D width.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipelines.common.config import HeldOutConfig
from pipelines.common.examples.mining import build_temporary_index
from pipelines.common.questions import read_answerable
from pipelines.common.tokenized_passages import TokenizedPassages
from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import answer_recall
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.inputs import pad_rows
from ragqa.models.tower import Tower
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import MAX_QUESTION, TextTokenizer
from ragqa.training.precision import autocast
from ragqa.types import Question

KS = (1, 5, 20)
"""Numbers of passages at which recall is measured."""
_BATCH = 256
"""Number of questions encoded at a time."""


@dataclass(frozen=True)
class HeldOutQuestions:
    """Held-out questions on which retrieval is evaluated."""

    questions: Sequence[Question]
    passages: TokenizedPassages
    regex: bool = False
    """True if their answers are regular expressions (CuratedTREC)."""

    @classmethod
    def read(cls, config: HeldOutConfig, passages: TokenizedPassages, seed: int) -> "HeldOutQuestions | None":
        """Sample the held-out questions of a recipe; None without a file.

        Args:
            config: settings of the held-out questions.
            passages: wordpieces of the passages.
            seed: seed of the sample.

        Raises:
            BadInput: no question has an answer.
        """
        if config.dev is None:
            return None
        return cls(read_answerable(config.dev, config.sample, seed), passages, config.regex)


def tokenize_questions(tokenizer: TextTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of [CLS] question [SEP] for each text, as retrieval encodes it."""
    first, last = tokenizer.special_ids
    return [[first, *pieces.ids[: MAX_QUESTION - 2], last] for pieces in tokenizer.tokenize_batch(list(texts))]


def encode_with_gradient(tower: Tower, tokenizer: TextTokenizer, texts: Sequence[str], device: str) -> Tensor:
    """Return the vectors [B, D] of questions by a tower in training, with gradient."""
    batch = pad_rows(tokenize_questions(tokenizer, texts)).to(device)
    with autocast(device):
        vectors_BD: Tensor = tower(batch.ids_NL, batch.mask_NL)
    return vectors_BD


@torch.no_grad()
def encode_questions(tower: Tower, tokenizer: TextTokenizer, texts: Sequence[str], device: str) -> np.ndarray:
    """Return the vectors [B, D] float32 of questions by a tower, without dropout or gradient."""
    training = tower.training
    tower.eval()
    rows, parts = tokenize_questions(tokenizer, texts), []
    for first in range(0, len(rows), _BATCH):
        batch = pad_rows(rows[first : first + _BATCH]).to(device)
        parts.append(tower(batch.ids_NL, batch.mask_NL).float().cpu().numpy())
    tower.train(training)
    return np.concatenate(parts)


def evaluate_retrieval(
    held_out: HeldOutQuestions, tower: Tower, index: Mips, device: str, ks: Sequence[int] = KS
) -> dict[str, float]:
    """Return ``recall@k`` for each k: the share of questions with an answer in k passages.

    Args:
        held_out: questions and passages.
        tower: question tower in training.
        index: index to search.
        device: device of the tower.
        ks: numbers of passages.
    """
    texts = [question.text for question in held_out.questions]
    vectors = encode_questions(tower, held_out.passages.tokenizer, texts, device)
    store = held_out.passages.store
    passages = [[passage.text for passage in store.get(r.rows.tolist())] for r in index.search(vectors, max(ks))]
    answers = [list(question.answers) for question in held_out.questions]
    with name_slow_question(held_out.questions):
        recall = answer_recall(passages, answers, list(ks), regex=held_out.regex)
    return {f"recall@{k}": recall[k] for k in ks}


def evaluate_with_new_index(
    work: Path,
    retriever: DualEncoder,
    held_out: HeldOutQuestions,
    corpus: Path,
    *,
    device: str,
    workers: int = 0,
    insecure: bool = False,
) -> dict[str, float]:
    """Return ``recall@k`` by an exact index that the current weights make.

    Args:
        work: folder of the index, deleted afterwards.
        retriever: both towers in training.
        held_out: questions and passages.
        corpus: index directory of the passages.
        device: device of the towers.
        workers: Ray actors that embed; 0 embeds in this process.
        insecure: accept a Ray cluster that asks for no token.
    """
    shutil.rmtree(work, ignore_errors=True)
    with torch.random.fork_rng(devices=[]):  # loading a model must not change the random numbers of the training
        retriever.save_passages(work / "snapshot")
        opened = build_temporary_index(
            work / "snapshot", corpus, work / "vectors", device=device, workers=workers, insecure=insecure
        )
        with opened as (_, index):
            figures = evaluate_retrieval(held_out, retriever.questions, index, device)
    shutil.rmtree(work)
    return figures
