"""What the recipes of generators share: which answers are taught, and how held-out questions are answered.

Legend: B questions, K passages a question, T tokens of an answer, D width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.common.config import Rules, TrainingConfig
from pipelines.common.questions import draw_step
from pipelines.common.retrieval_eval import KS, encode_questions
from pipelines.common.training_index.base import NOT_FOUND, TrainingIndex
from ragqa import artefacts
from ragqa.metrics import answer_recall, exact_match
from ragqa.models.generation import search as searches
from ragqa.models.generation.generators import (
    Generator,
    load_generator,
    make_generator,
    read_model_type,
    save_generator,
)
from ragqa.models.generation.limits import MAX_ANSWER, MAX_INPUT
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.pretrained import set_dropout
from ragqa.models.tower import Tower
from ragqa.reading.registry import ReaderKind
from ragqa.reading.windows import MIN_WINDOW
from ragqa.runtime.encoder import load_encoder
from ragqa.training import parallel
from ragqa.training.meter import count_seq2seq_weights
from ragqa.training.precision import autocast
from ragqa.types import Hit, Passage, Question

ASKED = 64
"""Questions that are asked at a time in an evaluation."""
_ANSWERS = 1
"""Beside seed and step: the stream of random numbers that choose answers."""


@dataclass(frozen=True, kw_only=True)
class WritingConfig:
    """The generator that writes answers."""

    generator: Path
    """Directory of a generator, or of a plain sequence-to-sequence model with its tokenizer."""
    max_input: int = MAX_INPUT
    """Tokens of question and passage that are read together."""
    max_answer: int = MAX_ANSWER
    """Tokens of an answer, its end included."""

    def rules(self) -> Rules:
        """Return the rules of these settings."""
        rules = {"max_input": (self.max_input >= MIN_WINDOW, f"{MIN_WINDOW} or more")}
        return {**rules, "max_answer": (self.max_answer > 1, "more than 1")}


def load_for_training(
    kind: str,
    config: TrainingConfig,
    writing: WritingConfig,
    passages: int,
    notify: Callable[[str], None] = lambda line: None,
) -> Generator:
    """Load the generator of a recipe: one of this kind, or a sequence-to-sequence model used as one.

    Args:
        kind: of the generator.
        config: of the recipe: ``device`` and ``dropout``.
        writing: where the generator is, and how much it reads and writes.
        passages: number of passages that it reads.
        notify: takes a line if it reads or writes less than it should.

    Raises:
        ArtefactError, DamagedArtefact, BadInput: see ``load_generator``.
    """
    source = writing.generator
    plain = read_model_type(source) != "rag" and not (source / "generator.json").is_file()
    return prepare(load_generator(source, kind if plain else None), kind, config, writing, passages, notify)


def prepare(
    generator: Generator,
    kind: str,
    config: TrainingConfig,
    writing: WritingConfig,
    passages: int,
    notify: Callable[[str], None] = lambda line: None,
) -> Generator:
    """Prepare a generator for training as ``kind``, whichever it was before; see ``load_for_training``."""
    if generator.kind != kind:  # what another kind has learned is worth beginning from, too
        generator = make_generator(generator.seq2seq, kind, **_read_alike(generator, kind))
    longest = generator.seq2seq.max_tokens
    generator.passages, generator.retriever = passages, None
    generator.max_input, generator.max_answer = min(writing.max_input, longest), min(writing.max_answer, longest)
    for name in ("max_input", "max_answer"):
        if getattr(writing, name) > longest:
            notify(f"--{name.replace('_', '-')} {getattr(writing, name)}: {longest} are as many as this generator can")
    set_dropout(generator.train().to(config.device), config.dropout)
    return generator


def _read_alike(generator: Generator, kind: str) -> dict[str, Any]:
    """How a generator of RAG reads a pair, where it becomes one of the other marginal, or FiD."""
    if not (isinstance(generator, RagGenerator) and generator.kind.uses_scores) or kind == ReaderKind.CLOSED_BOOK:
        return {}
    told = {"question_tokens": generator.question_tokens} if ReaderKind(kind).uses_scores else {}
    return {"template": generator.template, **told}


def draw_questions(
    questions: Sequence[Question], *, batch: int, seed: int, step: int
) -> tuple[list[Question], list[str]]:
    """Draw this process's share of the questions of a step, and for each of them one of its gold answers.

    Which one is drawn evenly by (seed, step). RAG trains on every pair of question and answer (Lewis et al. 2020,
    appendix D): so a question would count the more, the more answers it has.
    """
    places = draw_step(len(questions), batch=batch, seed=seed, step=step)
    rng = np.random.default_rng([seed, step, _ANSWERS])
    answers = [str(rng.choice(questions[at].answers)) for at in places]
    return [questions[at] for at in parallel.take_share(places)], parallel.take_share(answers)


def present(relevance_BK: Tensor, rows_BK: np.ndarray) -> Tensor:
    """Relevance as a generator takes it: -inf where nothing was found."""
    missing_BK = rows_BK == NOT_FOUND
    missing_BK[:, 0] &= ~missing_BK.all(-1)  # an empty passage is read where there is none at all
    return relevance_BK.masked_fill(torch.from_numpy(missing_BK).to(relevance_BK.device), -torch.inf)


@torch.no_grad()
def written(generator: Generator, texts: list[str], passages: list[list[Passage]], relevance_BK: Tensor) -> list[str]:
    """Answers by greedy decoding, without dropout; '' where nothing was written."""
    training = generator.training
    generator.eval()
    inputs = generator.inputs(texts, passages).to(relevance_BK.device)
    with autocast(relevance_BK.device):
        found = generator.generate(inputs, relevance_BK, searches.SearchSettings(longest=generator.max_answer))
    generator.train(training)
    return [generator.seq2seq.tokens.decode(candidates[0].ids) for candidates in found]


def right(said: Sequence[str], questions: Sequence[Question], *, regex: bool) -> int:
    """How many are exact matches."""
    pairs = zip(said, questions, strict=True)
    return sum(exact_match(text, question.answers, regex=regex) for text, question in pairs)


Search = Callable[[list[str]], list[list[Hit]]]
"""Passages of questions, best first."""


def searching(index: TrainingIndex, tower: Tower, passages: int, device: str) -> Search:
    """What an index finds for the vectors of a tower in training: at least as many as ``passages`` and ``KS``."""
    beam = min(max(*KS, passages), index.store.live_count)

    def search(texts: list[str]) -> list[list[Hit]]:
        rankings = index.mips.search(encode_questions(tower, index.tokenizer, texts, device), beam)
        return [list(map(Hit, index.passages(each.rows), each.scores.tolist())) for each in rankings]

    return search


def scores(hits: Sequence[Sequence[Hit]], device: str) -> Tensor:
    """Retrieval's own scores as relevance ``[B, K]``: -inf where a question has fewer passages, 0 where it has none."""
    relevance_BK = torch.full((len(hits), max(1, *map(len, hits))), -torch.inf, device=device)
    for row, found in zip(relevance_BK, hits, strict=True):
        row[: max(1, len(found))] = torch.tensor([hit.score for hit in found] or [0.0])
    return relevance_BK


def evaluate(
    generator: Generator,
    search: Search,
    questions: Sequence[Question],
    *,
    device: str,
    regex: bool,
    write: bool = True,
) -> dict[str, float]:
    """Ask held-out questions as a pipeline would: ``em`` of greedy answers, ``recall@k`` by DPR's rule.

    Without ``write`` only what is found is looked at; where the book is closed, nothing is.
    """
    hits, found = 0, []
    for at in range(0, len(questions), ASKED):
        some = list(questions[at : at + ASKED])
        texts = [question.text for question in some]
        every = search(texts)
        found += [[hit.passage.text for hit in each] for each in every]
        if write:
            read = [each[: generator.passages] for each in every]
            passages = [[hit.passage for hit in each] for each in read]
            hits += right(written(generator, texts, passages, scores(read, device)), some, regex=regex)
    em = {"em": hits / len(questions)} if write else {}
    if generator.template.closed:
        return em
    recall = answer_recall(found, [list(question.answers) for question in questions], list(KS), regex=regex)
    return em | {f"recall@{k}": recall[k] for k in KS}


def operations(seq2seq: Seq2Seq) -> tuple[int, int]:
    """Operations of a training step for each token that is read, and for each that is written."""
    read, wrote = count_seq2seq_weights(seq2seq.model)
    return 6 * read, 6 * wrote


def save(generator: Generator, out: Path, retriever: Path | None = None) -> None:
    """Write the generator's directory, whole or not at all; ``retriever`` is that of the scores it learned with."""
    generator.retriever = load_encoder(retriever).fingerprint if retriever else None
    with artefacts.replace_directory(out) as folder:
        save_generator(generator, folder)
