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
from typing import Any, cast

import torch
from torch import nn

from pipelines.common import generation
from pipelines.common.assemble import AssembleConfig
from pipelines.common.assemble import main as assemble
from pipelines.common.best import Best
from pipelines.common.config import AnsweringConfig, FollowingConfig, require
from pipelines.common.masked_text import MaskedTexts, masked_texts
from pipelines.common.processes import device_of, together
from pipelines.common.questions import taught_and_asked
from pipelines.common.refreshed_training_index import LiveLibrary
from pipelines.common.run import Run, Taught, running, write_model
from pipelines.common.stages import ABOVE, filled
from pipelines.common.training_index import Asked, open_questions
from pipelines.joint.losses import Part, train_step
from pipelines.orqa import fine_tune
from pipelines.orqa.fine_tune import FineTuneConfig, OpenQA
from pipelines.rag import train as rag
from pipelines.rag.train import Rag, RagConfig
from pipelines.realm import pretrain
from pipelines.realm.pretrain import PretrainConfig, Realm, passages_of
from pipelines.realm.retrieve import NULL
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

REALM = PretrainConfig(corpus=ABOVE, encoder=ABOVE, retriever=ABOVE, out=ABOVE)
RAG = RagConfig(corpus=ABOVE, retriever=ABOVE, generator=ABOVE, questions=ABOVE, out=ABOVE, learn_passages=True)
SPAN = FineTuneConfig(corpus=ABOVE, retriever=ABOVE, encoder=ABOVE, questions=ABOVE, out=ABOVE, beam=5, batch=8)


@dataclass(frozen=True, kw_only=True)
class JointConfig(FollowingConfig, AnsweringConfig):
    """What is trained together, on what, and for how long."""

    corpus: Path
    """Index directory of the passages Z that can be retrieved."""
    encoder: Path
    """Directory of the masked language model that guesses masked words and that the reader of spans begins from."""
    retriever: Path
    """Directory of the dual encoder: warm-started, or it will hardly learn."""
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
    frozen: int | None = None
    """Steps before the retriever learns; by default half of those before questions are asked: it has to learn from
    masked words first, which are many more, and they need a reader that uses passages."""
    realm: PretrainConfig = REALM
    """Masked words: batch, k, marginal, masking, max_text, max_block …; steps, rates and the index are the run's."""
    rag: RagConfig = RAG
    """Written answers: batch, k, marginal, smoothing, max_input, max_answer."""
    tune: FineTuneConfig = SPAN
    """Marked answers: batch, beam, read, max_input, max_span, hidden."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        layers = self.decoder_layers is None or self.decoder_layers > 0
        require(
            self,
            mlm=(self.mlm >= 0, "0 or more"),
            gen=(self.gen > 0, "above 0"),
            span=(self.span >= 0, "0 or more"),
            decoder_layers=(layers, "above 0"),
            gen_from=(
                0 <= self.gen_from < 1 and (self.mlm > 0 or self.gen_from == 0),
                "0 or more and below 1; 0 without masked words (mlm = 0), or nothing is learned before",
            ),
            mlm_until=(
                not self.mlm or self.gen_from <= self.mlm_until <= 1,
                f"from gen_from = {self.gen_from} to 1",
            ),
        )

    @property
    def masked_share(self) -> float:
        """Share of the steps in which words are masked."""
        return self.mlm_until if self.mlm else 0.0

    @property
    def asked_from(self) -> int:
        """First step in which questions are asked."""
        return round(self.gen_from * self.steps)

    @property
    def waits(self) -> int:
        """Steps before the retriever learns."""
        return (self.asked_from or self.steps) // 2 if self.frozen is None else self.frozen


def parts_of(config: JointConfig) -> tuple[PretrainConfig, RagConfig, FineTuneConfig]:
    """The settings of the three losses."""
    common = {
        name: getattr(config, name)
        for name in ("corpus", "retriever", "out", "steps", "lr", "dropout", "device", "seed")
    } | {"retriever_lr": config.retriever_peak, "frozen": config.waits}
    asked = {name: getattr(config, name) for name in ("questions", "dev", "sample", "regex", "kind")}
    indexed: dict[str, Any] = {"refresh_every": config.refresh_every, "max_staleness": config.max_staleness}
    indexed |= {"kind": config.kind, "workers": config.workers, "gpus": config.gpus}
    masked = filled(config.realm, encoder=config.encoder, texts=config.texts, **indexed, **common)
    written = filled(config.rag, generator=config.generator or ABOVE, **{**indexed, **asked}, **common)
    return masked, written, filled(config.tune, encoder=config.encoder, **asked, **common)


def begun_generator(config: JointConfig, written: RagConfig, notify: Callable[[str], None]) -> RagGenerator:
    """The generator as it begins."""
    kind = f"rag-{written.marginal}"
    if config.generator is not None:
        generator = generation.opened(kind, written, written.k, notify)
    else:
        try:
            seq2seq = make_from_encoder(config.encoder, decoder_layers=config.decoder_layers)
        except ArtefactError as error:
            raise ArtefactError(f"{error}; name another generator by --generator") from error
        generator = generation.ready(make_generator(seq2seq, kind), kind, written, written.k, notify)
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
        pretrain.same_pieces(self.retriever, TextTokenizer(config.encoder), masked)
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
    shelf: LiveLibrary,
    masked: tuple[PretrainConfig, MaskedTexts],
    written: tuple[RagConfig, list[Question]],
    marked: tuple[FineTuneConfig, OpenQA, Asked | None],
    kept: dict[str, Any],
) -> list[Part]:
    """The three losses, each with its data, and with its health as it was ``kept``."""
    realm, answers = Realm(model.retriever, model.masked), Rag(model.retriever, model.generator)
    (first, texts), (second, teach), (third, spans, asked) = masked, written, marked
    themselves = first.texts is None or passages_of(first.texts) == passages_of(first.corpus)

    def guessed(step: int) -> Taught:
        batch = texts[step].to(config.device)
        own = [text.row if themselves else NULL for text in batch.texts]
        return pretrain.learn(realm, shelf.index, shelf.blocks, batch, own, first)

    def said(step: int) -> Taught:
        return rag.learn(answers, shelf, *generation.taught(teach, second, step), second)

    def pointed(step: int) -> Taught:
        assert asked is not None
        return fine_tune.learn(spans, shelf, asked, third, step)

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
    finds: Tagger | None = None,
    progress: Progress = SILENT,
    notify: Callable[[str], None] = lambda line: None,
) -> Path:
    """Train, or go on training; the directory of the retriever, beside ``masked``, ``generator`` and ``reader``.

    Args:
        config: see there.
        finds: finds salient spans, in place of the tagger that ``config.realm`` names.
        progress: told of the steps.
        notify: told of evaluations, new indexes and alarms, a line each.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
        StaleIndex, RefreshFailed: no index of the present weights could be made.
    """
    masked, written, marked = parts_of(config)
    teach, ask = taught_and_asked(config, notify)
    rag.check_size(config.corpus, max(masked.k, written.k, marked.beam))
    torch.manual_seed(config.seed)
    model = Joint(config, masked, written, marked, notify)
    masked = pretrain.fitted(masked, Realm(model.retriever, model.masked))
    written = replace(written, max_block=masked.max_block)
    readers = (model.masked, model.generator, model.spans)
    optimizer = torch.optim.AdamW(parameter_groups(model.retriever, *readers, decay=config.weight_decay), lr=config.lr)
    with ExitStack() as held:
        run = held.enter_context(running(config, model, optimizer, name="joint", progress=progress, notify=notify))
        kept, best = run.state.extra, Best(run, "em")
        shelf = held.enter_context(closing(rag.live_library(written, model.retriever, run, progress)))
        texts = masked_texts(masked, shelf.blocks, finds, of=masked.texts)
        spans = OpenQA(model.retriever.questions, model.spans, shelf.tokenizer)
        asked, dev = marks(config, shelf, teach, ask, progress)
        losses = parts(config, model, shelf, (masked, texts), (written, teach), (marked, spans, asked), kept)
        while True:
            staleness = shelf.follow(run)
            if run.due(config.save_every):
                healths = {part.name: part.health.to_state() for part in losses if part.health}
                best.save(index=shelf.version, **healths)
                shelf.keep(run.kept("index"))
            if ask and run.due(config.eval_every) and parallel.is_first_process():
                found = evaluate(config, model, shelf, ask, (marked, spans, dev), run.step)
                (best if "em" in found else run).told(**found)
                watch(run, losses, found, len(ask))
            if run.done:
                break
            if run.step == config.asked_from and config.generator is None:
                model.adopt()
            step = run.step
            run.begin()
            rows = train_step(run, model.retriever, losses, config, staleness=staleness)
            for part in losses:
                run.alarm(step, part.alarms(step, rows, config.asked_from, config.waits))
        best.restore()
    if parallel.is_first_process():
        save(config, model)
    return config.out / "model"


def marks(
    config: JointConfig, shelf: LiveLibrary, teach: list[Question], ask: list[Question], progress: Progress
) -> tuple[Asked | None, Asked | None]:
    """The questions with where their answers stand, if any are to be marked."""
    if not config.span:
        return None, None
    with parallel.take_turns():
        return open_questions(shelf, teach, ask, config.out / "answers", regex=config.regex, progress=progress)


def evaluate(
    config: JointConfig,
    model: Joint,
    shelf: LiveLibrary,
    ask: list[Question],
    marked: tuple[FineTuneConfig, OpenQA, Asked | None],
    step: int,
) -> dict[str, float]:
    """Held-out questions: what is found, and once questions are taught, how many are answered: ``em``, ``span_em``."""
    begun = step > config.asked_from
    search = generation.searching(shelf, model.retriever.questions, model.generator.passages, config.device)
    found = generation.evaluate(model.generator, search, ask, device=config.device, regex=config.regex, write=begun)
    third, spans, dev = marked
    if begun and dev is not None:
        found["span_em"] = fine_tune.evaluate(spans, shelf, dev, third)["em"]
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
        kind=config.kind,
        read=marked.read,
        workers=config.workers,
        dev=config.dev,
        regex=config.regex,
        taught=config.questions,
        judged_by=config.sample,
        device=device_of(config),
        seed=config.seed,
    )


def whole(
    config: JointConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Train, in as many processes as are wanted, and put together; the pipeline directory. Raises as these do."""
    together(main, config, progress=progress, notify=notify)
    return assemble(after(config), progress=progress, notify=notify)


if __name__ == "__main__":
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.joint"):
        print(whole(parse_config(JointConfig, __doc__), progress=Bars(), notify=print))
