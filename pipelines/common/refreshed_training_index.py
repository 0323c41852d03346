"""What training searches where the tower of passages learns, too: an index that follows, and scores by live towers.

Legend: B questions, K passages of a beam, D width.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.common.refreshed_index import LiveIndex
from pipelines.common.retrieval_eval import live_vectors
from pipelines.common.run import Run
from pipelines.common.tokenized_passages import Blocks
from pipelines.common.training_index import NONE, proposed
from pipelines.realm.retrieve import relevance
from ragqa.corpus.store import PassageStore
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.span_reader import IMPOSSIBLE
from ragqa.models.tower import Tower
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.precision import autocast
from ragqa.types import Passage


class LiveLibrary:
    """A ``library.Shelf`` over an index that is made again while training goes on."""

    def __init__(self, live: LiveIndex, blocks: Blocks, retriever: DualEncoder, max_block: int, corpus: str) -> None:
        """``max_block`` wordpieces of a passage are encoded, by the index as well; ``corpus`` is their fingerprint."""
        retriever.passages.config.tower_tokens = max_block
        self._live, self._retriever, self._limit = live, retriever, max_block
        self.blocks, self.corpus = blocks, corpus
        self.encoded = 0
        """Tokens of passages that were encoded for the last ``relevance``."""

    @property
    def store(self) -> PassageStore:
        """See ``library.Shelf``."""
        return self.blocks.store

    @property
    def tokenizer(self) -> TextTokenizer:
        """See ``library.Shelf``."""
        return self.blocks.tokenizer

    @property
    def index(self) -> Mips:
        """As it is now."""
        return self._index

    @property
    def version(self) -> int | None:
        """Of the index: what a checkpoint keeps."""
        return self._live.version

    def follow(self, run: Run) -> int:
        """Refresh the index where that is due and take what is finished into use; steps that it is behind then."""
        self._index, staleness = self._live.follow(run, self._retriever)
        return staleness

    def keep(self, versions: list[int]) -> None:
        """See ``IndexRefresher.keep``."""
        self._live.keep(versions)

    def close(self) -> None:
        """Let go of the index."""
        self._live.close()

    def encode(self, tower: Tower, texts: Sequence[str], device: str) -> Tensor:
        """See ``library.Shelf``."""
        return live_vectors(tower, self.tokenizer, texts, device)

    def propose(self, queries_BD: np.ndarray, beam: int) -> np.ndarray:
        """See ``library.Shelf``."""
        return proposed(self.index, queries_BD, min(beam, self.store.live_count))

    def relevance(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """See ``library.Shelf``: both towers learn from it."""
        with autocast(query_BD.device):
            score_BK, self.encoded = relevance(self._retriever, query_BD, rows_BK, self.blocks, self._limit)
        return score_BK.masked_fill(torch.from_numpy(rows_BK == NONE).to(score_BK.device), IMPOSSIBLE)

    def passages(self, rows: np.ndarray) -> list[Passage]:
        """See ``library.Shelf``."""
        return self.store.get([row for row in rows.tolist() if row != NONE])
