"""Train an extractive reader on SQuAD-format data, spans normalised over all passages of a question.

    python -m pipelines.span_reader --train train-v1.1.json.xz --encoder DIR --out runs/reader

The default reader of ragqa was made by this recipe; its model card names the settings. Each
question is read in its gold paragraph and, for a share of the questions, in a hard negative
beside it: another paragraph of the same article that shares rare words with the question. All
spans of both compete in one softmax (Clark & Gardner 2018, "shared norm"), so that scores of
different passages can be compared; every occurrence of the gold answer counts as correct. The
first token learns whether the passage holds an answer at all.

Legend: G questions (groups), N passages, L tokens, W longest span in tokens.
"""

import dataclasses
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ragqa.errors import BadInput, NonFiniteLoss
from ragqa.models.options import set_dropout
from ragqa.models.span_reader import IMPOSSIBLE, SpanReader, span_logits
from ragqa.objectives import span_nll
from ragqa.questions import SquadParagraph, read_squad
from ragqa.runtime.tokens import Pieces, TextTokenizer
from ragqa.training import checkpoint
from ragqa.training.schedule import warmup_linear

PREFIX = 28
"""Wordpieces of question, title and marks before a passage, as a rule."""


@dataclass(frozen=True, kw_only=True)
class ReaderConfig:
    """What a reader is trained from and how."""

    train: Path
    """SQuAD 1.1 file, .json or .json.xz."""
    encoder: Path
    """Directory (config, safetensors, tokenizer.json) of the encoder it starts from."""
    out: Path
    """Run directory; a run found there goes on."""
    steps: int = 1400
    batch: int = 32
    """Questions a step."""
    lr: float = 3e-4
    warmup: int = 70
    """Steps."""
    weight_decay: float = 0.01
    clip: float = 1.0
    """Largest gradient norm."""
    negatives: float = 0.3
    """Share of the questions that are read beside a negative passage."""
    hard: float = 0.8
    """Share of the negatives that come from the question's own article."""
    untitled: float = 0.1
    """Share of the passages read without their title."""
    max_passage: int = 112
    """Wordpieces of a passage; a longer one is cut at random around its answer."""
    max_span: int = 30
    """Wordpieces of an answer."""
    dropout: float = 0.0
    freeze_embeddings: bool = True
    """Keep the encoder's embeddings, so that its export and the reader's share them."""
    held_out: float = 0.05
    """Share of the articles, by a hash of the title, that are never trained on."""
    eval_every: int = 250
    save_every: int = 100
    eval_questions: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} = {value}: must be in [0, 1]"
            for name in ("negatives", "hard", "untitled", "dropout", "held_out")
            if not 0 <= (value := getattr(self, name)) <= 1
        ]
        wrong += [
            f"{name} = {value}: must be at least 1"
            for name in ("steps", "batch", "max_passage", "max_span", "eval_every", "save_every")
            if (value := getattr(self, name)) < 1
        ]
        if wrong:
            raise BadInput("; ".join(wrong))


@dataclass(frozen=True)
class Example:
    """A question, its gold passage and the rows of negatives to choose from."""

    question: list[int]
    gold: int
    spans: list[tuple[int, int]]
    """Every occurrence of the answer in the gold passage: first and last wordpiece."""
    negatives: list[int]


@dataclass(frozen=True)
class Passages:
    """Tokenised paragraphs and titles, by row."""

    pieces: list[Pieces]
    titles: list[list[int]]


@dataclass(frozen=True)
class Batch:
    """Passages of G questions, in the order of their questions."""

    ids_NL: Tensor
    mask_NL: Tensor
    types_NL: Tensor
    inside_NL: Tensor
    """True on the passage's own tokens."""
    group_N: Tensor
    """Row of the passage's question, 0 … G - 1."""
    rank_N: Tensor
    """Place among the passages of its question, 0 … K - 1."""
    spans: list[tuple[int, int, int]]
    """Correct spans: passage row, first token, last token."""
    has_answer_N: Tensor


def held_out(title: str, share: float) -> bool:
    """Whether the article ``title`` is kept out of training; a pure function of the title."""
    import hashlib

    return int(hashlib.sha256(title.encode()).hexdigest()[:8], 16) < share * 2**32


def occurrences(text: str, answer: str, pieces: Pieces) -> list[tuple[int, int]]:
    """Wordpiece spans of every whole-word occurrence of ``answer`` in ``text``."""
    starts = {start: i for i, (start, _) in enumerate(pieces.offsets)}
    ends = {end: i for i, (_, end) in enumerate(pieces.offsets)}
    found, at = [], text.find(answer)
    while answer and at >= 0:
        if at in starts and at + len(answer) in ends:
            found.append((starts[at], ends[at + len(answer)]))
        at = text.find(answer, at + 1)
    return found


def hard_negatives(paragraphs: list[SquadParagraph], *, keep: int = 8) -> Iterator[list[int]]:
    """For each question in order, paragraphs of its article without its answer, likest first.

    Likeness is the sum of the inverse document frequencies (within the article) of shared words.
    """
    articles: dict[str, list[int]] = defaultdict(list)
    for row, paragraph in enumerate(paragraphs):
        articles[paragraph.title].append(row)
    words = [set(p.text.lower().split()) for p in paragraphs]
    frequency = {
        title: np.unique([w for r in rows for w in words[r]], return_counts=True) for title, rows in articles.items()
    }
    for row, paragraph in enumerate(paragraphs):
        rows = [r for r in articles[paragraph.title] if r != row]
        vocabulary, counts = frequency[paragraph.title]
        idf = dict(zip(vocabulary.tolist(), np.log(len(rows) + 1) - np.log(counts), strict=True))
        for question in paragraph.questions:
            asked = set(question.text.lower().rstrip("?").split())
            answer = question.answers[0].lower()
            without = [r for r in rows if answer not in paragraphs[r].text.lower()]
            likeness = {r: sum(idf.get(w, 0.0) for w in asked & words[r]) for r in without}
            yield sorted(without, key=lambda r: -likeness[r])[:keep]


def prepare(paragraphs: list[SquadParagraph], tokenizer: TextTokenizer) -> tuple[Passages, list[Example]]:
    """Tokenise everything once; questions whose answer is not on word boundaries are left out."""
    passages = Passages(
        tokenizer.many([p.text for p in paragraphs]),
        [t.ids for t in tokenizer.many([p.title for p in paragraphs])],
    )
    asked = [(row, q) for row, p in enumerate(paragraphs) for q in p.questions]
    questions = tokenizer.many([q.text for _, q in asked])
    examples = []
    for (row, q), pieces, rows in zip(asked, questions, hard_negatives(paragraphs), strict=True):
        spans = occurrences(paragraphs[row].text, q.answers[0], passages.pieces[row])
        if spans:
            examples.append(Example(pieces.ids, row, spans, rows))
    return passages, examples


class Batches:
    """The batch of a step is a pure function of (seed, step): a resumed run reads what it would have."""

    def __init__(
        self, config: ReaderConfig, tokenizer: TextTokenizer, passages: Passages, examples: list[Example]
    ) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._passages, self._examples = passages, examples
        self.per_epoch = len(examples) // config.batch
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __getitem__(self, step: int) -> Batch:
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffle(epoch)
        rows = self._order[place * self._config.batch : (place + 1) * self._config.batch]
        rng = np.random.default_rng([self._config.seed, 1, step])
        return self.collate([self._group(self._examples[row], rng) for row in rows])

    def _shuffle(self, epoch: int) -> np.ndarray:
        """Random order, then pools of 50 batches sorted by length so that little is padding."""
        rng = np.random.default_rng([self._config.seed, 0, epoch])
        size = self._config.batch
        order = rng.permutation(len(self._examples))[: self.per_epoch * size]
        length = np.array([len(self._passages.pieces[e.gold].ids) for e in self._examples])
        pools = [order[i : i + 50 * size] for i in range(0, len(order), 50 * size)]
        batches = [
            pool[np.argsort(length[pool], kind="stable")].reshape(-1, size)[rng.permutation(len(pool) // size)]
            for pool in pools
        ]
        return np.concatenate(batches).reshape(-1)

    def _group(self, example: Example, rng: np.random.Generator) -> list["_Read"]:
        group = [self._read(example, example.gold, example.spans, rng)]
        if rng.random() < self._config.negatives:
            hard = example.negatives and rng.random() < self._config.hard
            row = rng.choice(example.negatives) if hard else rng.integers(len(self._passages.pieces))
            if row != example.gold:
                group.append(self._read(example, int(row), [], rng))
        return group

    def _read(self, example: Example, row: int, spans: list[tuple[int, int]], rng: np.random.Generator) -> "_Read":
        ids, width = self._passages.pieces[row].ids, self._config.max_passage
        low, high = 0, max(0, len(ids) - width)
        if spans and high:
            first, last = spans[rng.integers(len(spans))]
            low, high = max(0, last + 1 - width), min(high, first)
        begin = int(rng.integers(low, high + 1)) if high >= low else low
        title = [] if rng.random() < self._config.untitled else self._passages.titles[row]
        prefix, first_segment = self._tokenizer.reader_prefix(example.question, title)
        piece = ids[begin : begin + width]
        shift = len(prefix) - begin
        inside = [(a + shift, b + shift) for a, b in spans if a >= begin and b < begin + len(piece)]
        return _Read([*prefix, *piece, self._tokenizer.special[1]], first_segment, len(prefix), inside)

    def collate(self, groups: list[list["_Read"]]) -> Batch:
        """Pad the passages of the groups into one batch."""
        reads = [read for group in groups for read in group]
        n, length = len(reads), max(len(r.ids) for r in reads)
        ids, types = torch.zeros(n, length, dtype=torch.long), torch.zeros(n, length, dtype=torch.long)
        mask, inside = torch.zeros(n, length, dtype=torch.long), torch.zeros(n, length, dtype=torch.bool)
        for row, read in enumerate(reads):
            size = len(read.ids)
            ids[row, :size] = torch.tensor(read.ids)
            mask[row, :size] = 1
            types[row, read.first_segment : size] = 1
            inside[row, read.offset : size - 1] = True
        return Batch(
            ids, mask, types, inside,
            torch.tensor([g for g, group in enumerate(groups) for _ in group]),
            torch.tensor([k for group in groups for k in range(len(group))]),
            [(row, a, b) for row, read in enumerate(reads) for a, b in read.spans],
            torch.tensor([float(bool(read.spans)) for read in reads]),
        )  # fmt: skip


@dataclass(frozen=True)
class _Read:
    ids: list[int]
    first_segment: int
    offset: int
    spans: list[tuple[int, int]]


def losses(reader: SpanReader, batch: Batch, max_span: int) -> tuple[Tensor, Tensor]:
    """Mean span loss over the questions and mean relevance loss over the passages, in nats."""
    start_NL, end_NL, relevance_N = reader(batch.ids_NL, batch.mask_NL, batch.types_NL)
    score_NLW = span_logits(start_NL, end_NL, batch.inside_NL, max_span)
    correct_NLW = torch.zeros_like(score_NLW, dtype=torch.bool)
    for row, first, last in batch.spans:
        if last - first < max_span:
            correct_NLW[row, first, last - first] = True
    groups, width = int(batch.group_N.max()) + 1, int(batch.rank_N.max()) + 1
    place = (batch.group_N, batch.rank_N)
    score_GKS = score_NLW.new_full((groups, width, score_NLW[0].numel()), IMPOSSIBLE)
    score_GKS = score_GKS.index_put(place, score_NLW.flatten(1))
    relevance_GK = relevance_N.new_zeros(groups, width).index_put(place, relevance_N)
    correct_GKS = torch.zeros_like(score_GKS, dtype=torch.bool)
    correct_GKS = correct_GKS.index_put(place, correct_NLW.flatten(1))
    span = span_nll(score_GKS, relevance_GK, correct_GKS).mean()
    return span, binary_cross_entropy_with_logits(relevance_N, batch.has_answer_N)


def train_step(state: checkpoint.TrainState, batch: Batch, config: ReaderConfig) -> dict[str, float]:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    state.model.train()
    rate = warmup_linear(state.step, peak=config.lr, warmup=config.warmup, total=config.steps)
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    state.optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert isinstance(state.model, SpanReader)
        span, relevance = losses(state.model, batch, config.max_span)
    loss = span + 0.5 * relevance
    if not math.isfinite(loss.item()):
        raise NonFiniteLoss(f"loss is {loss.item()} at step {state.step}: lower --lr, or look at the batch")
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), config.clip)
    state.optimizer.step()
    state.step += 1
    return {"span_nll": span.item(), "relevance_bce": relevance.item(), "lr": rate, "grad_norm": float(norm)}


@torch.no_grad()
def evaluate(reader: SpanReader, batches: Batches, examples: list[Example], config: ReaderConfig) -> dict[str, float]:
    """On held-out articles: share of gold paragraphs whose best span is a correct one, and losses."""
    reader.eval()
    rng = np.random.default_rng(config.seed)
    right, span_sum, relevance_sum, seen = 0, 0.0, 0.0, 0
    for i in range(0, len(examples), config.batch):
        group = [batches._group(e, rng) for e in examples[i : i + config.batch]]
        batch = batches.collate(group)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            span, relevance = losses(reader, batch, config.max_span)
            start, end, _ = reader(batch.ids_NL, batch.mask_NL, batch.types_NL)
        score = span_logits(start, end, batch.inside_NL, config.max_span).flatten(1).argmax(-1)
        best = [
            (n, int(s) // config.max_span, int(s) // config.max_span + int(s) % config.max_span)
            for n, s in enumerate(score)
        ]
        right += sum(b in set(batch.spans) for b in best)
        span_sum += float(span) * len(group)
        relevance_sum += float(relevance) * len(group)
        seen += len(group)
    return {
        "dev_exact": right / seen,
        "dev_span_nll": span_sum / seen,
        "dev_relevance_bce": relevance_sum / seen,
    }


def main(config: ReaderConfig) -> Path:
    """Train, or go on training, and return the directory of the finished reader."""
    paragraphs = list(read_squad(config.train))
    tokenizer = TextTokenizer(config.encoder)
    torch.manual_seed(config.seed)
    reader = SpanReader.from_encoder(config.encoder)
    set_dropout(reader, config.dropout)
    if config.freeze_embeddings:
        reader.encoder.embeddings.requires_grad_(False)
    passages, examples = prepare([p for p in paragraphs if not held_out(p.title, config.held_out)], tokenizer)
    dev = prepare([p for p in paragraphs if held_out(p.title, config.held_out)], tokenizer)
    batches = Batches(config, tokenizer, passages, examples)
    dev_batches = Batches(config, tokenizer, *dev)
    dev_examples = dev[1][:: max(1, len(dev[1]) // config.eval_questions)]
    trained = [p for p in reader.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=config.lr, weight_decay=config.weight_decay)
    state = checkpoint.TrainState(reader, optimizer)
    checkpoint.restore(state, config.out / "checkpoints")
    config.out.mkdir(parents=True, exist_ok=True)
    resolved = {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(config).items()}
    (config.out / "config.json").write_text(json.dumps(resolved, indent=1))
    print(f"{len(examples)} questions to train on, {len(dev[1])} held out, {batches.per_epoch} steps an epoch")

    with (config.out / "metrics.jsonl").open("a") as log, _progress() as bar:
        task = bar.add_task("train", total=config.steps, completed=state.step)
        while True:
            done = state.step >= config.steps
            if dev_examples and (done or state.step % config.eval_every == 0):
                row = evaluate(reader, dev_batches, dev_examples, config)
                log.write(json.dumps({"step": state.step, **row}) + "\n")
                bar.console.print({"step": state.step, **row})
            if done or (state.step and state.step % config.save_every == 0):
                checkpoint.save(state, config.out / "checkpoints")
            if done:
                break
            began = time.monotonic()
            batch = batches[state.step]
            row = train_step(state, batch, config)
            row["tokens_per_s"] = batch.ids_NL.numel() / (time.monotonic() - began)
            log.write(json.dumps({"step": state.step, **row}) + "\n")
            log.flush()
            bar.update(task, completed=state.step, description=f"loss {row['span_nll']:.2f}")
    # Read as it was trained: on much longer sequences it loses ten points of EM (docs/decisions.md).
    reader.config.reader_tokens = config.max_passage + PREFIX
    reader.save(config.out / "model")
    (config.out / "model" / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    return config.out / "model"


def _progress() -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


if __name__ == "__main__":
    import tyro

    print(main(tyro.cli(ReaderConfig)))
