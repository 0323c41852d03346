"""Evaluation of a retriever in training: recall with its current weights and an index.

Legend: B questions, D width.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

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
from ragqa.types import Question

KS = (1, 5, 20)
"""Numbers of passages at which recall is measured."""
_BATCH = 256
"""Number of questions encoded at a time."""


@dataclass(frozen=True)
class HeldOutQuestions:
    """Held-out questions for the evaluation of a retriever, and the passages to search."""

    questions: Sequence[Question]
    """Questions with gold answers."""
    passages: TokenizedPassages
    """Wordpieces of the passages, with the store of their texts."""
    regex: bool = False
    """True if the answers are regular expressions (CuratedTREC)."""

    @classmethod
    def read(cls, config: HeldOutConfig, passages: TokenizedPassages, seed: int) -> "HeldOutQuestions | None":
        """Sample the held-out questions of a recipe; return None if the config names no file.

        Args:
            config: settings of the held-out questions.
            passages: wordpieces of the passages.
            seed: seed of the sample.

        Raises:
            BadInput, BadLine: as for ``read_answerable``.
        """
        if config.dev is None:
            return None
        return cls(read_answerable(config.dev, config.sample, seed), passages, config.regex)


def tokenize_questions(tokenizer: TextTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of [CLS] question [SEP] for each question, at most ``MAX_QUESTION`` ids."""
    first, last = tokenizer.special_ids
    return [[first, *pieces.ids[: MAX_QUESTION - 2], last] for pieces in tokenizer.tokenize_batch(list(texts))]


@torch.no_grad()
def encode_questions(tower: Tower, tokenizer: TextTokenizer, texts: Sequence[str], device: str) -> np.ndarray:
    """Return the float32 vectors [B, D] of questions, without dropout and without gradient.

    Args:
        tower: question tower.
        tokenizer: tokenizer of the tower.
        texts: B questions.
        device: device of the tower.
    """
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
    """Measure the recall of a question tower in training on held-out questions.

    Args:
        held_out: questions and passages.
        tower: question tower.
        index: index to search.
        device: device of the tower.
        ks: numbers of passages at which recall is measured.

    Returns:
        ``recall@k`` for each k: the share of questions with an answer in one of the first k passages.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
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
    """Embed the corpus with the current weights; return ``recall@k`` for each k of ``KS``.

    Args:
        work: directory for weights and vectors; it is deleted before and after the evaluation.
        retriever: dual encoder in training.
        held_out: questions and passages.
        corpus: index directory of the passages.
        device: device of the towers.
        workers: number of Ray actors that embed; 0 embeds in this process.
        insecure: True to accept a Ray cluster that asks for no token.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, RagqaError, MissingExtra: as for ``index.embed.embed``.
        SlowPattern: an answer is a pattern that takes too long.
    """
    shutil.rmtree(work, ignore_errors=True)
    # Loading a model uses random numbers. The fork keeps the random state of training unchanged.
    with torch.random.fork_rng(devices=[]):
        retriever.save_passages(work / "snapshot")
        opened = build_temporary_index(
            work / "snapshot", corpus, work / "vectors", device=device, workers=workers, insecure=insecure
        )
        with opened as (_, index):
            figures = evaluate_retrieval(held_out, retriever.questions, index, device)
    shutil.rmtree(work)
    return figures
