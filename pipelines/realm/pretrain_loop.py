"""Training loop of REALM's pretraining (``pipelines.realm.pretrain``).

This file follows section 3 of the paper: mask a text, retrieve passages for it, score the passages with the current
towers, read the text with each passage, and marginalise the likelihood of the masked words over the passages. The index
is refreshed during training; its vectors come from weights of some steps ago.

Legend: B texts of a batch, K passages of a text with the null passage last, M masked positions, L tokens, D width,
V vocabulary.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pipelines.common.masked_text import NULL, MaskedBatch, MaskedText, MaskedTexts, load_tagger, open_masked_texts
from pipelines.common.retrieval_eval import HeldOutQuestions, evaluate_retrieval
from pipelines.common.run import BatchLoss, Run, open_run, write_model
from pipelines.common.run_directory import check_directory
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.common.training_index import RefreshedIndex, read_corpus_fingerprint, score_with_towers
from pipelines.realm.config import PretrainConfig
from pipelines.realm.masked_reading import Score, gold_log_likelihood, read_with_passages
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED, marginal_nll
from ragqa.pretraining.salient import Tagger
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.health import Health, measure_retrieval
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast

SPARE = 4
"""Number of extra passages to retrieve per text, because trivial passages are dropped."""
_SHORT = 4
"""Largest number of wordpieces of a text that other passages may contain by chance."""


class Realm(nn.Module):
    """Modules of REALM in training: retriever, and reader (a masked language model)."""

    def __init__(self, retriever: DualEncoder, reader: KnowledgeAugmentedEncoder) -> None:
        super().__init__()
        self.retriever, self.reader = retriever, reader


def train_step(
    run: Run, model: Realm, index: RefreshedIndex, texts: MaskedTexts, config: PretrainConfig
) -> dict[str, float]:
    """Take an optimizer step, and log and return its figures (REALM, section 3).

    Args:
        run: run in progress.
        model: retriever and reader.
        index: index of the passages, some steps old.
        texts: batches of masked texts.
        config: settings of the run.

    Raises:
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        BadInput: the corpus is too small, the texts have nothing to mask, or the processes cannot share the batch.
    """
    rates = config.rates
    model.retriever.requires_grad_(run.step >= rates.frozen)
    batch = texts[run.step].to(config.device)
    prediction = predict(model, index.mips, index.tokenized, batch, config)
    measured = measure(model, prediction, *marginalise(prediction, config), config)
    run.take_step(measured, rate=rates.compute_rates(run.step), clip=config.clip, staleness=index.staleness)
    return measured.figures


@dataclass(frozen=True)
class MaskedPrediction:
    """Predictions of the masked words of a batch, with each retrieved passage."""

    gold_BKM: Tensor
    """log p(y_j | z, x) of the masked wordpieces in nats, or the results of another ``score`` in ``predict``."""
    alone_B1M: Tensor
    """Values as in ``gold_BKM``, but with only the null passage."""
    relevance_BK: Tensor
    """Relevance f(x, z) of the passages, whose softmax is p(z|x); very negative for a missing passage."""
    rows_BK: np.ndarray
    """Rows of the passages in the corpus; ``NULL`` for the null passage and for a missing passage."""
    counted_BM: Tensor
    """True for each masked position, False for padding."""
    tokens: tuple[int, int, int]
    """Numbers of tokens of the texts, of the encoded passages, and of the pairs that are read, including padding."""


def predict(
    model: Realm,
    mips: Mips,
    passages: TokenizedPassages,
    batch: MaskedBatch,
    config: PretrainConfig,
    score: Score = gold_log_likelihood,
) -> MaskedPrediction:
    """Retrieve passages, and predict the masked words with each passage (REALM, section 3.2).

    Args:
        model: retriever and reader.
        mips: index of the passages' vectors, some steps old.
        passages: wordpieces of the passages.
        batch: masked texts.
        config: settings of the run.
        score: function of the reader's logits and the labels, whose results are ``gold_BKM`` and ``alone_B1M``.

    Raises:
        BadInput: the corpus has too few passages.
    """

    def read(rows_BK: np.ndarray, limit: int) -> tuple[Tensor, int]:
        pieces = [[passages.ids(int(row), limit) for row in rows] for rows in rows_BK]
        return read_with_passages(model.reader, batch, pieces, passages.tokenizer.special_ids, score)

    with autocast(config.device):
        # Query: the text with its masks.
        query_BD = model.retriever.questions(batch.x.ids_NL, batch.x.mask_NL)
        # Retrieve: the stale index only proposes; passages that would give the answer away are dropped (section 3.4).
        is_trivial = make_triviality_test(batch.texts, passages)
        rows_BK = propose(mips, query_BD.detach().float().cpu().numpy(), is_trivial, config.proposed)
        missing_BK = torch.from_numpy(rows_BK == NULL).to(query_BD.device)
        if config.null:
            rows_BK = np.pad(rows_BK, ((0, 0), (0, 1)), constant_values=NULL)
            missing_BK = pad(missing_BK, (0, 1), value=False)
        # Re-encode: the current passage tower computes scores that carry gradient.
        relevance_BK, encoded = score_with_towers(model.retriever, query_BD, rows_BK, passages, config.max_block)
        relevance_BK = relevance_BK.masked_fill(missing_BK, torch.finfo(relevance_BK.dtype).min)
        # Read: predict the masked words with each passage.
        limit = min(config.max_block, model.reader.max_tokens - batch.x.ids_NL.shape[1] - 1)
        gold_BKM, tokens = read(rows_BK, limit)
        alone_B1M = gold_BKM[:, -1:]
        if not config.null:  # measuring the worth of retrieval takes about a hundredth of the step
            with torch.no_grad():
                alone_B1M, _ = read(np.full((len(rows_BK), 1), NULL), 0)
    counted_BM = batch.labels_BM != IGNORED
    numbers = (batch.x.ids_NL.numel(), encoded, tokens)
    return MaskedPrediction(
        gold_BKM=gold_BKM,
        alone_B1M=alone_B1M,
        relevance_BK=relevance_BK,
        rows_BK=rows_BK,
        counted_BM=counted_BM,
        tokens=numbers,
    )


def propose(mips: Mips, queries_BD: np.ndarray, is_trivial: Callable[[int, int], bool], k: int) -> np.ndarray:
    """Return the rows [B, k] of the best non-trivial passages (REALM, section 3.4).

    Args:
        mips: index of the passages' vectors.
        queries_BD: vectors of the texts.
        is_trivial: function of the number of a text and the row of a passage; True if the passage must be dropped.
        k: number of passages per text.

    Returns:
        The rows in the corpus, best first; ``NULL`` where fewer than ``k`` passages are left.

    Raises:
        BadInput: the corpus has too few passages.
    """
    rows = [
        [row for row in ranking.rows.tolist() if not is_trivial(number, row)][:k]
        for number, ranking in enumerate(mips.search(queries_BD, k + SPARE))
    ]
    fewest = min(map(len, rows))
    if fewest < k and len(mips) <= k:
        raise BadInput(f"the corpus has {fewest} passages for a text, not {k}: lower --k")
    return np.array([row + [NULL] * (k - len(row)) for row in rows])


def make_triviality_test(texts: Sequence[MaskedText], passages: TokenizedPassages) -> Callable[[int, int], bool]:
    """Return a test if a passage gives a text away, the ``is_trivial`` of ``propose``.

    A passage is trivial if the text comes from it. It is also trivial if the text has more than ``_SHORT`` wordpieces
    and the passage contains all of them but the first.

    Args:
        texts: masked texts of a batch, in the order of their numbers.
        passages: wordpieces of the passages.
    """
    # Some tokenizers cut a text's first wordpiece differently within a passage.
    contents = [np.asarray(text.original_ids[1:], np.int32).tobytes() for text in texts]
    is_long = [len(text.original_ids) > _SHORT for text in texts]

    def is_trivial(number: int, row: int) -> bool:
        return row == texts[number].row or (is_long[number] and passages.contains(row, contents[number]))

    return is_trivial


def marginalise(prediction: MaskedPrediction, config: PretrainConfig) -> tuple[Tensor, Tensor]:
    """Return REALM's loss of a batch (section 3.1): −log p(y|x) = −log Σ_z p(y|z,x) p(z|x).

    Args:
        prediction: predictions of the masked words.
        config: settings of the run.

    Returns:
        The mean loss of this process's share of the batch, in nats; and a mask of the items that count in this mean:
        masked positions or texts.
    """
    counted_BM = prediction.counted_BM
    loss = marginal_nll(prediction.gold_BKM, prediction.relevance_BK, counted_BM, marginal=config.marginal)
    return loss, counted_BM if config.marginal == "token" else counted_BM.any(-1)


def measure(
    model: Realm, prediction: MaskedPrediction, loss: Tensor, counted: Tensor, config: PretrainConfig
) -> BatchLoss:
    """Return the loss with its figures for the log: retrieval, tokens and operations.

    Args:
        model: retriever and reader.
        prediction: predictions of the masked words.
        loss: mean loss in nats, from ``marginalise``.
        counted: mask of the items that count in this mean, from ``marginalise``.
        config: settings of the run.
    """
    one_passage_B1 = torch.zeros_like(prediction.relevance_BK[:, :1])
    with torch.no_grad():
        alone, _ = marginalise(replace(prediction, gold_BKM=prediction.alone_B1M, relevance_BK=one_passage_B1), config)
    health = measure_retrieval(
        prediction.gold_BKM,
        prediction.alone_B1M,
        prediction.relevance_BK,
        prediction.counted_BM,
        # Texts of all processes may share passages.
        parallel.gather_rows(torch.from_numpy(prediction.rows_BK))[0].numpy(),
        has_null=config.null,
    )
    modules = (model.retriever.questions, model.retriever.passages, model.reader)
    predicted = prediction.rows_BK.size * prediction.counted_BM.shape[1]  # padding included
    flops = sum(map(count_flops, modules, prediction.tokens, (0, 0, predicted)))
    health["nll_alone"] = alone.item()
    return BatchLoss.from_mean(loss, counted, tokens=sum(prediction.tokens), flops=flops, **health)


def main(
    config: PretrainConfig, *, tagger: Tagger | None = None, progress: Progress = SILENT, notify: Notify = ignore_line
) -> Path:
    """Pretrain retriever and reader, or continue a run; return the directory of the retriever.

    The retriever is written into ``model`` in ``config.out``, and the reader into ``reader``.

    Args:
        config: settings of the run.
        tagger: tagger of salient spans; None loads the tagger that ``config`` names.
        progress: shows the tokenization of the passages, and the steps.
        notify: receives a line if the run continues, and for each evaluation and alarm.

    Raises:
        BadInput, ArtefactError, MissingExtra: a setting, file or directory cannot be used, or a package is missing.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        StaleIndex, RefreshFailed: as for ``RefreshedIndex.adopt_newer_index``.
    """
    check_directory(config.out)
    torch.manual_seed(config.seed)
    tokenizer = TextTokenizer(config.encoder)
    model = Realm(DualEncoder.load(config.retriever), KnowledgeAugmentedEncoder.load(config.encoder))
    check_same_tokenizer(model.retriever, tokenizer, config)
    config = limit_lengths(config, model)
    # The index must embed no more of a passage than training encodes.
    model.retriever.passages.config.tower_tokens = config.max_block
    set_dropout(model.train().to(config.device), config.dropout)
    passages = TokenizedPassages.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
    texts = open_texts(config, passages, tagger)
    held_out = HeldOutQuestions.read(config.held_out, passages, config.seed)
    opened = open_run(config, model, model.retriever, model.reader, name="REALM", progress=progress, notify=notify)
    with opened as run, closing(open_index(run, passages, model.retriever, config)) as index:
        health = Health.from_state(run.state.extra.get("health"))
        index.keep_saved_versions()

        def save() -> None:
            run.save(index=index.version, health=health.to_state())
            index.keep_saved_versions()

        def evaluate() -> None:
            assert held_out
            recall = evaluate_retrieval(held_out, model.retriever.questions, index.mips, config.device)
            run.report(**recall, staleness=index.staleness)
            run.alarm(run.step, health.check_recall(recall["recall@5"], len(held_out.questions)))

        for step in run.remaining_steps(
            config.save_every,
            save=save,
            adopt_index=index.adopt_newer_index,
            evaluate=evaluate if held_out else None,
            eval_every=config.held_out.eval_every,
        ):
            figures = train_step(run, model, index, texts, config)
            run.alarm(step, health.check_step(figures, retriever_steps=step + 1 - config.rates.frozen))
    write_model(model.retriever, config.out / "model")
    write_model(model.reader, config.out / "reader")
    return config.out / "model"


def open_texts(config: PretrainConfig, passages: TokenizedPassages, tagger: Tagger | None) -> MaskedTexts:
    """Open the batches of masked texts from ``config.texts``, or from the passages.

    Arguments and errors: as for ``open_masked_texts``.
    """
    return open_masked_texts(
        config.masking,
        passages,
        tagger,
        batch=config.batch,
        seed=config.seed,
        texts=config.texts,
        are_passages=config.texts is None
        or read_corpus_fingerprint(config.texts) == read_corpus_fingerprint(config.corpus),
    )


def open_index(run: Run, passages: TokenizedPassages, retriever: DualEncoder, config: PretrainConfig) -> RefreshedIndex:
    """Open the index that is refreshed while the retriever learns.

    Arguments and errors: as for ``RefreshedIndex``.
    """
    frozen = config.rates.frozen
    return RefreshedIndex(
        run, passages, retriever, config, config.index, config.refresh, corpus=config.corpus, frozen=frozen
    )


def check_inputs(config: PretrainConfig) -> None:
    """Check the encoder, the passages, the texts and the tagger before training.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, MissingExtra: an input cannot be used, or spaCy is missing.
    """
    KnowledgeAugmentedEncoder.load(config.encoder)
    _ = TextTokenizer(config.encoder).mask_id
    for index in (config.corpus, config.texts):
        if index is not None:
            read_corpus_fingerprint(index)
    if (count := PassageStore.open(config.corpus / "passages").live_count) <= config.proposed:
        raise BadInput(
            f"{config.corpus} holds {count} passages, and a text needs {config.proposed} besides its own: lower --k"
        )
    if config.masking.masking == "salient":
        load_tagger(config.masking.tagger, (), ())


def limit_lengths(config: PretrainConfig, model: Realm) -> PretrainConfig:
    """Return the settings with lengths of texts and passages limited to the models' inputs.

    A text has at most half of the reader's input, because the reader reads it together with a passage.
    """
    text = min(config.masking.max_text, model.retriever.questions.max_tokens, model.reader.max_tokens // 2)
    block = min(config.max_block, model.retriever.passages.max_tokens)
    return replace(config, masking=replace(config.masking, max_text=text), max_block=block)


def check_same_tokenizer(retriever: DualEncoder, tokenizer: TextTokenizer, config: PretrainConfig) -> None:
    """Raise BadInput if the retriever's tokenizer is not ``tokenizer``.

    Args:
        retriever: retriever to train.
        tokenizer: tokenizer of the encoder that the reader begins from.
        config: settings of the run, for the message.
    """
    assert retriever.tokenizer is not None
    if TextTokenizer(retriever.tokenizer.parent).fingerprint != tokenizer.fingerprint:
        raise BadInput(
            f"{config.retriever} and {config.encoder} have different tokenizers: begin both from one encoder"
        )
