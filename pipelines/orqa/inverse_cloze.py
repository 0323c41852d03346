"""Warm start of a retriever: the inverse cloze task over the passages of an index (ORQA, Lee et al. 2019, section 5).

    python -m pipelines.orqa.inverse_cloze --corpus wiki.index --encoder encoder --out runs/cloze

A sentence has to find the passage that it was taken from, among those of the whole batch. Vectors of a batch are
computed in parts (``chunk``), so that the batch is bound by time and not by memory.

Legend: B pairs of a batch, N texts of a part, L tokens, D width.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from pipelines.common.config import TrainingConfig, require
from pipelines.common.contrastive import contrast
from pipelines.common.retrieval_eval import Examination, examine_anew
from pipelines.common.run import Run, running, vacant, write_model
from pipelines.common.tokenized_passages import Blocks
from ragqa.corpus.blocks import find_sentences
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.pretraining.inverse_cloze import KEEP_RATE, drop_wordpieces, make_inverse_cloze_pair
from ragqa.progress import SILENT, Progress
from ragqa.runtime.tokens import Pieces, TextTokenizer
from ragqa.training import parallel
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import parameter_groups
from ragqa.types import Passage


@dataclass(frozen=True, kw_only=True)
class WarmStartConfig(TrainingConfig):
    """What is warmed up, on what, and for how long. ORQA: batch 4096, 100,000 steps."""

    corpus: Path
    """Index directory of the passages (``ragqa index --retriever bm25`` makes one)."""
    encoder: Path
    """Directory of the encoder that the towers begin from."""
    steps: int = 100_000
    """Optimizer steps."""
    batch: int = 4096
    """Pairs a step."""
    chunk: int = 128
    """Texts whose activations are in memory at a time."""
    lr: float = 1e-4
    """Learning rate at its peak."""
    width: int = 128
    """Of the vectors."""
    pooling: Literal["cls", "mean"] = "cls"
    """Of hidden states: [CLS] or their mean, from which a small tower learns sooner."""
    gain: float = 1.0
    """Of the layer norms at first; ``width ** -0.25`` for small towers that begin from nothing."""
    shared: bool = False
    """One tower for questions and passages."""
    kept: float = KEEP_RATE
    """Share of the sentences that stay in their passage."""
    thin: float | None = None
    """In place of a sentence, the passage without this share of its wordpieces: for passages of one sentence."""
    max_query: int = 64
    """Wordpieces of a sentence, [CLS] and [SEP] included."""
    max_block: int = 288
    """The same of a passage."""
    questions: Path | None = None
    """File of held-out questions, on which recall is measured."""
    sample: int = 500
    """How many of them."""
    regex: bool = False
    """Their answers are patterns (CuratedTREC)."""
    eval_every: int = 100_000
    """Steps between two evaluations, for each of which all passages are embedded; there is one at the begin and one at
    the end, too."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(
            self,
            batch=(self.batch > 1, "more than 1: the others are the wrong answers"),
            kept=(0 <= self.kept <= 1, "from 0 to 1"),
        )


@dataclass(frozen=True)
class Pairs:
    """Questions and the passages they belong to, as wordpieces with [CLS] and [SEP], row by row."""

    questions: list[list[int]]
    passages: list[list[int]]
    texts: list[int]
    """A number for each passage, the same for those that say the same."""


class ClozeBatches:
    """The batch of a step is a pure function of (seed, step)."""

    def __init__(self, config: WarmStartConfig, blocks: Blocks) -> None:
        """Raises BadInput where a batch would hold a passage twice."""
        if (live := blocks.store.live_count) < config.batch:
            raise BadInput(f"{config.corpus} holds {live} passages, a batch {config.batch}: lower --batch")
        self._config, self._blocks = config, blocks

    def __getitem__(self, step: int) -> Pairs:
        config, blocks = self._config, self._blocks
        rng = np.random.default_rng([config.seed, step])
        rows = blocks.store.live_rows(rng.choice(blocks.store.live_count, config.batch, replace=False)).tolist()
        if config.thin is not None:
            whole = [blocks.ids(row, config.max_block - 2) for row in rows]
            return self._marked(
                [(drop_wordpieces(ids, rng, config.thin), ids) for ids in whole], list(map(tuple, whole))
            )
        passages = blocks.store.get(rows)
        pairs = []
        for passage, pieces in zip(
            passages, blocks.tokenizer.tokenize_batch([each.titled for each in passages]), strict=True
        ):
            title, sentences = by_sentence(passage, pieces)
            question, block = make_inverse_cloze_pair(sentences, rng, keep_rate=config.kept)
            pairs.append((question, [*title, *block]))
        return self._marked(pairs, [passage.text for passage in passages])

    def _marked(self, pairs: Sequence[tuple[list[int], list[int]]], texts: Sequence[Hashable]) -> Pairs:
        first, last = self._blocks.tokenizer.special_ids
        cut = ((q[: self._config.max_query - 2], p[: self._config.max_block - 2]) for q, p in pairs)
        marked = [([first, *question, last], [first, *passage, last]) for question, passage in cut]
        numbers = {text: number for number, text in enumerate(texts)}
        same = [numbers[text] for text in texts]
        return Pairs([question for question, _ in marked], [passage for _, passage in marked], same)


def by_sentence(passage: Passage, pieces: Pieces) -> tuple[list[int], list[list[int]]]:
    """Of ``pieces`` of title and text those of the title, and those of each sentence; as a whole, as they are embedded.

    A piece is of the sentence that its last character is of: some begin with the space before it.
    """
    begins = len(passage.titled) - len(passage.text)
    starts = [begins + start for start, _, _ in find_sentences(passage.text, 0)]
    title: list[int] = []
    sentences: list[list[int]] = [[] for _ in starts]
    for piece, (_, end) in zip(pieces.ids, pieces.offsets, strict=True):
        at = bisect_right(starts, end - 1)
        (sentences[at - 1] if at else title).append(piece)
    return title, sentences


def train_step(run: Run, retriever: DualEncoder, pairs: Pairs, config: WarmStartConfig) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    warmup = warmup_steps(config.warmup, 1000, config.steps)
    rate = warmup_linear(run.step, peak=config.lr, warmup=warmup, total=config.steps)
    text_B = torch.tensor(pairs.texts)
    again_BB = text_B[:, None].eq(text_B).fill_diagonal_(False)  # the same text in another row is no wrong answer
    contrast(run, retriever, (pairs.questions, pairs.passages), torch.arange(config.batch), again_BB, config, rate=rate)


def main(
    config: WarmStartConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Train, or go on training; the directory of the retriever.

    Args:
        config: see there.
        progress: told of the steps.
        notify: told of evaluations, a line each.

    Raises:
        BadInput, ArtefactError: a directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
    """
    vacant(config.out)
    torch.manual_seed(config.seed)
    retriever = DualEncoder.from_encoder(
        config.encoder, width=config.width, pooling=config.pooling, shared=config.shared, gain=config.gain
    ).to(config.device)
    limit = retriever.passages.max_tokens
    config = replace(config, max_query=min(config.max_query, limit), max_block=min(config.max_block, limit))
    blocks = Blocks.open(config.corpus, TextTokenizer(config.encoder), config.out / "blocks", progress=progress)
    retriever.limit_tokens(config.max_query, config.max_block)
    batches = ClozeBatches(config, blocks)
    exam = config.questions and Examination.of(config.questions, blocks, config.sample, config.seed, regex=config.regex)
    optimizer = torch.optim.AdamW(parameter_groups(retriever, decay=config.weight_decay), lr=config.lr)
    set_dropout(retriever.train(), config.dropout)
    with running(config, retriever, optimizer, name="inverse cloze", progress=progress, notify=notify) as run:
        while True:
            if exam and run.due(config.eval_every) and parallel.is_first_process():
                run.told(**examine_anew(run.path / "dev", retriever, exam, config.corpus, device=config.device))
            if run.due(config.save_every) and run.step:
                run.save()
            if run.done:
                break
            run.begin()
            train_step(run, retriever, batches[run.step], config)
    if parallel.is_first_process():
        write_model(retriever, config.out / "model")
    return config.out / "model"


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.orqa.inverse_cloze"):
        print(together(main, parse_config(WarmStartConfig, __doc__), progress=Bars(), notify=print))
