"""Open-domain fine-tuning of ORQA and REALM, from pairs of question and answer alone (Lee et al. 2019, section 6.2).

    python -m pipelines.orqa.fine_tune --corpus wiki.index --retriever runs/realm/model --encoder runs/realm/reader \\
        --questions train.jsonl --dev dev.jsonl --out runs/tuned

Where the answer stands is latent: whatever passage holds it counts, and whatever span says it. The passages' vectors
stay as they are, the tower of questions learns by two terms: which passages of a large beam hold an answer, and which
spans of the few that are read are one. ``pipelines.common.assemble`` makes a pipeline of what comes out.

Legend: B questions, K passages of the beam, D width, S spans of a passage.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.common.best import Best
from pipelines.common.config import AnsweringConfig, require
from pipelines.common.gold_spans import GoldSpans
from pipelines.common.questions import chosen, taught_and_asked
from pipelines.common.retrieval_eval import KS, question_vectors
from pipelines.common.run import Run, Taught, running, write_model
from pipelines.common.spans import make_reader_batch, score_spans
from pipelines.common.training_index import Asked, Library, Shelf, open_questions
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.metrics import exact_match
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.mlp_reader import HIDDEN, MAX_SPAN, MlpSpanReader
from ragqa.models.pretrained import set_dropout
from ragqa.models.tower import Tower
from ragqa.objectives import retrieval_nll, span_nll
from ragqa.progress import SILENT, Progress
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Ranking
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND
from ragqa.runtime.scorer import make_torch_scorer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import optimise, parameter_groups
from ragqa.types import Hit, Question

_ASKED = 64
"""Questions that are asked at a time in an evaluation."""


@dataclass(frozen=True, kw_only=True)
class FineTuneConfig(AnsweringConfig):
    """What is fine-tuned, on what, and for how long. ORQA and REALM: as the defaults, two epochs of the larger sets."""

    corpus: Path
    """Index directory of the passages."""
    retriever: Path
    """Directory of the dual encoder, as a warm start or pretraining left it."""
    encoder: Path
    """Directory of the encoder that the reader begins from; REALM's is the masked language model that it pretrained."""
    steps: int = 160_000
    """Optimizer steps."""
    batch: int = 1
    """Questions a step."""
    beam: int = 5000
    """Passages that the tower of questions learns to tell apart; at most all there are."""
    read: int = 5
    """Passages of the beam that are read, the best ones."""
    max_input: int = 320
    """Wordpieces of question, title and passage that are read together."""
    max_span: int = MAX_SPAN
    """Wordpieces of an answer."""
    hidden: int = HIDDEN
    """Width of the layer that scores spans."""
    freeze_retriever: bool = False
    """Let the reader alone learn (an ablation)."""
    lr: float = 1e-5
    """Learning rate at its peak."""
    warmup: int | None = None
    """Steps; by default 10,000, or a tenth of all if that is less."""
    retriever_lr: float | None = None
    """Of the tower of questions, where it is another."""
    regex: bool = False
    """Answers are patterns (CuratedTREC), of ``questions``, too."""
    kind: str = DEFAULT_KIND
    """Of the index that proposes passages: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    workers: int = 0
    """Ray actors that embed the passages, once; 0 embeds them in this process."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(self, beam=(self.beam >= self.read, "read or more"))


class OpenQA(nn.Module):
    """What is trained: the tower of questions, and the reader."""

    def __init__(self, questions: Tower, reader: MlpSpanReader, tokenizer: TextTokenizer) -> None:
        """``tokenizer`` is the reader's."""
        super().__init__()
        self.questions, self.reader, self.tokenizer = questions, reader, tokenizer


@dataclass(frozen=True)
class Losses:
    """The two terms of each question of this process, and whether there was anything to learn from."""

    retrieval_B: Tensor
    span_B: Tensor
    in_beam_B: Tensor
    in_read_B: Tensor
    tokens: int
    """That were read, padding included."""

    @property
    def total(self) -> Tensor:
        """Mean over the questions; a term with nothing correct is 0."""
        return (self.retrieval_B + self.span_B).mean()


def losses(model: OpenQA, library: Shelf, asked: Asked, batch: list[int], config: FineTuneConfig) -> Losses:
    """Search with the live tower, score the beam, read the best of it (Lee et al. 2019, section 7.1)."""
    questions = [asked.questions[at] for at in batch]
    query_BD = library.encode(model.questions, [question.text for question in questions], config.device)
    rows_BK = library.propose(query_BD.detach().float().cpu().numpy(), config.beam)
    relevance_BK = library.relevance(query_BD, rows_BK)
    marks = np.stack([asked.marks(at, rows) for at, rows in zip(batch, rows_BK, strict=True)])
    marks_BK = torch.from_numpy(marks).to(config.device)
    reads = make_reader_batch(
        model.tokenizer,
        [question.text for question in questions],
        [library.passages(rows[: config.read]) for rows in rows_BK],
        [GoldSpans(model.tokenizer, question.answers, regex=config.regex) for question in questions],
        max_tokens=model.reader.max_tokens,
        max_span=config.max_span,
    ).to(config.device)
    with autocast(config.device):
        score_BKS, correct_BKS = score_spans(model.reader, reads, (len(batch), config.read))
    return Losses(
        retrieval_nll(relevance_BK, marks_BK),
        span_nll(score_BKS, relevance_BK[:, : config.read], correct_BKS),
        marks_BK.any(-1),
        correct_BKS.flatten(1).any(-1),
        reads.ids_NL.numel(),
    )


def train_step(run: Run, model: OpenQA, library: Library, asked: Asked, config: FineTuneConfig) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    taught = learn(model, library, asked, config, run.step)
    norm = optimise(taught.loss, run.state.optimizer, rate=rates(run.step, config), clip=config.clip, step=run.step)
    run.stepped(
        **taught.figures,
        grad_norm=norm,
        tokens=parallel.sum_over_processes(taught.tokens),
        flops=taught.flops,
    )


def learn(model: OpenQA, library: Shelf, asked: Asked, config: FineTuneConfig, step: int) -> Taught:
    """Both terms of the batch of a step."""
    batch = parallel.take_share(chosen(len(asked), config, step))
    found = losses(model, library, asked, batch, config)
    loss, weighing = found.total, parallel.compute_loss_weight(torch.ones(len(batch), device=config.device))
    row = {
        "nll": loss.item(),
        "retrieval_nll": found.retrieval_B.mean().item(),
        "span_nll": found.span_B.mean().item(),
        "in_beam": found.in_beam_B.float().mean().item(),
        "in_read": found.in_read_B.float().mean().item(),
    }
    flops = count_flops(model.reader, found.tokens)
    return Taught(loss * weighing, parallel.average_over_processes(row, weighing), found.tokens, flops)


def rates(step: int, config: FineTuneConfig) -> list[float]:
    """Learning rates of the two groups of weights of the tower, and of the reader's two."""
    warmup = warmup_steps(config.warmup, 10_000, config.steps)
    peaks = config.lr if config.retriever_lr is None else config.retriever_lr, config.lr
    return [warmup_linear(step, peak=peak, warmup=warmup, total=config.steps) for peak in peaks for _ in range(2)]


@torch.no_grad()
def evaluate(model: OpenQA, library: Shelf, asked: Asked, config: FineTuneConfig) -> dict[str, float]:
    """Ask held-out questions as a pipeline would: what is found, what is read, what is answered.

    ``em`` of the answers; ``recall@k`` by DPR's rule; ``in_beam``, ``in_read``: an answer stands in some passage of
    the beam, or of those that are read.
    """
    model.eval()
    scorer = make_torch_scorer(model.reader, model.tokenizer, config.out, "in training", device=config.device)
    reader = ExtractiveReader(scorer, UNCALIBRATED)
    beam = min(config.beam, library.store.live_count)
    depths = {**{f"recall@{k}": k for k in KS}, "in_beam": beam, "in_read": config.read}
    right = dict.fromkeys(("em", *depths), 0)
    for first in range(0, len(asked), _ASKED):
        some = range(first, min(first + _ASKED, len(asked)))
        texts = [asked.questions[at].text for at in some]
        vectors_BD = question_vectors(model.questions, library.tokenizer, texts, config.device)
        found = library.index.search(vectors_BD, beam)
        answers = reader.read(texts, [_hits(library, ranking, config.read) for ranking in found])
        for at, ranking, answer in zip(some, found, answers, strict=True):
            marks_K = asked.marks(at, ranking.rows)
            for name, depth in depths.items():
                right[name] += bool(marks_K[:depth].any())
            right["em"] += exact_match(answer.text, asked.questions[at].answers, regex=config.regex)
    model.train()
    return {name: count / len(asked) for name, count in right.items()}


def _hits(library: Shelf, ranking: Ranking, read: int) -> list[Hit]:
    return list(map(Hit, library.passages(ranking.rows[:read]), ranking.scores[:read].tolist()))


def begin(config: FineTuneConfig) -> tuple[OpenQA, DualEncoder]:
    """The model as it begins, and the retriever whose tower of questions is part of it."""
    retriever = DualEncoder.load(config.retriever)
    if retriever.shared:  # what is learned of questions must not move the passages
        retriever = DualEncoder(deepcopy(retriever.questions), retriever.passages, tokenizer=retriever.tokenizer)
    reader = MlpSpanReader.from_encoder(config.encoder, hidden=config.hidden, max_span=config.max_span)
    reader.config.reader_tokens = config.max_input  # it answers as it was trained
    model = OpenQA(retriever.questions, reader, TextTokenizer(config.encoder)).to(config.device).train()
    set_dropout(model, config.dropout)
    if config.freeze_retriever:
        set_dropout(model.questions.requires_grad_(False), 0.0)
    return model, retriever


def check_size(config: FineTuneConfig) -> None:
    """Raise BadInput where the passages are fewer than are to be read, before hours are spent on them."""
    artefacts.read_manifest(config.corpus, "index")
    if (live := PassageStore.open(config.corpus / "passages").live_count) < config.read:
        raise BadInput(f"{config.corpus} holds {live} passages, not {config.read} to read: lower --read")


def asking(
    config: FineTuneConfig, teach: list[Question], ask: list[Question], progress: Progress
) -> tuple[Library, Asked, Asked]:
    """The passages, and the questions, those of training and those held out, with where their answers stand."""
    library = Library.of(config, progress)
    with parallel.take_turns():
        cache = config.out / "answers"
        return library, *open_questions(library, teach, ask, cache, regex=config.regex, progress=progress)


def main(
    config: FineTuneConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Fine-tune, or go on fine-tuning; the directory of the retriever, beside which is that of the ``reader``.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
    """
    teach, ask = taught_and_asked(config, notify)
    check_size(config)
    torch.manual_seed(config.seed)
    model, retriever = begin(config)
    optimizer = torch.optim.AdamW(
        parameter_groups(model.questions, model.reader, decay=config.weight_decay), lr=config.lr
    )
    with running(config, model, optimizer, name="fine-tuning", progress=progress, notify=notify) as run:
        best = Best(run, "em")
        library, asked, dev = asking(config, teach, ask, progress)
        notify(f"{len(asked)} questions of {len(teach)} are answered by a passage")
        while True:
            if len(dev) and run.due(config.eval_every) and parallel.is_first_process():
                best.told(**evaluate(model, library, dev, config))
            if run.due(config.save_every) and run.step:
                best.save()
            if run.done:
                break
            run.begin()
            train_step(run, model, library, asked, config)
        best.restore()
    if parallel.is_first_process():
        write_model(retriever, config.out / "model")
        write_model(model.reader, config.out / "reader", config.encoder / "tokenizer.json")
    return config.out / "model"


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.orqa.fine_tune"):
        print(together(main, parse_config(FineTuneConfig, __doc__), progress=Bars(), notify=print))
