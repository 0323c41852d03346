"""A training index that follows its retriever: it is made again while training goes on, and scores by live towers.

Legend: B questions, K passages of a question, P different passages of a batch, D width.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from index.refresh import (
    IndexRefresher,
    RefreshSettings,
    Swap,
    make_version_opener,
    open_blocking_refresher,
    open_ray_refresher,
)
from pipelines.common.config import RefreshConfig, TrainingConfig, TrainingIndexConfig
from pipelines.common.retrieval_eval import encode_with_gradient
from pipelines.common.run import Run
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.common.training_index.base import NOT_FOUND, search_rows
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, RefreshFailed
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.inputs import round_up
from ragqa.models.span_readers import IMPOSSIBLE
from ragqa.models.tower import Tower
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.precision import autocast
from ragqa.types import Passage


class RefreshedIndex:
    """A ``TrainingIndex`` over passages whose tower learns.

    The first of several processes refreshes the index; it is the same in all of them at every step.
    """

    def __init__(
        self,
        run: Run,
        passages: TokenizedPassages,
        retriever: DualEncoder,
        config: TrainingConfig,
        index: TrainingIndexConfig,
        refresh: RefreshConfig,
        *,
        corpus: Path,
        frozen: int,
    ) -> None:
        """Begin without an index, or continue with the version that the run's checkpoint names.

        Args:
            run: its checkpoints hold the version under ``index``.
            passages: what is indexed, as wordpieces.
            retriever: both towers; the passage tower encodes at most as much of a passage as its ``tower_tokens`` say.
            config: of the recipe.
            index: kind of the index, and actors that embed.
            refresh: when the index is made again.
            corpus: index directory of the passages.
            frozen: steps before the retriever learns; until then the index does not age.
        """
        self.tokenized = passages
        self.corpus = artefacts.read_manifest(corpus, "index").parents["corpus"]
        """Fingerprint of the passages."""
        self.encoded_tokens = 0
        """Tokens of passages that the last ``score`` encoded."""
        self.version: int | None = None
        """Step of the index's weights: what a checkpoint keeps."""
        self._run, self._retriever, self._frozen, self._every = run, retriever, frozen, refresh.refresh_every
        self._requested: int | None = None
        self._mips: Mips | None = None
        self._refresher: IndexRefresher | None = None
        work = config.out / "index"
        work.mkdir(parents=True, exist_ok=True)
        # Only a flat index can be searched on a GPU.
        search_device = config.device if index.kind == IndexKind.FLAT else "cpu"
        settings = RefreshSettings(kind=index.kind, search_device=search_device, max_staleness=refresh.staleness_limit)
        if not parallel.is_first_process():
            self._open = make_version_opener(corpus, work, settings)
            return
        version, step = run.state.extra.get("index"), self._learned_steps
        if index.workers:
            self._refresher = open_ray_refresher(
                corpus, work, settings, workers=index.workers, gpus=config.gpus, version=version, step=step
            )
        else:
            self._refresher = open_blocking_refresher(
                corpus, work, settings, device=config.device, version=version, step=step
            )

    @property
    def store(self) -> PassageStore:
        """The passages."""
        return self.tokenized.store

    @property
    def tokenizer(self) -> TextTokenizer:
        """Tokenizer of the retriever."""
        return self.tokenized.tokenizer

    @property
    def mips(self) -> Mips:
        """Index of the passages' vectors, as it is now."""
        assert self._mips is not None  # ``follow`` comes first
        return self._mips

    @property
    def _learned_steps(self) -> int:
        """Steps that the retriever has learned."""
        return max(0, self._run.step - self._frozen)

    def follow(self) -> int:
        """Start a refresh if one is due, take a finished index into use and log it; return its age in steps."""
        learned = self._learned_steps
        try:
            self._request(learned)
            self._poll(learned)
        except (RefreshFailed, ArtefactError) as error:  # reported once: the index before serves until it is too old
            if self.version is None:
                raise
            self._run.alarm(self._run.step, [str(error)])
            self._poll(learned)
        for swap in self._take_swaps():
            row = {f"swap_{name}": value for name, value in swap.as_dict().items() if name != "step"}
            self._run.log.write(self._run.step, **row)
        return learned - (self.version or 0)

    def _request(self, learned: int) -> None:
        """Hand the passage tower over for the next index, if that is due."""
        is_due = learned == 0 or (self._every is not None and learned % self._every == 0)
        if is_due and learned != self._requested and self._refresher is not None:
            self._requested = learned
            self._refresher.refresh(_PassageTower(self._retriever), learned)

    def _poll(self, step: int) -> None:
        if self._refresher is not None:
            self._mips = self._refresher.poll(step)
            self.version = parallel.broadcast_from_first(self._refresher.version)
            return
        version = parallel.broadcast_from_first(None)
        assert version is not None  # the first process has polled
        if version != self.version:
            self._mips, self.version = self._open(version), version

    def _take_swaps(self) -> list[Swap]:
        if self._refresher is None:
            return []
        swaps = list(self._refresher.log)
        self._refresher.log.clear()
        return swaps

    def keep_saved_versions(self) -> None:
        """Delete the versions that no checkpoint of the run needs any more."""
        if self._refresher is not None:
            self._refresher.keep(self._run.saved_extras("index"))

    def close(self) -> None:
        """Stop refreshing."""
        if self._refresher is not None:
            self._refresher.close()

    def encode(self, tower: Tower, texts: Sequence[str], device: str) -> Tensor:
        """Return the vectors [B, D] of questions by the tower in training, with their gradient."""
        return encode_with_gradient(tower, self.tokenizer, texts, device)

    def propose(self, queries_BD: np.ndarray, k: int) -> np.ndarray:
        """Return the rows [B, K] of the best passages, at most all there are, ``NOT_FOUND`` where fewer were found."""
        return search_rows(self.mips, queries_BD, min(k, self.store.live_count))

    def score(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """Return the scores f(x, z) [B, K] by the live towers, both of which learn from them."""
        limit = self._retriever.passages.max_tokens
        with autocast(query_BD.device):
            score_BK, self.encoded_tokens = score_with_towers(self._retriever, query_BD, rows_BK, self.tokenized, limit)
        return score_BK.masked_fill(torch.from_numpy(rows_BK == NOT_FOUND).to(score_BK.device), IMPOSSIBLE)

    def passages(self, rows: np.ndarray) -> list[Passage]:
        """Return the passages of the rows that were found."""
        return self.store.get([row for row in rows.tolist() if row != NOT_FOUND])


class _PassageTower:
    """The part of a retriever that an index is made with, for the refresher's snapshots."""

    def __init__(self, retriever: DualEncoder) -> None:
        self.save = retriever.save_passages


def score_with_towers(
    retriever: DualEncoder, query_BD: Tensor, rows_BK: np.ndarray, passages: TokenizedPassages, limit: int
) -> tuple[Tensor, int]:
    """Return f(x, z) [B, K] by the live towers, and the number of tokens that were encoded for it.

    Each different passage of the batch is encoded once; row -1 is the empty passage.
    """
    different, place_BK = np.unique(rows_BK, return_inverse=True)
    rows = different.tolist()
    rows += rows[-1:] * (round_up(len(rows)) - len(rows))  # padding to few different shapes; the scores ignore it
    batch = passages.batch(rows, limit).to(query_BD.device)
    vector_PD = retriever.passages(batch.ids_NL, batch.mask_NL)
    place = torch.from_numpy(place_BK.reshape(rows_BK.shape)).to(query_BD.device)
    with torch.autocast(query_BD.device.type, enabled=False):  # bfloat16 would round scores near 100 to halves
        score_BP = query_BD @ vector_PD.T
    return torch.gather(score_BP, 1, place), batch.ids_NL.numel()
