"""Make a generator of a span reader: it begins where the reader would begin to answer, and copies from there.

    python -m pipelines.rag.warm_generator --reader runs/reader --questions train.jsonl --dev dev.jsonl --out \\
        runs/generator
    python -m pipelines.rag.train --generator runs/generator/generator ...

A decoder that has never looked at what its encoder read takes very many questions until it finds an answer in a
passage; a span reader's encoder knows where answers stand. So the decoder's attention is first fitted to
it (``ragqa.models.generation.copying``), without a training step. Then questions are answered beside their
gold passages, at first with the encoder as it is, and the decoder's
attention is taught, beside the answer, where the answer stands.

Legend: B questions, N = B pairs, L tokens of a pair, T tokens of an answer, H heads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pipelines.common import generation
from pipelines.common.best import BestWeights
from pipelines.common.config import HeldOutConfig, Rules, TrainingConfig, above_0, at_least_0, schedule_rules
from pipelines.common.data_sets import TrainingSet
from pipelines.common.mining import QuestionFile
from pipelines.common.negatives import list_gold_passages
from pipelines.common.passage_sampler import PassageMix, PassageSampler
from pipelines.common.questions import draw_step, read_training_questions
from pipelines.common.run import Run, open_run
from ragqa.cli.groups import FLAT
from ragqa.corpus.blocks import make_word_splitter
from ragqa.errors import BadInput
from ragqa.metrics import has_answer
from ragqa.models.generation import attention
from ragqa.models.generation.copying import Example, begin_answering
from ragqa.models.generation.encoder_decoder import make_from_reader
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.generation.template import Template
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.progress import SILENT, Progress
from ragqa.reading.windows import MIN_WINDOW
from ragqa.training import parallel
from ragqa.training.precision import autocast
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import optimise, parameter_groups
from ragqa.types import Passage, Question

_LEAST = 1e-6
"""Share of its attention that a decoder is taken to give to an answer's place at least."""


@dataclass(frozen=True, kw_only=True)
class WarmGeneratorConfig(TrainingConfig):
    """What is made of what, and trained for how long. ``questions`` without a gold passage are left out."""

    reader: Path
    """Directory of a span reader with its tokenizer.json, as pipelines.span_reader.train writes it."""
    questions: Path
    """File of questions with answers and gold passages."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions."""
    decoder_layers: int = 1
    template: str | None = None
    """What is read, with {question}, {title} and {passage}; by default the question first and a separator behind it, as
    the encoder is used to."""
    fitted: int = 1000
    """Questions to which the decoder's attention is fitted."""
    steps: int = 2000
    batch: int = 16
    """Questions a step."""
    lr: float = 1e-3
    """Learning rate of the decoder at its peak."""
    encoder_lr: float | None = None
    """That of the encoder; by default a tenth."""
    frozen: int | None = None
    """Steps before the encoder learns; by default a quarter of them."""
    warmup: int | None = None
    """Steps; by default 100, or a tenth of all if that is less. The encoder's begins when it learns."""
    guide: float = 1.0
    """Weight of the loss by which attention is taught where an answer stands."""
    max_input: int = 192
    """Tokens of question and passage that are read together."""
    max_answer: int = 20
    """Tokens of an answer, its end included."""

    @property
    def waits(self) -> int:
        """Steps before the encoder learns."""
        return self.steps // 4 if self.frozen is None else self.frozen

    def rules(self) -> Rules:
        """Return the rules of all settings."""
        encoder = self.encoder_lr
        closed = self.template is not None and Template(self.template).closed
        return {
            **super().rules(),
            **schedule_rules(self.steps, self.lr, self.warmup),
            "batch": above_0(self.batch),
            "frozen": at_least_0(self.frozen),
            "max_input": (self.max_input >= MIN_WINDOW, f"{MIN_WINDOW} or more"),
            "max_answer": (self.max_answer > 1, "more than 1"),
            "decoder_layers": above_0(self.decoder_layers),
            "encoder_lr": (encoder is None or 0 <= encoder < np.inf, "0 or more"),
            "fitted": above_0(self.fitted),
            "guide": (0 <= self.guide < np.inf, "0 or more"),
            "template": (not closed, "with {passage}"),
        }


class Golds:
    """Questions beside blocks of their gold passages, such as hold an answer if any does."""

    def __init__(self, questions: Sequence[Question], file: Path) -> None:
        """Raises BadInput where no question of ``file`` has a gold passage."""
        self.questions = [each for each in questions if each.answers and list_gold_passages(each)]
        if not self.questions:
            raise BadInput(f"{file}: no question names the passage where its answer stands")
        mix = PassageMix(positives=1, distant=0, negatives=0, hard=0, whole=0, untitled=0)
        training_set = TrainingSet(QuestionFile(file), self.questions)
        self._sampler = PassageSampler([training_set], [], None, make_word_splitter(), mix)

    def __len__(self) -> int:
        return len(self.questions)

    def drawn(self, number: int, rng: np.random.Generator) -> tuple[str, Passage, str]:
        """A question, a passage, and an answer, if possible one that stands there."""
        question = self.questions[number]
        ((title, text), *_), _ = self._sampler.sample(number, rng)
        standing = [answer for answer in question.answers if has_answer(text, [answer])] or question.answers
        return question.text, Passage(0, "", title, text, "", 0, len(text)), str(rng.choice(standing))


@dataclass(frozen=True)
class Batch:
    """B questions, each with a passage and an answer."""

    texts: list[str]
    passages: list[Passage]
    answers: list[str]

    @classmethod
    def of(cls, golds: Golds, numbers: Sequence[int], rng: np.random.Generator) -> "Batch":
        """The batch of these questions."""
        texts, passages, answers = zip(*(golds.drawn(number, rng) for number in numbers), strict=True)
        return cls(list(texts), list(passages), list(answers))

    def shared(self) -> "Batch":
        """This process's part: what is drawn is the same in all."""
        return Batch(
            parallel.take_share(self.texts), parallel.take_share(self.passages), parallel.take_share(self.answers)
        )

    def examples(self, generator: RagGenerator, limit: int) -> list[Example]:
        """What is read, what is said, and where of the one the other stands."""
        tokens = generator.seq2seq.tokens
        rows = generator.inputs(self.texts, [[each] for each in self.passages])
        before = tokens.ids(
            [generator.template.text_before(*each) for each in zip(self.texts, self.passages, strict=True)]
        )
        made = []
        for row, mask, opening, answer in zip(rows.ids_NL, rows.mask_NL, before, self.answers, strict=True):
            ids = row[mask.bool()].tolist()
            first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, opening, strict=False)))
            made.append(example(ids, tokens.labels([answer, f" {answer}"], limit), first))
        return made


def example(ids: list[int], spelled_2T: Tensor, first: int) -> Example:
    """What is said is spelled as it stands in what is read: some tokenizers have a space in the piece behind it."""
    alone, behind = (said[said != IGNORED].tolist() for said in spelled_2T)
    return next(
        (Example(ids, said, found) for said in (alone, behind) if (found := places(ids, said[:-1], first))),
        Example(ids, alone, []),
    )


def places(ids: Sequence[int], answer: Sequence[int], first: int) -> list[int]:
    """Where the pieces of an answer stand in what is read, from the piece ``first`` on."""
    run = list(answer)
    ends = len(ids) - len(run)  # the end of what is read comes behind
    return [at for at in range(first, ends) if list(ids[at : at + len(run)]) == run] if run else []


def stands(example: Example) -> int:
    """Tokens that are taught where to look."""
    return len(example.answer) if example.places else 0


def misled(weights_BHTL: Tensor, examples: Sequence[Example]) -> Tensor:
    """-log of the attention that the heads together give to the right place, a mean over tokens that stand somewhere.

    The right place of an answer's token i is the place i behind where the answer begins; wherever that is, it is right.
    """
    mean_BTL, found = weights_BHTL.float().mean(1), []
    for row, example in zip(mean_BTL, examples, strict=True):
        for at in range(stands(example)):
            found.append(row[at, [place + at for place in example.places]].sum())
    return -torch.stack(found).clamp_min(_LEAST).log().mean() if found else weights_BHTL.sum() * 0


def train_step(run: Run, generator: RagGenerator, golds: Golds, config: WarmGeneratorConfig) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    seq2seq = generator.seq2seq
    seq2seq.model.get_encoder().requires_grad_(run.step >= config.waits)
    fix_embeddings(generator)
    batch = Batch.of(
        golds,
        draw_step(len(golds), batch=config.batch, seed=config.seed, step=run.step),
        np.random.default_rng([config.seed, run.step]),
    )
    examples = batch.shared().examples(generator, config.max_answer)
    inputs = seq2seq.tokens.pad_rows([example.ids for example in examples]).to(config.device)
    labels_BT = labels(examples).to(config.device)
    said_BT = labels_BT != IGNORED
    with autocast(config.device), attention.record_weights() as seen:
        logits_MV = seq2seq.logits(seq2seq.encode(inputs), seq2seq.decoder_inputs(labels_BT), said_BT)
    nll = cross_entropy(logits_MV, labels_BT[said_BT])
    guided = misled(seen[-1], examples) if config.guide else torch.zeros_like(nll)
    weighing, standing = (
        parallel.compute_loss_weight(said_BT),
        parallel.compute_loss_weight(torch.tensor([*map(stands, examples)])),
    )
    loss = nll * weighing + config.guide * guided * standing
    norm = optimise(loss, run.state.optimizer, rate=rates(run.step, config), clip=config.clip, step=run.step)
    row = parallel.average_over_processes({"nll": nll.item()}, weighing) | parallel.average_over_processes(
        {"guided": guided.item()}, standing
    )
    reads, writes = generation.operations(seq2seq)
    passes = 3 if run.step >= config.waits else 1  # nothing goes back through an encoder that waits
    flops = reads * passes / 3 * inputs.ids_NL.numel() + writes * labels_BT.numel()
    tokens = parallel.sum_over_processes(inputs.ids_NL.numel() + labels_BT.numel())
    run.finish_step(**row, grad_norm=norm, tokens=tokens, flops=flops)


def labels(examples: Sequence[Example]) -> Tensor:
    """``[B, T]``, ``IGNORED`` behind an answer's end."""
    longest = max(len(example.answer) for example in examples)
    return torch.tensor([[*each.answer, *[IGNORED] * (longest - len(each.answer))] for each in examples])


def rates(step: int, config: WarmGeneratorConfig) -> list[float]:
    """Of encoder and decoder, each with its two groups; the encoder's warms up when it begins to learn."""
    peaks = (config.lr / 10 if config.encoder_lr is None else config.encoder_lr, config.lr)
    found = []
    for peak, first in zip(peaks, (min(config.waits, config.steps - 1), 0), strict=True):
        total = config.steps - first
        warmup = warmup_steps(config.warmup, 100, total)
        rate = warmup_linear(step - first, peak=peak, warmup=warmup, total=total) if step >= first else 0.0
        found += [rate, rate]
    return found


def fix_embeddings(generator: RagGenerator) -> None:
    """Have word embeddings stay as they are: what is copied is said by them."""
    model = generator.seq2seq.model
    for half in (model.get_encoder(), model.get_decoder()):
        half.get_input_embeddings().requires_grad_(False)


def begin(config: WarmGeneratorConfig) -> RagGenerator:
    """The generator before anything is fitted."""
    seq2seq = make_from_reader(config.reader, decoder_layers=config.decoder_layers)
    template = config.template or f"{{question}} {seq2seq.tokens.tokenizer.sep_token} {{title}} / {{passage}}"
    generator = RagGenerator(
        seq2seq,
        template=Template(template),
        passages=1,
        max_input=config.max_input,
        max_answer=config.max_answer,
    )
    set_dropout(generator.train().to(config.device), config.dropout)
    return generator


@torch.no_grad()
def examine(generator: RagGenerator, held: Golds, config: WarmGeneratorConfig) -> dict[str, float]:
    """``em`` of greedy answers to held-out questions beside their gold passages."""
    right, seed = 0, np.random.default_rng(config.seed)
    for at in range(0, len(held), generation.ASKED):
        numbers = range(at, min(len(held), at + generation.ASKED))
        batch = Batch.of(held, numbers, seed)
        alone_B1 = torch.zeros(len(numbers), 1, device=config.device)
        said = generation.written(generator, batch.texts, [[each] for each in batch.passages], alone_B1)
        right += generation.right(said, [held.questions[number] for number in numbers], regex=config.held_out.regex)
    return {"em": right / len(held)}


def main(
    config: WarmGeneratorConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Fit and train, or go on training; the directory of the generator.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
    """
    torch.manual_seed(config.seed)
    teach, ask = read_training_questions(config.questions, config.held_out, config.seed, notify)
    golds = Golds(teach, config.questions)
    held = Golds(ask, config.held_out.dev) if ask and config.held_out.dev else None
    generator = begin(config)
    encoder, decoder = generator.seq2seq.model.get_encoder(), generator.seq2seq.model.get_decoder()
    optimizer = torch.optim.AdamW(parameter_groups(encoder, decoder, decay=config.weight_decay), lr=config.lr)
    with open_run(
        config, generator, optimizer, steps=config.steps, name="generator", progress=progress, notify=notify
    ) as run:
        if not run.step:
            rng = np.random.default_rng(config.seed)
            numbers = rng.permutation(len(golds))[: config.fitted].tolist()
            begin_answering(generator.seq2seq, Batch.of(golds, numbers, rng).examples(generator, config.max_answer))
        best = BestWeights(run, "em")
        while True:
            if run.is_due(config.save_every) and run.step:
                best.save()
            if held and run.is_due(config.held_out.eval_every) and parallel.is_first_process():
                best.report(**examine(generator, held, config))
            if run.is_done:
                break
            run.begin_step()
            train_step(run, generator, golds, config)
        best.restore()
    if parallel.is_first_process():
        generation.save(generator, config.out / "generator")
    return config.out / "generator"


if __name__ == "__main__":
    from pipelines.common.processes import train_in_processes
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.rag.warm_generator"):
        print(train_in_processes(main, parse_config(WarmGeneratorConfig, __doc__), progress=Bars(), notify=print))
