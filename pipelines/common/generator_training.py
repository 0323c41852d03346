"""Parts that the recipes of generators share: loading, sampling, evaluation and saving.

Legend: B questions, K passages of a question.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.common.config import TrainingConfig, WritingConfig
from pipelines.common.questions import draw_step
from pipelines.common.retrieval_eval import KS, encode_questions
from pipelines.common.training_index import NOT_FOUND, TrainingIndex
from ragqa import artefacts
from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import answer_recall, exact_match
from ragqa.models.generation.generator_kinds import GeneratorKind
from ragqa.models.generation.generators import (
    Generator,
    load_generator,
    make_generator,
    read_model_type,
    save_generator,
)
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.pretrained import set_dropout
from ragqa.models.tower import Tower
from ragqa.progress import Notify, ignore_line
from ragqa.runtime.encoder import load_encoder
from ragqa.training import parallel
from ragqa.training.meter import count_seq2seq_weights
from ragqa.training.precision import autocast
from ragqa.types import Hit, Passage, Question

EVALUATION_BATCH = 64
"""Number of questions read at a time in an evaluation."""
_ANSWER_STREAM = 1
"""Last part of the seed that chooses answers; the first parts are the seed of the run and the step."""

PassageFinder = Callable[[list[str]], list[list[Hit]]]
"""Function from question texts to the hits for each question, best first."""


def load_for_training(
    kind: str,
    config: TrainingConfig,
    writing: WritingConfig,
    passages: int,
    notify: Notify = ignore_line,
) -> Generator:
    """Load a generator or a seq2seq model, and prepare it for training.

    Args:
        kind: kind of generator to train.
        config: settings of the recipe, for device and dropout.
        writing: directory of the generator, and the largest lengths of inputs and answers.
        passages: number of passages to read for a question.
        notify: receives a line if the model cannot read or write texts of these lengths.

    Raises:
        ArtefactError, DamagedArtefact, Mismatch, BadInput, MissingExtra: as for ``load_generator``.
    """
    source = writing.generator
    is_plain = read_model_type(source) != "rag" and not (source / "generator.json").is_file()
    generator = load_generator(source, kind if is_plain else None)
    return prepare_for_training(generator, kind, config, writing, passages, notify)


def prepare_for_training(
    generator: Generator,
    kind: str,
    config: TrainingConfig,
    writing: WritingConfig,
    passages: int,
    notify: Notify = ignore_line,
) -> Generator:
    """Return a generator of a kind in training mode, with the weights of a loaded generator.

    The loaded ``generator`` can have any kind. Other arguments are as for ``load_for_training``.

    Raises:
        BadInput: the kind is unknown.
    """
    if generator.kind != kind:  # weights of another kind are a good start
        generator = make_generator(generator.seq2seq, kind, **_keep_template(generator, kind))
    longest = generator.seq2seq.max_tokens
    generator.passages, generator.retriever = passages, None
    generator.max_input, generator.max_answer = min(writing.max_input, longest), min(writing.max_answer, longest)
    for name in ("max_input", "max_answer"):
        if getattr(writing, name) > longest:
            notify(
                f"--{name.replace('_', '-')} {getattr(writing, name)}: this generator takes at most {longest} tokens"
            )
    set_dropout(generator.train().to(config.device), config.dropout)
    return generator


def _keep_template(generator: Generator, kind: str) -> dict[str, Any]:
    """Return a RAG generator's template and question tokenizer, if ``kind`` uses them."""
    if not (isinstance(generator, RagGenerator) and generator.kind.uses_scores) or kind == GeneratorKind.CLOSED_BOOK:
        return {}
    tokens = {"question_tokens": generator.question_tokens} if GeneratorKind(kind).uses_scores else {}
    return {"template": generator.template, **tokens}


def draw_questions(
    questions: Sequence[Question], *, batch: int, seed: int, step: int
) -> tuple[list[Question], list[str]]:
    """Sample the questions of a step, and one gold answer for each question.

    Each answer of a question has the same probability. RAG's paper trains on every pair of question and answer (Lewis
    et al. 2020, appendix D), which gives more weight to questions with many answers.

    Args:
        questions: all training questions.
        batch: number of questions of a step, over all processes.
        seed: seed of the run.
        step: number of the step. Seed and step determine the sample.

    Returns:
        The questions of this process, and an answer to each question.

    Raises:
        BadInput: the processes cannot share the batch evenly.
    """
    places = draw_step(len(questions), batch=batch, seed=seed, step=step)
    rng = np.random.default_rng([seed, step, _ANSWER_STREAM])
    answers = [str(rng.choice(questions[place].answers)) for place in places]
    return [questions[place] for place in parallel.take_share(places)], parallel.take_share(answers)


def mask_missing(relevance_BK: Tensor, rows_BK: np.ndarray) -> Tensor:
    """Return retrieval scores [B, K] with -inf for missing passages.

    If all passages of a question are missing, its first score stays. The generator then reads one empty passage.

    Args:
        relevance_BK: retrieval scores.
        rows_BK: rows of the passages; ``NOT_FOUND`` for a missing passage.
    """
    missing_BK = rows_BK == NOT_FOUND
    missing_BK[:, 0] &= ~missing_BK.all(-1)
    return relevance_BK.masked_fill(torch.from_numpy(missing_BK).to(relevance_BK.device), -torch.inf)


@torch.no_grad()
def write_answers(
    generator: Generator, texts: list[str], passages: list[list[Passage]], relevance_BK: Tensor
) -> list[str]:
    """Return the answers [B] that a generator writes by greedy decoding, without dropout.

    Args:
        generator: generator in training; it keeps its mode.
        texts: B questions.
        passages: at most K passages of each question.
        relevance_BK: retrieval scores; -inf for missing passages.
    """
    training = generator.training
    generator.eval()
    inputs = generator.make_inputs(texts, passages).to(relevance_BK.device)
    with autocast(relevance_BK.device):
        candidates = generator.generate(inputs, relevance_BK, SearchSettings(max_answer=generator.max_answer))
    generator.train(training)
    return [generator.seq2seq.tokens.decode(best.ids) for best, *_ in candidates]


def count_exact_matches(answers: Sequence[str], questions: Sequence[Question], *, regex: bool) -> int:
    """Return the number of answers that equal a gold answer (exact match).

    Args:
        answers: one answer to each question.
        questions: questions with gold answers.
        regex: True if the gold answers are regular expressions.

    Raises:
        SlowPattern: a gold answer is a pattern that takes too long.
    """
    pairs = zip(answers, questions, strict=True)
    with name_slow_question(questions):
        return sum(exact_match(answer, question.answers, regex=regex) for answer, question in pairs)


def make_passage_finder(index: TrainingIndex, tower: Tower, passages: int, device: str) -> PassageFinder:
    """Return a function that searches with the question tower in training.

    Args:
        index: index to search.
        tower: question tower.
        passages: number of passages to read. The function returns more, up to ``max(KS)``, if recall needs them.
        device: device of the tower.
    """
    depth = min(max(*KS, passages), index.store.live_count)

    def find_passages(texts: list[str]) -> list[list[Hit]]:
        rankings = index.mips.search(encode_questions(tower, index.tokenizer, texts, device), depth)
        return [list(map(Hit, index.passages(ranking.rows), ranking.scores.tolist())) for ranking in rankings]

    return find_passages


def stack_scores(hits: Sequence[Sequence[Hit]], device: str) -> Tensor:
    """Return the retrieval scores ``[B, K]`` of hits, -inf for a missing passage.

    A question without hits gets the score 0 for one empty passage.

    Args:
        hits: at most K hits of each question; K is at least 1.
        device: device of the scores.
    """
    relevance_BK = torch.full((len(hits), max(1, *map(len, hits))), -torch.inf, device=device)
    for row, question_hits in zip(relevance_BK, hits, strict=True):
        row[: max(1, len(question_hits))] = torch.tensor([hit.score for hit in question_hits] or [0.0])
    return relevance_BK


def evaluate_generator(
    generator: Generator,
    find_passages: PassageFinder,
    questions: Sequence[Question],
    *,
    device: str,
    regex: bool,
    with_answers: bool = True,
) -> dict[str, float]:
    """Evaluate a generator in training on held-out questions.

    Args:
        generator: generator in training.
        find_passages: function that retrieves the passages.
        questions: held-out questions.
        device: device of the generator.
        regex: True if gold answers are regular expressions.
        with_answers: True to write and score answers; otherwise only recall is measured.

    Returns:
        ``em``, the exact match of greedy answers, and ``recall@k`` by DPR's rule for each k of ``KS``, from 0 to 1. A
        closed book has no recall.

    Raises:
        SlowPattern: a gold answer is a pattern that takes too long.
    """
    right, texts_found = 0, []
    for first in range(0, len(questions), EVALUATION_BATCH):
        batch = list(questions[first : first + EVALUATION_BATCH])
        texts = [question.text for question in batch]
        hits = find_passages(texts)
        texts_found += [[hit.passage.text for hit in question_hits] for question_hits in hits]
        if with_answers:
            read = [question_hits[: generator.passages] for question_hits in hits]
            passages = [[hit.passage for hit in question_hits] for question_hits in read]
            answers = write_answers(generator, texts, passages, stack_scores(read, device))
            right += count_exact_matches(answers, batch, regex=regex)
    em = {"em": right / len(questions)} if with_answers else {}
    if generator.template.is_closed_book:
        return em
    gold = [list(question.answers) for question in questions]
    with name_slow_question(questions):
        recall = answer_recall(texts_found, gold, list(KS), regex=regex)
    return em | {f"recall@{k}": recall[k] for k in KS}


def count_token_flops(seq2seq: Seq2Seq) -> tuple[int, int]:
    """Return the training FLOPs per token of the input, and per token of the answer."""
    read, written = count_seq2seq_weights(seq2seq.model)
    return 6 * read, 6 * written


def write_generator(generator: Generator, out: Path, retriever: Path | None = None) -> None:
    """Write a generator into a directory; only the first process writes.

    Args:
        generator: trained generator.
        out: directory to write; an older generator in it is replaced.
        retriever: directory of the retriever, whose fingerprint the generator stores.

    Raises:
        BadInput: ``out`` holds other files, or cannot be written.
        ArtefactError, DamagedArtefact, Mismatch: as for ``load_encoder``.
    """
    if not parallel.is_first_process():
        return
    generator.retriever = load_encoder(retriever).fingerprint if retriever else None
    with artefacts.replace_directory(out) as folder:
        save_generator(generator, folder)
