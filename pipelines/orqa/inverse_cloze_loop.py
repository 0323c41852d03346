"""Training loop of the inverse cloze task (``pipelines.orqa.inverse_cloze``)."""

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pipelines.common.contrastive import ContrastiveBatch, contrastive_step
from pipelines.common.questions import read_answerable
from pipelines.common.retrieval_eval import HeldOutQuestions, evaluate_with_new_index
from pipelines.common.run import Run, open_run, write_model
from pipelines.common.run_directory import check_directory
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.orqa.config import InverseClozeConfig
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.matching.sentences import find_sentences
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.pretraining.inverse_cloze import drop_wordpieces, make_inverse_cloze_pair
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.runtime.tokens import Pieces, TextTokenizer
from ragqa.types import Passage


@dataclass(frozen=True)
class InverseClozePairs:
    """Batch of B pairs of a query and its passage."""

    questions: list[list[int]]
    """Wordpiece ids of the B queries, including [CLS] and [SEP]."""
    passages: list[list[int]]
    """Wordpiece ids of the B passages, including [CLS] and [SEP]."""
    texts: list[int]
    """Number of each passage's text; equal texts have equal numbers."""


class InverseClozeBatches:
    """Batches of pairs, indexed by step; seed and step determine a batch."""

    def __init__(self, config: InverseClozeConfig, passages: TokenizedPassages) -> None:
        """Prepare the batches.

        Args:
            config: settings of the run.
            passages: wordpieces of the passages to make pairs from.

        Raises:
            BadInput: a batch is larger than the corpus.
        """
        _check_batch(config, passages.store)
        self._config, self._passages = config, passages

    def __getitem__(self, step: int) -> InverseClozePairs:
        """Return the batch of a step, the same in all processes."""
        config, tokenized = self._config, self._passages
        store, tokenizer = tokenized.store, tokenized.tokenizer
        rng = np.random.default_rng([config.seed, step])
        rows = store.get_live_rows(rng.choice(store.live_count, config.batch, replace=False)).tolist()
        if config.drop_rate is not None:
            whole = [tokenized.ids(row, config.max_block - 2) for row in rows]
            pairs = [(drop_wordpieces(ids, rng, config.drop_rate), ids) for ids in whole]
            return self._collate(pairs, list(map(tuple, whole)))
        passages, pairs = store.get(rows), []
        for passage, pieces in zip(passages, tokenizer.tokenize_batch([p.titled_text for p in passages]), strict=True):
            title, sentences = split_pieces(passage, pieces)
            question, block = make_inverse_cloze_pair(sentences, rng, keep_rate=config.keep_rate)
            pairs.append((question, [*title, *block]))
        return self._collate(pairs, [passage.text for passage in passages])

    def _collate(self, pairs: Sequence[tuple[list[int], list[int]]], texts: Sequence[Hashable]) -> InverseClozePairs:
        first, last = self._passages.tokenizer.special_ids
        questions = [[first, *question[: self._config.max_query - 2], last] for question, _ in pairs]
        passages = [[first, *passage[: self._config.max_block - 2], last] for _, passage in pairs]
        numbers = {text: number for number, text in enumerate(texts)}
        return InverseClozePairs(questions, passages, [numbers[text] for text in texts])


def split_pieces(passage: Passage, pieces: Pieces) -> tuple[list[int], list[list[int]]]:
    """Divide the wordpieces of a passage between its title and its sentences.

    A wordpiece belongs to the sentence of its last character, because it can begin with the space before the sentence.

    Args:
        passage: a passage.
        pieces: wordpieces of ``passage.titled_text``, tokenized as a whole as for an index.

    Returns:
        The ids of the title, and the ids of each sentence.
    """
    text_start = len(passage.titled_text) - len(passage.text)
    starts = [text_start + start for start, _, _ in find_sentences(passage.text, 0)]
    title: list[int] = []
    sentences: list[list[int]] = [[] for _ in starts]
    for piece, (_, end) in zip(pieces.ids, pieces.offsets, strict=True):
        number = bisect_right(starts, end - 1)
        (sentences[number - 1] if number else title).append(piece)
    return title, sentences


def train_step(run: Run, retriever: DualEncoder, pairs: InverseClozePairs, config: InverseClozeConfig) -> None:
    """Take an optimizer step on a batch of pairs.

    Args:
        run: run in progress.
        retriever: dual encoder in training.
        pairs: batch of the step.
        config: settings of the run.

    Raises:
        BadInput, NonFiniteLoss: as for ``contrastive_step``.
    """
    text_B = torch.tensor(pairs.texts)
    same_BB = text_B[:, None].eq(text_B).fill_diagonal_(False)  # another pair with the same text is no negative
    batch = ContrastiveBatch(pairs.questions, pairs.passages, torch.arange(config.batch), same_BB)
    contrastive_step(run, retriever, batch, config, chunk=config.chunk, rate=config.compute_rate(run.step))


def check_inputs(config: InverseClozeConfig) -> None:
    """Check the corpus and the held-out questions before training.

    Raises:
        BadInput, BadLine, ArtefactError, DamagedArtefact: the corpus or the file of questions cannot be used.
    """
    artefacts.read_manifest(config.corpus, "index")
    _check_batch(config, PassageStore.open(config.corpus / "passages"))
    if config.held_out.dev is not None:
        read_answerable(config.held_out.dev)


def _check_batch(config: InverseClozeConfig, store: PassageStore) -> None:
    if (count := store.live_count) < config.batch:
        raise BadInput(f"{config.corpus} holds {count} passages, a batch {config.batch}: lower --batch")


def main(config: InverseClozeConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train a retriever, or continue a run; return the directory of the retriever.

    Args:
        config: settings of the run.
        progress: shows the tokenization of the passages, and the steps.
        notify: receives a line if the run continues, and for each evaluation.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    check_directory(config.out)
    torch.manual_seed(config.seed)
    retriever = DualEncoder.from_encoder(
        config.encoder, width=config.width, pooling=config.pooling, shared=config.shared, gain=config.gain
    ).to(config.device)
    limit = retriever.passages.max_tokens
    config = replace(config, max_query=min(config.max_query, limit), max_block=min(config.max_block, limit))
    tokenizer = TextTokenizer(config.encoder)
    passages = TokenizedPassages.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
    retriever.limit_tokens(config.max_query, config.max_block)
    batches = InverseClozeBatches(config, passages)
    held_out = HeldOutQuestions.read(config.held_out, passages, config.seed)
    set_dropout(retriever.train(), config.dropout)
    with open_run(config, retriever, name="inverse cloze", progress=progress, notify=notify) as run:

        def evaluate() -> None:
            assert held_out
            work = run.path / "dev"
            run.report(**evaluate_with_new_index(work, retriever, held_out, config.corpus, device=config.device))

        for step in run.remaining_steps(
            config.save_every, evaluate=evaluate if held_out else None, eval_every=config.held_out.eval_every
        ):
            train_step(run, retriever, batches[step], config)
    write_model(retriever, config.out / "model")
    return config.out / "model"
