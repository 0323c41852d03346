"""Training loop of ORQA's and REALM's fine-tuning (``pipelines.orqa.fine_tune``).

Legend: B questions, K passages of the beam (all passages that are retrieved), D width, S spans of a passage.
"""

from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pipelines.common.answer_rows import AnsweredQuestions, locate_answers
from pipelines.common.assemble import AssembleConfig
from pipelines.common.best import BestWeights
from pipelines.common.examples.gold_spans import GoldSpans
from pipelines.common.examples.spans import make_reader_batch, score_spans
from pipelines.common.learning_rates import compute_rate
from pipelines.common.questions import draw_step, read_training_questions
from pipelines.common.retrieval_eval import KS, encode_questions
from pipelines.common.run import BatchLoss, open_run, write_model
from pipelines.common.training_index import FrozenIndex, TrainingIndex, check_corpus_size
from pipelines.orqa.config import FineTuneConfig
from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import exact_match
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.models.span_readers import MlpSpanReader
from ragqa.models.tower import Tower
from ragqa.objectives import retrieval_nll, span_nll
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Ranking
from ragqa.runtime.scorer import make_torch_scorer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.types import Hit

_BATCH = 64
"""Number of questions in a batch of an evaluation."""


class OpenQA(nn.Module):
    """Model that fine-tuning trains: question tower, and span reader with its tokenizer."""

    def __init__(self, questions: Tower, reader: MlpSpanReader, tokenizer: TextTokenizer) -> None:
        super().__init__()
        self.questions, self.reader, self.tokenizer = questions, reader, tokenizer


def compute_loss(
    model: OpenQA, index: TrainingIndex, answered: AnsweredQuestions, places: list[int], config: FineTuneConfig
) -> BatchLoss:
    """Return the loss of a batch in nats: retrieval term plus span term.

    Source: Lee et al. 2019, section "Learning". The question tower in training searches, the passages of the beam are
    scored, and the best of them are read. The retrieval term of a question is 0 if no passage of the beam has an
    answer. The span term is 0 if no passage that is read has a gold span.

    Args:
        model: question tower and reader.
        index: passages to search.
        answered: training questions, with the passages that answer them.
        places: positions in ``answered`` of this process's questions of the batch.
        config: settings of the run.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
    """
    questions = [answered.questions[place] for place in places]
    texts = [question.text for question in questions]
    query_BD = index.encode(model.questions, texts, config.device)
    rows_BK = index.propose(query_BD.detach().float().cpu().numpy(), config.beam)
    relevance_BK = index.score(query_BD, rows_BK)
    has_answer = np.stack([answered.has_answer(place, rows) for place, rows in zip(places, rows_BK, strict=True)])
    has_answer_BK = torch.from_numpy(has_answer).to(config.device)
    windows = make_reader_batch(
        model.tokenizer,
        texts,
        [index.passages(rows[: config.read]) for rows in rows_BK],
        [GoldSpans(model.tokenizer, question.answers, regex=config.held_out.regex) for question in questions],
        max_tokens=model.reader.max_tokens,
        max_span=config.max_span,
    ).to(config.device)
    with autocast(config.device):
        score_BKS, correct_BKS = score_spans(model.reader, windows, (len(places), config.read))
    retrieval_B = retrieval_nll(relevance_BK, has_answer_BK)
    span_B = span_nll(score_BKS, relevance_BK[:, : config.read], correct_BKS)
    tokens = windows.ids_NL.numel()
    return BatchLoss.from_mean(
        (retrieval_B + span_B).mean(),
        torch.ones(len(places), device=config.device),
        tokens=tokens,
        flops=count_flops(model.reader, tokens),
        retrieval_nll=retrieval_B.mean().item(),
        span_nll=span_B.mean().item(),
        in_beam=has_answer_BK.any(-1).float().mean().item(),
        in_read=correct_BKS.flatten(1).any(-1).float().mean().item(),
    )


def draw_share(answered: AnsweredQuestions, config: FineTuneConfig, step: int) -> list[int]:
    """Draw this process's questions of a step; return their positions in ``answered``.

    Args:
        answered: training questions.
        config: settings of the run, for the size of a batch and the seed.
        step: number of the step, from 0.

    Raises:
        BadInput: the processes cannot share the batch evenly.
    """
    return parallel.take_share(draw_step(len(answered), batch=config.batch, seed=config.seed, step=step))


def compute_rates(step: int, config: FineTuneConfig) -> list[float]:
    """Return the learning rates of a step: two for the question tower, then two for the reader.

    Each module has two parameter groups: with and without weight decay.

    Args:
        step: number of the step, from 0.
        config: settings of the run.
    """
    peaks = config.lr if config.retriever_lr is None else config.retriever_lr, config.lr
    schedule = partial(compute_rate, step, warmup=config.warmup, total=config.steps, default_warmup=10_000)
    return [schedule(peak=peak) for peak in peaks for _ in range(2)]


@torch.no_grad()
def evaluate(
    model: OpenQA, index: TrainingIndex, held_out: AnsweredQuestions, config: FineTuneConfig
) -> dict[str, float]:
    """Evaluate the model on held-out questions, with the code that answers in a pipeline.

    Args:
        model: question tower and reader.
        index: passages to search.
        held_out: held-out questions, with the passages that answer them.
        config: settings of the run.

    Returns:
        ``em``: exact match of the answers, from 0 to 1. ``recall@k``, ``in_beam`` and ``in_read``: shares of questions
        with an answer in one of the k best passages, in the beam, and in the passages that are read.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
    """
    model.eval()
    scorer = make_torch_scorer(model.reader, model.tokenizer, config.out, "in training", device=config.device)
    reader = ExtractiveReader(scorer, UNCALIBRATED)
    beam = min(config.beam, index.store.live_count)
    depths = {**{f"recall@{k}": k for k in KS}, "in_beam": beam, "in_read": config.read}
    correct = dict.fromkeys(("em", *depths), 0)
    for first in range(0, len(held_out), _BATCH):
        places = range(first, min(first + _BATCH, len(held_out)))
        texts = [held_out.questions[place].text for place in places]
        vectors_BD = encode_questions(model.questions, index.tokenizer, texts, config.device)
        rankings = index.mips.search(vectors_BD, beam)
        answers = reader.read(texts, [_make_hits(index, ranking, config.read) for ranking in rankings])
        for place, ranking, answer in zip(places, rankings, answers, strict=True):
            has_answer_K = held_out.has_answer(place, ranking.rows)
            for name, depth in depths.items():
                correct[name] += bool(has_answer_K[:depth].any())
            gold = held_out.questions[place]
            with name_slow_question([gold]):
                correct["em"] += exact_match(answer.text, gold.answers, regex=config.held_out.regex)
    model.train()
    return {name: count / len(held_out) for name, count in correct.items()}


def _make_hits(index: TrainingIndex, ranking: Ranking, read: int) -> list[Hit]:
    return list(map(Hit, index.passages(ranking.rows[:read]), ranking.scores[:read].tolist()))


def init_model(config: FineTuneConfig) -> tuple[OpenQA, DualEncoder]:
    """Return the model before fine-tuning, and the retriever that contains its question tower.

    Raises:
        ArtefactError, DamagedArtefact, Mismatch: the retriever or the encoder is missing or damaged.
    """
    retriever = DualEncoder.load(config.retriever)
    if retriever.is_shared:  # a copy, because training the question tower must not change the passages' vectors
        retriever = DualEncoder(deepcopy(retriever.questions), retriever.passages, tokenizer=retriever.tokenizer)
    reader = MlpSpanReader.from_encoder(config.encoder, hidden=config.hidden, max_span=config.max_span)
    reader.config.reader_tokens = config.max_input  # so that answering reads as much as training
    model = OpenQA(retriever.questions, reader, TextTokenizer(config.encoder)).to(config.device).train()
    set_dropout(model, config.dropout)
    if config.freeze_retriever:
        set_dropout(model.questions.requires_grad_(False), 0.0)
    return model, retriever


def check_inputs(config: FineTuneConfig, notify: Notify = ignore_line) -> None:
    """Check the corpus and the questions before training.

    Args:
        config: settings of the run.
        notify: receives a line about training questions that are left out.

    Raises:
        BadInput, BadLine, ArtefactError, DamagedArtefact: the corpus or a file of questions cannot be used.
    """
    read_training_questions(config.questions, config.held_out, config.seed, notify)
    check_corpus_size(config.corpus, config.read, "--read")


def main(config: FineTuneConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Fine-tune the question tower and the reader, or continue a run.

    The retriever is written into ``model`` in ``config.out``, and the reader into ``reader``.

    Args:
        config: settings of the run.
        progress: shows the embedding of the passages, the search for answers, and the steps.
        notify: receives lines about the training questions, a line if the run continues, and one for each evaluation.

    Returns:
        The directory of the retriever.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        RagqaError: the Ray cluster was lost.
    """
    training, sample = read_training_questions(config.questions, config.held_out, config.seed, notify)
    check_corpus_size(config.corpus, config.read, "--read")
    torch.manual_seed(config.seed)
    model, retriever = init_model(config)
    parts = (model.questions, model.reader)
    with open_run(config, model, *parts, name="fine-tuning", progress=progress, notify=notify) as run:
        best = BestWeights(run, "em")
        index = FrozenIndex.open(config.corpus, config.retriever, config, config.index, progress=progress)
        cache, regex = config.out / "answers", config.held_out.regex
        answered, held_out = locate_answers(
            index.store, index.corpus_fingerprint, training, sample, cache, regex=regex, progress=progress
        )
        notify(f"training questions with an answer in the corpus: {len(answered)} of {len(training)}")
        for step in run.remaining_steps(
            config.save_every,
            save=best.save,
            evaluate=(lambda: best.report(**evaluate(model, index, held_out, config))) if len(held_out) else None,
            eval_every=config.held_out.eval_every,
        ):
            loss = compute_loss(model, index, answered, draw_share(answered, config, step), config)
            run.take_step(loss, rate=compute_rates(step, config), clip=config.clip)
        best.restore()
    write_model(retriever, config.out / "model")
    write_model(model.reader, config.out / "reader", config.encoder / "tokenizer.json")
    return config.out / "model"


def plan_pipeline(config: FineTuneConfig, out: Path) -> AssembleConfig:
    """Return the settings that make a pipeline from a finished run.

    Args:
        config: settings of the run.
        out: directory for the pipeline and its parts.
    """
    return AssembleConfig.after_training(
        config,
        config.index,
        config.held_out,
        corpus=config.corpus,
        train=config.questions,
        out=out,
        reader=config.out / "reader",
        vectors=config.out / "vectors",
        read=config.read,
    )
