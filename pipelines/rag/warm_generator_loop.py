"""Training loop of a generator made from a span reader (``pipelines.rag.warm_generator``).

Legend: B questions, each with a passage, L tokens of question and passage, T tokens of the longest answer, H heads,
V vocabulary, M tokens of all answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pipelines.common import generator_training
from pipelines.common.best import BestWeights
from pipelines.common.examples.data_sets import TrainingSet
from pipelines.common.examples.mining import QuestionFile
from pipelines.common.examples.passage_sampler import PassageMix, PassageSampler
from pipelines.common.examples.retrieval_examples import list_gold_passages
from pipelines.common.learning_rates import compute_rate
from pipelines.common.questions import draw_step, read_training_questions
from pipelines.common.run import BatchLoss, Run, open_run
from pipelines.rag.config import WarmGeneratorConfig
from ragqa.corpus.splitters import make_word_splitter
from ragqa.errors import BadInput
from ragqa.metrics import has_answer
from ragqa.models import attention
from ragqa.models.generation.copying import Example, initialise_answering
from ragqa.models.generation.encoder_decoder import make_from_reader
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.generation.template import Template
from ragqa.models.inputs import pad_rows
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.training import parallel
from ragqa.training.precision import autocast
from ragqa.types import Passage, Question

_MIN_ATTENTION = 1e-6
"""Lower limit of the attention on an answer's positions, so that its logarithm is finite."""


class GoldQuestions:
    """Training or held-out questions, each with a gold passage for the generator to read."""

    def __init__(self, questions: Sequence[Question], file: Path) -> None:
        """Select the questions with an answer and a gold passage.

        Args:
            questions: training or held-out questions.
            file: file of the questions, which the error names.

        Raises:
            BadInput: no question has an answer and a gold passage.
        """
        self.questions = [question for question in questions if question.answers and list_gold_passages(question)]
        if not self.questions:
            raise BadInput(f"{file}: no question has an answer and a gold passage")
        mix = PassageMix(positives=1, negatives=0, hard=0, whole=0, untitled=0)
        training_set = TrainingSet(QuestionFile(file), self.questions)
        self._sampler = PassageSampler([training_set], [], None, make_word_splitter(), mix)

    def __len__(self) -> int:
        return len(self.questions)

    def sample(self, number: int, rng: np.random.Generator) -> tuple[str, Passage, str]:
        """Return the text of a question, a passage and an answer.

        The passage is a random block of 100 words with an answer from a gold passage, or the whole gold passage if no
        block has an answer. The answer is one that the passage contains, if possible.

        Args:
            number: number of the question.
            rng: random generator.
        """
        question = self.questions[number]
        (title, text), *_ = self._sampler.sample(number, rng).positives
        answers = [answer for answer in question.answers if has_answer(text, [answer])] or question.answers
        return question.text, Passage(0, "", title, text, "", 0, len(text)), str(rng.choice(answers))


@dataclass(frozen=True)
class GoldBatch:
    """Questions, each with a passage and an answer."""

    texts: list[str]
    """Texts of the questions."""
    passages: list[Passage]
    """Block of a gold passage, or whole gold passage, for each question."""
    answers: list[str]
    """Answer to each question."""

    @classmethod
    def sample(cls, golds: GoldQuestions, numbers: Sequence[int], rng: np.random.Generator) -> "GoldBatch":
        """Sample a passage and an answer for each question, as ``GoldQuestions.sample`` does.

        Args:
            golds: all questions.
            numbers: numbers of the questions.
            rng: random generator.
        """
        texts, passages, answers = zip(*(golds.sample(number, rng) for number in numbers), strict=True)
        return cls(list(texts), list(passages), list(answers))

    def take_share(self) -> "GoldBatch":
        """Return this process's share of the batch.

        Raises:
            BadInput: the processes cannot share the batch evenly.
        """
        return GoldBatch(
            parallel.take_share(self.texts), parallel.take_share(self.passages), parallel.take_share(self.answers)
        )

    def make_examples(self, generator: RagGenerator, limit: int) -> list[Example]:
        """Return an example for each question: ids of input and answer, and the answer's positions.

        Args:
            generator: generator with the tokenizer and the template.
            limit: largest length of an answer in tokens, including the end token.
        """
        tokens = generator.seq2seq.tokens
        rows = generator.make_inputs(self.texts, [[passage] for passage in self.passages])
        pairs = zip(self.texts, self.passages, strict=True)
        openings = tokens.encode([generator.template.get_text_before(*pair) for pair in pairs])
        examples = []
        for row, mask, opening, answer in zip(rows.ids_NL, rows.mask_NL, openings, self.answers, strict=True):
            ids = row[mask.bool()].tolist()
            first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, opening, strict=False)))
            examples.append(make_example(ids, tokens.make_labels([answer, f" {answer}"], limit), first))
        return examples


def make_example(ids: list[int], labels_2T: Tensor, first: int) -> Example:
    """Return an example whose answer has, if possible, the same tokens as in the passage.

    Some tokenizers split words differently after a space. If the passage has neither form of the answer, the example
    has the form without a space and no positions.

    Args:
        ids: token ids of the input.
        labels_2T: token ids of the answer, and of the answer after a space; ``IGNORED`` for padding.
        first: position in ``ids`` where the passage begins.
    """
    alone, after_space = (labels[labels != IGNORED].tolist() for labels in labels_2T)
    for answer in (alone, after_space):
        if places := find_places(ids, answer[:-1], first):
            return Example(ids, answer, places)
    return Example(ids, alone, [])


def find_places(ids: Sequence[int], answer: Sequence[int], first: int) -> list[int]:
    """Return the positions where an answer begins in an input.

    Args:
        ids: token ids of the input.
        answer: token ids of the answer.
        first: first position to compare.
    """
    sequence = list(answer)
    end = len(ids) - len(sequence)  # the last token is the end mark, which belongs to no answer
    starts = range(first, end) if sequence else ()
    return [start for start in starts if list(ids[start : start + len(sequence)]) == sequence]


def count_placed_tokens(example: Example) -> int:
    """Return the length of an answer in tokens with its end; 0 for an answer without positions."""
    return len(example.answer) if example.places else 0


def compute_attention_nll(weights_BHTL: Tensor, examples: Sequence[Example]) -> Tensor:
    """Return the loss of the attention on an answer in the input, in nats per answer token.

    It is the mean of -log of the attention, averaged over heads, on the right positions. For token i of an answer,
    these are i tokens after each beginning of the answer in the input. Only answers in the input count; if there are
    none, the result is 0.

    Args:
        weights_BHTL: attention of the decoder on the input, from 0 to 1.
        examples: inputs and answers.
    """
    mean_BTL, attention_M = weights_BHTL.float().mean(1), []
    for row, example in zip(mean_BTL, examples, strict=True):
        for number in range(count_placed_tokens(example)):
            attention_M.append(row[number, [place + number for place in example.places]].sum())
    if not attention_M:
        return weights_BHTL.sum() * 0
    return -torch.stack(attention_M).clamp_min(_MIN_ATTENTION).log().mean()


def train_step(run: Run, generator: RagGenerator, golds: GoldQuestions, config: WarmGeneratorConfig) -> None:
    """Take an optimizer step on a batch of questions.

    Args:
        run: run in progress.
        generator: generator in training.
        golds: training questions.
        config: settings of the run.

    Raises:
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        BadInput: the processes cannot share the batch evenly.
    """
    seq2seq = generator.seq2seq
    seq2seq.model.get_encoder().requires_grad_(run.step >= config.frozen_steps)
    freeze_embeddings(generator)
    numbers = draw_step(len(golds), batch=config.batch, seed=config.seed, step=run.step)
    batch = GoldBatch.sample(golds, numbers, np.random.default_rng([config.seed, run.step]))
    examples = batch.take_share().make_examples(generator, config.max_answer)
    inputs = seq2seq.tokens.pad_rows([example.ids for example in examples]).to(config.device)
    labels_BT = pad_rows([example.answer for example in examples], IGNORED).ids_NL.to(config.device)
    counted_BT = labels_BT != IGNORED
    with autocast(config.device), attention.record_weights() as recorded:
        logits_MV = seq2seq.compute_logits(seq2seq.encode(inputs), seq2seq.shift_labels(labels_BT), counted_BT)
    nll = cross_entropy(logits_MV, labels_BT[counted_BT])
    guided = compute_attention_nll(recorded[-1], examples) if config.guide else torch.zeros_like(nll)
    weight = parallel.compute_loss_weight(counted_BT)
    placed = parallel.compute_loss_weight(torch.tensor([*map(count_placed_tokens, examples)]))
    loss = nll * weight + config.guide * guided * placed
    figures = parallel.average_over_processes({"nll": nll.item()}, weight)
    figures |= parallel.average_over_processes({"guided": guided.item()}, placed)
    read_flops, write_flops = generator_training.count_token_flops(seq2seq)
    passes = 3 if run.step >= config.frozen_steps else 1  # a frozen encoder has no backward pass
    flops = read_flops * passes / 3 * inputs.ids_NL.numel() + write_flops * labels_BT.numel()
    result = BatchLoss(loss, figures, inputs.ids_NL.numel() + labels_BT.numel(), flops)
    run.take_step(result, rate=compute_rates(run.step, config), clip=config.clip)


def compute_rates(step: int, config: WarmGeneratorConfig) -> list[float]:
    """Return the learning rates of a step: two for the encoder, then two for the decoder.

    Each module has two parameter groups: with and without weight decay.

    Args:
        step: number of the step, from 0.
        config: settings of the run.
    """
    peaks = (config.lr / 10 if config.encoder_lr is None else config.encoder_lr, config.lr)
    rates = []
    for peak, first in zip(peaks, (min(config.frozen_steps, config.steps - 1), 0), strict=True):
        total = config.steps - first
        rate = compute_rate(max(0, step - first), peak=peak, warmup=config.warmup, total=total, default_warmup=100)
        rates += [rate if step >= first else 0.0] * 2
    return rates


def freeze_embeddings(generator: RagGenerator) -> None:
    """Freeze the word embeddings, because the fitted decoder copies tokens through them."""
    model = generator.seq2seq.model
    for part in (model.get_encoder(), model.get_decoder()):
        part.get_input_embeddings().requires_grad_(False)


def init_generator(config: WarmGeneratorConfig) -> RagGenerator:
    """Make the generator from the span reader, before its attention is fitted.

    Raises:
        ArtefactError, DamagedArtefact: the reader is missing or damaged.
        BadInput: the template cannot be used.
    """
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
def evaluate(generator: RagGenerator, held_out: GoldQuestions, config: WarmGeneratorConfig) -> dict[str, float]:
    """Return ``em``: the exact match of greedy answers to held-out questions, from 0 to 1.

    Args:
        generator: generator to evaluate.
        held_out: held-out questions, each read with a passage from ``GoldQuestions.sample``.
        config: settings of the run.

    Raises:
        SlowPattern: a gold answer is a pattern that takes too long.
    """
    right, rng = 0, np.random.default_rng(config.seed)
    for first in range(0, len(held_out), generator_training.EVALUATION_BATCH):
        numbers = range(first, min(len(held_out), first + generator_training.EVALUATION_BATCH))
        batch = GoldBatch.sample(held_out, numbers, rng)
        relevance_B1 = torch.zeros(len(numbers), 1, device=config.device)
        passages = [[passage] for passage in batch.passages]
        answers = generator_training.write_answers(generator, batch.texts, passages, relevance_B1)
        questions = [held_out.questions[number] for number in numbers]
        right += generator_training.count_exact_matches(answers, questions, regex=config.held_out.regex)
    return {"em": right / len(held_out)}


def main(config: WarmGeneratorConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Fit and train a generator, or continue a run; return the directory of the generator.

    Args:
        config: settings of the run.
        progress: shows the steps.
        notify: receives lines about the questions and the run.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    torch.manual_seed(config.seed)
    training, held_out = read_training_questions(config.questions, config.held_out, config.seed, notify)
    golds = GoldQuestions(training, config.questions)
    exam = GoldQuestions(held_out, config.held_out.dev) if held_out and config.held_out.dev else None
    generator = init_generator(config)
    parts = (generator.seq2seq.model.get_encoder(), generator.seq2seq.model.get_decoder())
    with open_run(config, generator, *parts, name="generator", progress=progress, notify=notify) as run:
        if not run.step:
            rng = np.random.default_rng(config.seed)
            numbers = rng.permutation(len(golds))[: config.fitted].tolist()
            batch = GoldBatch.sample(golds, numbers, rng)
            initialise_answering(generator.seq2seq, batch.make_examples(generator, config.max_answer))
        best = BestWeights(run, "em")
        for _ in run.remaining_steps(
            config.save_every,
            save=best.save,
            evaluate=(lambda: best.report(**evaluate(generator, exam, config))) if exam else None,
            eval_every=config.held_out.eval_every,
        ):
            train_step(run, generator, golds, config)
        best.restore()
    generator_training.write_generator(generator, config.out / "generator")
    return config.out / "generator"
