"""Training loop of joint training (``pipelines.joint``).

One retriever learns under three losses: REALM's for masked words, RAG's for answers that a generator writes, and ORQA's
for answers that a span reader marks in passages.
"""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from pipelines.common import generator_training
from pipelines.common.answer_rows import AnsweredQuestions, locate_answers
from pipelines.common.assemble import AssembleConfig
from pipelines.common.best import BestWeights
from pipelines.common.masked_text import MaskedTexts
from pipelines.common.questions import read_training_questions
from pipelines.common.run import BatchLoss, Run, open_run, write_model
from pipelines.common.training_index import RefreshedIndex, check_corpus_size
from pipelines.joint.config import JointConfig, JointSettings
from pipelines.joint.step import MARKED, MASKED, WRITTEN, WeightedLoss, train_step
from pipelines.orqa import fine_tune_loop
from pipelines.orqa.fine_tune_loop import OpenQA
from pipelines.rag import step as rag_step
from pipelines.rag.config import RagConfig
from pipelines.rag.loop import open_refreshed_index
from pipelines.realm import pretrain_loop
from pipelines.realm.pretrain_loop import Realm
from ragqa.errors import ArtefactError
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.encoder_decoder import make_from_encoder
from ragqa.models.generation.generators import make_generator
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.models.span_readers import MlpSpanReader
from ragqa.pretraining.salient import Tagger
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.health import Health
from ragqa.types import Question


@dataclass(frozen=True)
class JointData:
    """Training data of the three losses."""

    index: RefreshedIndex
    texts: MaskedTexts
    training: list[Question]
    held_out: list[Question]
    answered: AnsweredQuestions | None
    """Training questions with the passages that answer them; None without the loss of marked answers."""
    answered_held_out: AnsweredQuestions | None
    """Held-out questions with the passages that answer them; None without the loss of marked answers."""


class Joint(nn.Module):
    """Modules in training: one retriever and three readers."""

    def __init__(self, settings: JointSettings, notify: Notify = ignore_line) -> None:
        """Load the modules.

        Args:
            settings: settings of joint training and of each loss.
            notify: receives a line if the generator is limited to shorter texts than the settings.

        Raises:
            BadInput, ArtefactError, DamagedArtefact, Mismatch, MissingExtra: a directory cannot be used.
        """
        super().__init__()
        config, marked = settings.whole, settings.marked
        self.retriever = DualEncoder.load(config.retriever)
        self.masked = KnowledgeAugmentedEncoder.load(config.encoder)
        pretrain_loop.check_same_tokenizer(self.retriever, TextTokenizer(config.encoder), settings.masked)
        self.generator = load_generator(config, settings.written, notify)
        self.spans = MlpSpanReader.from_encoder(config.encoder, hidden=marked.hidden, max_span=marked.max_span)
        self.spans.config.reader_tokens = marked.max_input
        set_dropout(self.train().to(config.device), config.dropout)

    @property
    def realm(self) -> Realm:
        """Modules of the loss of masked words."""
        return Realm(self.retriever, self.masked)

    @property
    def rag(self) -> rag_step.Rag:
        """Modules of the loss of written answers."""
        return rag_step.Rag(self.retriever, self.generator)

    def make_span_model(self, tokenizer: TextTokenizer) -> OpenQA:
        """Return the modules of the loss of marked answers."""
        return OpenQA(self.retriever.questions, self.spans, tokenizer)

    def copy_encoder_to_generator(self) -> None:
        """Copy the masked language model into the generator's encoder and decoder.

        Layers that only one of the two models has, such as cross-attention, are left out.
        """
        source, seq2seq = cast(Any, self.masked.model), self.generator.seq2seq.model
        seq2seq.encoder.load_state_dict(source.base_model.state_dict(), strict=False)
        seq2seq.decoder.load_state_dict(source.state_dict(), strict=False)


def load_generator(config: JointConfig, rag_config: RagConfig, notify: Notify) -> RagGenerator:
    """Load the generator that ``config`` names, or make one from the encoder.

    Args:
        config: settings of the joint training.
        rag_config: settings of RAG's loss.
        notify: receives a line if the generator is limited to shorter texts than the settings.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, Mismatch, MissingExtra: the generator or encoder cannot be used.
    """
    kind = f"rag-{rag_config.marginal}"
    if config.generator is not None:
        generator = generator_training.load_for_training(kind, rag_config, rag_config.writing, rag_config.k, notify)
    else:
        try:
            seq2seq = make_from_encoder(config.encoder, decoder_layers=config.decoder_layers)
        except ArtefactError as error:
            raise ArtefactError(f"{error}; name another generator by --generator") from error
        untrained = make_generator(seq2seq, kind)
        generator = generator_training.prepare_for_training(
            untrained, kind, rag_config, rag_config.writing, rag_config.k, notify
        )
    assert isinstance(generator, RagGenerator)
    return generator


def make_losses(settings: JointSettings, model: Joint, data: JointData, saved: dict[str, Any]) -> list[WeightedLoss]:
    """Return the terms of the loss λ_mlm · L_REALM + λ_gen · L_RAG + λ_span · L_reader.

    Args:
        settings: settings of joint training and of each loss.
        model: modules in training.
        data: training data.
        saved: values that the checkpoint of the run has beside model and optimizer, such as the state of the monitors.
    """
    config, written, index = settings.whole, settings.written, data.index
    realm, generating, marking = model.realm, model.rag, model.make_span_model(index.tokenizer)

    def mask(step: int) -> BatchLoss:
        batch = data.texts[step].to(config.device)
        prediction = pretrain_loop.predict(realm, index.mips, index.tokenized, batch, settings.masked)
        loss, counted = pretrain_loop.marginalise(prediction, settings.masked)
        return pretrain_loop.measure(realm, prediction, loss, counted, settings.masked)

    def write(step: int) -> BatchLoss:
        batch, seed = written.batch, written.seed
        questions, answers = generator_training.draw_questions(data.training, batch=batch, seed=seed, step=step)
        return rag_step.compute_loss(generating, index, questions, answers, written)

    def mark(step: int) -> BatchLoss:
        assert data.answered is not None
        places = fine_tune_loop.draw_share(data.answered, settings.marked, step)
        return fine_tune_loop.compute_loss(marking, index, data.answered, places, settings.marked)

    def health(prefix: str) -> Health:
        return Health.from_state(saved.get(f"{prefix}health"))

    first, last = config.first_question_step, config.steps
    return [
        WeightedLoss(MASKED, config.mlm, 0, config.masked_until, model.masked, mask, health(MASKED)),
        WeightedLoss(WRITTEN, config.gen, first, last, model.generator, write, health(WRITTEN)),
        WeightedLoss(MARKED, config.span, first, last, model.spans, mark),
    ]


def main(
    config: JointConfig, *, tagger: Tagger | None = None, progress: Progress = SILENT, notify: Notify = ignore_line
) -> Path:
    """Train jointly, or continue a run; return the directory of the retriever.

    The retriever is written into ``model`` in ``config.out``, and the readers into ``masked``, ``generator`` and
    ``reader``.

    Args:
        config: settings of the run.
        tagger: tagger of salient spans; None loads the tagger that ``config.realm`` names.
        progress: shows the tokenization of the passages, the search for answers, and the steps.
        notify: receives a line about the questions, if the run continues, and for each evaluation and alarm.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        StaleIndex, RefreshFailed: as for ``RefreshedIndex.adopt_newer_index``.
    """
    settings = JointSettings.split(config)
    training, held_out = read_training_questions(config.questions, config.held_out, config.seed, notify)
    check_corpus_size(config.corpus, max(settings.masked.k, settings.written.k, settings.marked.beam), "--k")
    torch.manual_seed(config.seed)
    model = Joint(settings, notify)
    masked = pretrain_loop.limit_lengths(settings.masked, model.realm)
    settings = replace(settings, masked=masked, written=replace(settings.written, max_block=masked.max_block))
    parts = (model.retriever, model.masked, model.generator, model.spans)
    opened = open_run(config, model, *parts, name="joint", progress=progress, notify=notify)
    with opened as run, closing(open_refreshed_index(settings.written, model.retriever, run, progress)) as index:
        best = BestWeights(run, "em")
        texts = pretrain_loop.open_texts(masked, index.tokenized, tagger)
        data = JointData(
            index, texts, training, held_out, *locate_marked_answers(config, index, training, held_out, progress)
        )
        losses = make_losses(settings, model, data, run.state.extra)

        def save() -> None:
            best.save(
                index=index.version, **{loss.health_name: loss.health.to_state() for loss in losses if loss.health}
            )
            index.keep_saved_versions()

        def evaluate() -> None:
            scores = evaluate_readers(settings, model, data, run.step)
            (best if "em" in scores else run).report(**scores)
            check_scores(run, losses, scores, len(held_out))

        for step in run.remaining_steps(
            config.save_every,
            save=save,
            adopt_index=index.adopt_newer_index,
            evaluate=evaluate if held_out else None,
            eval_every=config.held_out.eval_every,
        ):
            if step == config.first_question_step and config.generator is None:
                model.copy_encoder_to_generator()
            figures = train_step(run, model.retriever, losses, config, config.rates, staleness=index.staleness)
            for loss in losses:
                run.alarm(step, loss.check_step(step, figures, config.first_question_step, config.rates.frozen))
        best.restore()
    write_models(config, model)
    return config.out / "model"


def locate_marked_answers(
    config: JointConfig, index: RefreshedIndex, training: list[Question], held_out: list[Question], progress: Progress
) -> tuple[AnsweredQuestions | None, AnsweredQuestions | None]:
    """Find the passages that answer the questions, if the run has the loss of marked answers.

    Args:
        config: settings of the run.
        index: passages to search for answers.
        training: training questions.
        held_out: held-out questions.
        progress: shows the number of passages.

    Returns:
        The training questions with an answer in the corpus, and all held-out questions; None for both without the loss.

    Raises:
        BadInput, SlowPattern: as for ``locate_answers``.
    """
    if not config.span:
        return None, None
    cache, regex = config.out / "answers", config.held_out.regex
    return locate_answers(
        index.store, index.corpus_fingerprint, training, held_out, cache, regex=regex, progress=progress
    )


def evaluate_readers(settings: JointSettings, model: Joint, data: JointData, step: int) -> dict[str, float]:
    """Evaluate the retriever, and the readers if training on questions has begun.

    Args:
        settings: settings of joint training and of each loss.
        model: modules in training.
        data: training data, with the held-out questions.
        step: number of finished steps.

    Returns:
        Figures from 0 to 1: ``recall@k`` of the retriever; and exact match of the generator as ``em``, and of the span
        reader as ``span_em``.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
    """
    config, index = settings.whole, data.index
    has_begun = step > config.first_question_step
    find_passages = generator_training.make_passage_finder(
        index, model.retriever.questions, model.generator.passages, config.device
    )
    scores = generator_training.evaluate_generator(
        model.generator,
        find_passages,
        data.held_out,
        device=config.device,
        regex=config.held_out.regex,
        with_answers=has_begun,
    )
    if has_begun and data.answered_held_out is not None:
        marking = model.make_span_model(index.tokenizer)
        scores["span_em"] = fine_tune_loop.evaluate(marking, index, data.answered_held_out, settings.marked)["em"]
    return scores


def check_scores(run: Run, losses: list[WeightedLoss], scores: dict[str, float], questions: int) -> None:
    """Raise an alarm of the run if retrieval collapses, or if the generator memorises answers.

    Args:
        run: run in progress.
        losses: all losses; the monitors of masked words and of written answers decide.
        scores: result of ``evaluate_readers``.
        questions: number of held-out questions.
    """
    monitors = {loss.prefix: loss.health for loss in losses}
    masked, written = monitors[MASKED], monitors[WRITTEN]
    assert masked and written
    alarms = masked.check_recall(scores["recall@5"], questions)
    run.alarm(run.step, [*alarms, *(written.check_answers(scores["em"]) if "em" in scores else [])])


def write_models(config: JointConfig, model: Joint) -> None:
    """Write the retriever and the readers into folders of ``config.out``.

    Raises:
        BadInput: a folder cannot be written.
    """
    write_model(model.retriever, config.out / "model")
    write_model(model.masked, config.out / "masked")
    generator_training.write_generator(model.generator, config.out / "generator", config.out / "model")
    if config.span:
        write_model(model.spans, config.out / "reader", config.encoder / "tokenizer.json")


def plan_pipeline(config: JointConfig) -> AssembleConfig:
    """Return the settings of the pipeline with the span reader and the generator."""
    return AssembleConfig.after_training(
        config,
        config.index,
        config.held_out,
        corpus=config.corpus,
        train=config.questions,
        out=config.out / "system",
        reader=config.out / "reader" if config.span else None,
        generators=(config.out / "generator",),
        read=config.tune.read,
    )
