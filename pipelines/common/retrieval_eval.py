"""How well a retriever in training finds answers: questions by its live tower, passages by an index at hand.

Legend: B questions, K passages, D width.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipelines.common.mining import build_temporary_index
from pipelines.common.questions import answerable
from pipelines.common.tokenized_passages import Blocks
from ragqa.metrics import answer_recall
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.inputs import pad_rows
from ragqa.models.tower import Tower
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import MAX_QUESTION, TextTokenizer
from ragqa.training.precision import autocast
from ragqa.types import Question

KS = (1, 5, 20)
_TOGETHER = 256
"""Questions that are encoded at a time."""


@dataclass(frozen=True)
class Examination:
    """Held-out questions, on which retrieval is tried; none of them is ever trained on."""

    questions: Sequence[Question]
    blocks: Blocks
    regex: bool = False
    """Their answers are patterns (CuratedTREC)."""

    @classmethod
    def of(cls, file: Path, blocks: Blocks, sample: int | None, seed: int, *, regex: bool = False) -> "Examination":
        """Some questions of a file, drawn at random; raises BadInput where it has none with answers."""
        return cls(answerable(file, sample, seed), blocks, regex)


def as_asked(tokenizer: TextTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """[CLS] question [SEP] of each, as retrieval encodes it."""
    first, last = tokenizer.special_ids
    return [[first, *pieces.ids[: MAX_QUESTION - 2], last] for pieces in tokenizer.tokenize_batch(list(texts))]


def live_vectors(tower: Tower, tokenizer: TextTokenizer, texts: Sequence[str], device: str) -> Tensor:
    """Vectors [B, D] of questions with their gradient."""
    batch = pad_rows(as_asked(tokenizer, texts)).to(device)
    with autocast(device):
        vectors_BD: Tensor = tower(batch.ids_NL, batch.mask_NL)
    return vectors_BD


@torch.no_grad()
def question_vectors(tower: Tower, tokenizer: TextTokenizer, texts: Sequence[str], device: str) -> np.ndarray:
    """Vectors [B, D] float32 of questions, by a tower as it is now; without dropout."""
    training = tower.training
    tower.eval()
    rows, found = as_asked(tokenizer, texts), []
    for at in range(0, len(rows), _TOGETHER):
        batch = pad_rows(rows[at : at + _TOGETHER]).to(device)
        found.append(tower(batch.ids_NL, batch.mask_NL).float().cpu().numpy())
    tower.train(training)
    return np.concatenate(found)


def examine(exam: Examination, tower: Tower, index: Mips, device: str, ks: Sequence[int] = KS) -> dict[str, float]:
    """Share of the questions with an answer in the first k passages: ``recall@k``, by DPR's rule (has-answer)."""
    vectors = question_vectors(tower, exam.blocks.tokenizer, [q.text for q in exam.questions], device)
    found = index.search(vectors, max(ks))
    texts = [[passage.text for passage in exam.blocks.store.get(ranking.rows.tolist())] for ranking in found]
    answers = [list(question.answers) for question in exam.questions]
    recall = answer_recall(texts, answers, list(ks), regex=exam.regex)
    return {f"recall@{k}": recall[k] for k in ks}


def examine_anew(
    work: Path, retriever: DualEncoder, exam: Examination, corpus: Path, *, device: str, workers: int = 0
) -> dict[str, float]:
    """``examine`` by an exact index of the present weights over ``corpus``, made for it in the folder ``work``."""
    shutil.rmtree(work, ignore_errors=True)
    with torch.random.fork_rng(devices=[]):  # to load a model must not change the steps of the one in training
        retriever.save_passages(work / "snapshot")
        with build_temporary_index(work / "snapshot", corpus, work / "vectors", device=device, workers=workers) as (
            _,
            index,
        ):
            found = examine(exam, retriever.questions, index, device)
    shutil.rmtree(work)
    return found
