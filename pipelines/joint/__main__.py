"""One retriever under masked words and questions together: REALM's loss, RAG's, and that of a reader of spans.

    python -m pipelines.joint --corpus wiki.index --encoder runs/encoder/model --retriever runs/cloze/model \\
        --questions train.jsonl --dev dev.jsonl --out runs/joint
    ragqa ask --pipeline runs/joint/system/pipeline --reader rag-token "…"

L = λ_mlm · L_REALM + λ_gen · L_RAG + λ_span · L_reader over one dual encoder, one index and one refresh of it. A step
takes a batch for each loss that has weight by then, and their gradients meet in one step of the optimizer.

Masked words come first: a generator with few questions learns their answers by heart before passages are of use, and
then nothing teaches the retriever any more. So questions wait until a share of the steps is over (``gen_from``, by
default half). An alarm is raised where passages are not used by then, and where held-out questions are not answered
though those of training are.

Legend: B texts or questions, K passages.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from torch import nn

from pipelines.common import generation
from pipelines.common.answer_rows import AnsweredQuestions, locate_answers
from pipelines.common.assemble import AssembleConfig
from pipelines.common.assemble import main as assemble
from pipelines.common.best import BestWeights
from pipelines.common.config import (
    FROM_RECIPE,
    HeldOutConfig,
    RefreshConfig,
    Rules,
    TrainingConfig,
    TrainingIndexConfig,
    above_0,
    at_least_0,
    schedule_rules,
)
from pipelines.common.learning_rates import LearningRates
from pipelines.common.processes import device_of, train_in_processes
from pipelines.common.questions import read_training_questions
from pipelines.common.run import BatchLoss, Run, open_run, write_model
from pipelines.common.training_index.base import check_corpus_size
from pipelines.common.training_index.refreshed import RefreshedIndex
from pipelines.joint.losses import Part, train_step
from pipelines.orqa import fine_tune
from pipelines.orqa.config import TUNE, FineTuneConfig
from pipelines.orqa.fine_tune import OpenQA
from pipelines.rag import train as rag
from pipelines.rag.train import Rag, RagConfig
from pipelines.realm import pretrain
from pipelines.realm.config import PRETRAIN as REALM
from pipelines.realm.config import PretrainConfig
from pipelines.realm.pretrain import Realm, TextSource
from ragqa.cli.groups import FLAT
from ragqa.errors import ArtefactError
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.encoder_decoder import make_from_encoder
from ragqa.models.generation.generators import make_generator
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.mlp_reader import MlpSpanReader
from ragqa.models.pretrained import set_dropout
from ragqa.pretraining.salient import Tagger
from ragqa.progress import SILENT, Progress
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.health import Health
from ragqa.training.step import parameter_groups
from ragqa.types import Question

RAG = RagConfig(
    corpus=FROM_RECIPE,
    retriever=FROM_RECIPE,
    writing=generation.WritingConfig(generator=FROM_RECIPE),
    questions=FROM_RECIPE,
    out=FROM_RECIPE,
    learn_passages=True,
)
SPAN = replace(TUNE, beam=5, batch=8)


@dataclass(frozen=True, kw_only=True)
class JointConfig(TrainingConfig):
    """What is trained together, on what, and for how long."""

    corpus: Path
    """Index directory of the passages Z that can be retrieved."""
    encoder: Path
    """Directory of the masked language model that guesses masked words and that the reader of spans begins from."""
    retriever: Path
    """Directory of the dual encoder: warm-started, or it will hardly learn."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    generator: Path | None = None
    """Directory of a generator, or of a plain sequence-to-sequence model with its tokenizer; by default one is made of
    the masked language model of this run as it is when questions begin: it has learned to read beside passages."""
    decoder_layers: int | None = None
    """Of the generator that is made so; by default as many as the encoder has."""
    texts: Path | None = None
    """Index directory of the texts X that are masked; by default the passages themselves."""
    mlm: float = 1.0
    """λ_mlm, the weight of masked words; 0 leaves them out."""
    gen: float = 1.0
    """λ_gen, of written answers."""
    span: float = 1.0
    """λ_span, of marked answers."""
    gen_from: float = 0.5
    """Share of the steps before questions are asked, to be written or marked."""
    mlm_until: float = 1.0
    """Share of the steps after which no words are masked any more: with that of ``gen_from``, REALM and then RAG."""
    steps: int = 200_000
    lr: float = 3e-5
    """Of all that reads; each warms up when its loss begins."""
    retriever_lr: float | None = None
    """Peak learning rate of the towers; by default a fifth of ``lr``."""
    frozen: int | None = None
    """Steps before the retriever learns; by default half of those before questions are asked: it has to learn from
    masked words first, which are many more, and they need a reader that uses passages."""
    realm: PretrainConfig = REALM
    """Masked words: batch, k, marginal, masking, max_text, max_block …; steps, rates and the index are the run's."""
    rag: RagConfig = RAG
    """Written answers: batch, k, marginal, smoothing, max_input, max_answer."""
    tune: FineTuneConfig = SPAN
    """Marked answers: batch, beam, read, max_input, max_span, hidden."""

    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index that proposes passages."""
    refresh: Annotated[RefreshConfig, FLAT] = RefreshConfig()
    """How the index follows the retriever."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions."""

    def rules(self) -> Rules:
        """Return the rules of all settings."""
        return {
            **super().rules(),
            **schedule_rules(self.steps, self.lr, self.warmup),
            "retriever_lr": at_least_0(self.retriever_lr),
            "frozen": at_least_0(self.frozen),
            "mlm": at_least_0(self.mlm),
            "gen": above_0(self.gen),
            "span": at_least_0(self.span),
            "decoder_layers": above_0(self.decoder_layers),
            "gen_from": (
                0 <= self.gen_from < 1 and (self.mlm > 0 or self.gen_from == 0),
                "0 or more and below 1; 0 without masked words (mlm = 0), or nothing is learned before",
            ),
            "mlm_until": (
                not self.mlm or self.gen_from <= self.mlm_until <= 1,
                f"from gen_from = {self.gen_from} to 1",
            ),
        }

    @property
    def masked_share(self) -> float:
        """Share of the steps in which words are masked."""
        return self.mlm_until if self.mlm else 0.0

    @property
    def asked_from(self) -> int:
        """First step in which questions are asked."""
        return round(self.gen_from * self.steps)

    @property
    def rates(self) -> LearningRates:
        """Learning rates of the retriever and of all that reads."""
        return LearningRates(
            steps=self.steps,
            reader=self.lr,
            retriever=self.lr / 5 if self.retriever_lr is None else self.retriever_lr,
            frozen=(self.asked_from or self.steps) // 2 if self.frozen is None else self.frozen,
            warmup=self.warmup,
        )


def parts_of(config: JointConfig) -> tuple[PretrainConfig, RagConfig, FineTuneConfig]:
    """The settings of the three losses."""
    common: dict[str, Any] = {
        name: getattr(config, name)
        for name in ("corpus", "retriever", "out", "steps", "lr", "dropout", "device", "seed", "index")
    } | {"retriever_lr": config.rates.retriever}
    asked: dict[str, Any] = {"questions": config.questions, "held_out": config.held_out}
    followed: dict[str, Any] = {"frozen": config.rates.frozen, "refresh": config.refresh, "gpus": config.gpus}
    masked = replace(config.realm, encoder=config.encoder, texts=config.texts, **followed, **common)
    writing = replace(config.rag.writing, generator=config.generator or FROM_RECIPE)
    written = replace(config.rag, writing=writing, **asked, **followed, **common)
    return masked, written, replace(config.tune, encoder=config.encoder, **asked, **common)


def begun_generator(config: JointConfig, written: RagConfig, notify: Callable[[str], None]) -> RagGenerator:
    """The generator as it begins."""
    kind = f"rag-{written.marginal}"
    if config.generator is not None:
        generator = generation.load_for_training(kind, written, written.writing, written.k, notify)
    else:
        try:
            seq2seq = make_from_encoder(config.encoder, decoder_layers=config.decoder_layers)
        except ArtefactError as error:
            raise ArtefactError(f"{error}; name another generator by --generator") from error
        generator = generation.prepare(make_generator(seq2seq, kind), kind, written, written.writing, written.k, notify)
    assert isinstance(generator, RagGenerator)
    return generator


class Joint(nn.Module):
    """All that is trained: one retriever, and what reads beside it."""

    def __init__(
        self,
        config: JointConfig,
        masked: PretrainConfig,
        written: RagConfig,
        marked: FineTuneConfig,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__()
        self.retriever = DualEncoder.load(config.retriever)
        self.masked = KnowledgeAugmentedEncoder.from_encoder(config.encoder)
        pretrain.check_same_tokenizer(self.retriever, TextTokenizer(config.encoder), masked)
        self.generator = begun_generator(config, written, notify)
        self.spans = MlpSpanReader.from_encoder(config.encoder, hidden=marked.hidden, max_span=marked.max_span)
        self.spans.config.reader_tokens = marked.max_input
        set_dropout(self.train().to(config.device), config.dropout)

    def adopt(self) -> None:
        """Give the generator what the masked language model has learned; attention to what it reads is its own."""
        source, seq2seq = cast(Any, self.masked.model), self.generator.seq2seq.model
        seq2seq.encoder.load_state_dict(source.base_model.state_dict(), strict=False)
        seq2seq.decoder.load_state_dict(source.state_dict(), strict=False)


def parts(
    config: JointConfig,
    model: Joint,
    index: RefreshedIndex,
    masked: tuple[PretrainConfig, TextSource],
    written: tuple[RagConfig, list[Question]],
    marked: tuple[FineTuneConfig, OpenQA, AnsweredQuestions | None],
    kept: dict[str, Any],
) -> list[Part]:
    """The three losses, each with its data, and with its health as it was ``kept``."""
    realm, answers = Realm(model.retriever, model.masked), Rag(model.retriever, model.generator)
    (first, texts), (second, teach), (third, spans, asked) = masked, written, marked

    def guessed(step: int) -> BatchLoss:
        batch, own_rows = texts.batch(step, config.device)
        return pretrain.compute_loss(realm, index.mips, index.tokenized, batch, own_rows, first)

    def said(step: int) -> BatchLoss:
        return rag.learn(
            answers,
            index,
            *generation.draw_questions(teach, batch=second.batch, seed=second.seed, step=step),
            second,
        )

    def pointed(step: int) -> BatchLoss:
        assert asked is not None
        return fine_tune.compute_loss(spans, index, asked, third, step)

    until = round(config.masked_share * config.steps)
    first_health, second_health = (Health.from_state(kept.get(f"{prefix}health")) for prefix in ("", "gen_"))
    return [
        Part("", config.mlm, 0, until, model.masked, guessed, first_health),
        Part("gen_", config.gen, config.asked_from, config.steps, model.generator, said, second_health),
        Part("span_", config.span, config.asked_from, config.steps, model.spans, pointed),
    ]


def main(
    config: JointConfig,
    *,
    tagger: Tagger | None = None,
    progress: Progress = SILENT,
    notify: Callable[[str], None] = lambda line: None,
) -> Path:
    """Train, or go on training; the directory of the retriever, beside ``masked``, ``generator`` and ``reader``.

    Args:
        config: see there.
        tagger: finds salient spans, in place of the tagger that ``config.realm`` names.
        progress: told of the steps.
        notify: told of evaluations, new indexes and alarms, a line each.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
        StaleIndex, RefreshFailed: no index of the present weights could be made.
    """
    masked, written, marked = parts_of(config)
    teach, ask = read_training_questions(config.questions, config.held_out, config.seed, notify)
    check_corpus_size(config.corpus, max(masked.k, written.k, marked.beam), "--k")
    torch.manual_seed(config.seed)
    model = Joint(config, masked, written, marked, notify)
    masked = pretrain.limit_lengths(masked, Realm(model.retriever, model.masked))
    written = replace(written, max_block=masked.max_block)
    readers = (model.masked, model.generator, model.spans)
    optimizer = torch.optim.AdamW(parameter_groups(model.retriever, *readers, decay=config.weight_decay), lr=config.lr)
    with ExitStack() as held:
        run = held.enter_context(
            open_run(config, model, optimizer, steps=config.steps, name="joint", progress=progress, notify=notify)
        )
        kept, best = run.state.extra, BestWeights(run, "em")
        index = held.enter_context(closing(rag.open_refreshed_index(written, model.retriever, run, progress)))
        texts = TextSource(masked, index.tokenized, tagger)
        spans = OpenQA(model.retriever.questions, model.spans, index.tokenizer)
        asked, dev = marks(config, index, teach, ask, progress)
        losses = parts(config, model, index, (masked, texts), (written, teach), (marked, spans, asked), kept)
        while True:
            staleness = index.follow()
            if run.is_due(config.save_every):
                healths = {part.name: part.health.to_state() for part in losses if part.health}
                best.save(index=index.version, **healths)
                index.keep_saved_versions()
            if ask and run.is_due(config.held_out.eval_every) and parallel.is_first_process():
                found = evaluate(config, model, index, ask, (marked, spans, dev), run.step)
                (best if "em" in found else run).report(**found)
                watch(run, losses, found, len(ask))
            if run.is_done:
                break
            if run.step == config.asked_from and config.generator is None:
                model.adopt()
            step = run.step
            run.begin_step()
            rows = train_step(run, model.retriever, losses, config, config.rates, staleness=staleness)
            for part in losses:
                run.alarm(step, part.alarms(step, rows, config.asked_from, config.rates.frozen))
        best.restore()
    if parallel.is_first_process():
        save(config, model)
    return config.out / "model"


def marks(
    config: JointConfig, index: RefreshedIndex, teach: list[Question], ask: list[Question], progress: Progress
) -> tuple[AnsweredQuestions | None, AnsweredQuestions | None]:
    """The questions with where their answers stand, if any are to be marked."""
    if not config.span:
        return None, None
    cache, regex = config.out / "answers", config.held_out.regex
    return locate_answers(index.store, index.corpus, teach, ask, cache, regex=regex, progress=progress)


def evaluate(
    config: JointConfig,
    model: Joint,
    index: RefreshedIndex,
    ask: list[Question],
    marked: tuple[FineTuneConfig, OpenQA, AnsweredQuestions | None],
    step: int,
) -> dict[str, float]:
    """Held-out questions: what is found, and once questions are taught, how many are answered: ``em``, ``span_em``."""
    begun = step > config.asked_from
    search = generation.searching(index, model.retriever.questions, model.generator.passages, config.device)
    found = generation.evaluate(
        model.generator, search, ask, device=config.device, regex=config.held_out.regex, write=begun
    )
    third, spans, dev = marked
    if begun and dev is not None:
        found["span_em"] = fine_tune.evaluate(spans, index, dev, third)["em"]
    return found


def watch(run: Run, losses: list[Part], found: dict[str, float], questions: int) -> None:
    """Alarms of an evaluation on so many questions: what is found, and what is memorised."""
    first, second = losses[0].health, losses[1].health
    assert first and second
    lines = first.check_recall(found["recall@5"], questions)
    run.alarm(run.step, [*lines, *(second.check_answers(found["em"]) if "em" in found else [])])


def save(config: JointConfig, model: Joint) -> None:
    """Write the four models."""
    write_model(model.retriever, config.out / "model")
    write_model(model.masked, config.out / "masked")
    generation.save(model.generator, config.out / "generator", config.out / "model")
    if config.span:
        write_model(model.spans, config.out / "reader", config.encoder / "tokenizer.json")


def after(config: JointConfig) -> AssembleConfig:
    """What a pipeline is put together from: it marks answers, and writes them."""
    *_, marked = parts_of(config)
    return AssembleConfig(
        corpus=config.corpus,
        retriever=config.out / "model",
        reader=config.out / "reader" if config.span else None,
        generators=(config.out / "generator",),
        out=config.out / "system",
        kind=config.index.kind,
        read=marked.read,
        workers=config.index.workers,
        dev=config.held_out.dev,
        regex=config.held_out.regex,
        taught=config.questions,
        judged_by=config.held_out.sample or 0,
        device=device_of(config),
        seed=config.seed,
    )


def whole(
    config: JointConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Train, in as many processes as are wanted, and put together; the pipeline directory. Raises as these do."""
    train_in_processes(main, config, progress=progress, notify=notify)
    return assemble(after(config), progress=progress, notify=notify)


if __name__ == "__main__":
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.joint"):
        print(whole(parse_config(JointConfig, __doc__), progress=Bars(), notify=print))
