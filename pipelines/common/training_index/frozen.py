"""A training index whose vectors stay as they are: only the question tower learns.

Legend: B questions, K passages of a question, N passages, D width.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from index.embed import EmbedConfig, embed
from pipelines.common.config import TrainingConfig, TrainingIndexConfig
from pipelines.common.retrieval_eval import encode_with_gradient
from pipelines.common.training_index.base import NOT_FOUND, search_rows
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.indexing.embed import open_shards
from ragqa.models.span_readers import IMPOSSIBLE
from ragqa.models.tower import Tower
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import Vectors
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.runtime.encoder import find_tokenizer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.types import Passage

_SEARCH = "search.json"
"""File of an index: its kind, and how thoroughly it is searched."""


@dataclass(frozen=True)
class FrozenIndex:
    """Passages of an index directory, their vectors by a retriever, and an index of these."""

    store: PassageStore
    corpus: str
    """Fingerprint of the passages."""
    tokenizer: TextTokenizer
    """Tokenizer of the retriever."""
    mips: mips.Mips
    vectors: Vectors
    """Vectors [N, D] of the passages."""

    @classmethod
    def open(
        cls,
        corpus: Path,
        retriever: Path,
        config: TrainingConfig,
        index: TrainingIndexConfig,
        *,
        progress: Progress = SILENT,
    ) -> "FrozenIndex":
        """Embed and index the passages, unless that is done; one of several processes after the other.

        Args:
            corpus: index directory of the passages.
            retriever: directory of a dual encoder, whose passage tower makes the vectors.
            config: of the recipe: ``out`` holds ``vectors`` and ``index`` afterwards, ``device`` embeds passages and
                searches an index of kind flat.
            index: kind of the index, and actors that embed.
            progress: shows the embedding.

        Raises:
            BadInput: ``config.out`` holds the vectors of something else.
            ArtefactError, DamagedArtefact: a directory is not what it should be.
        """
        with parallel.take_turns():
            source = artefacts.read_manifest(corpus, "index")
            store = PassageStore.open(corpus / "passages")
            work, gpus = config.out / "vectors", config.device.startswith("cuda")
            embed(
                EmbedConfig(corpus=corpus, out=work, encoder=str(retriever), workers=index.workers, gpus=gpus),
                progress=progress,
            )
            vectors = open_shards(work, len(store))
            device = config.device if index.kind == IndexKind.FLAT else "cpu"  # other kinds do not search on GPUs
            found = _open_mips(vectors, config.out / "index", index.kind, device, store, progress)
            tokenizer = TextTokenizer(find_tokenizer(str(retriever)))
            return cls(store, source.parents["corpus"], tokenizer, found, vectors)

    def propose(self, queries_BD: np.ndarray, k: int) -> np.ndarray:
        """Return the rows [B, K] of the best passages, at most all there are, ``NOT_FOUND`` where fewer were found."""
        return search_rows(self.mips, queries_BD, min(k, self.store.live_count))

    def score(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """Return the scores f(x, z) [B, K]; the questions' vectors carry gradient, the passages' are as stored."""
        stored = np.asarray(self.vectors[np.maximum(rows_BK, 0).ravel()], np.float32)
        passage_BKD = torch.from_numpy(stored).to(query_BD.device).unflatten(0, rows_BK.shape)
        score_BK = (passage_BKD @ query_BD.float().unsqueeze(-1)).squeeze(-1)
        return score_BK.masked_fill(torch.from_numpy(rows_BK == NOT_FOUND).to(score_BK.device), IMPOSSIBLE)

    def encode(self, tower: Tower, texts: Sequence[str], device: str) -> Tensor:
        """Return the vectors [B, D] of questions by the tower in training, with their gradient."""
        return encode_with_gradient(tower, self.tokenizer, texts, device)

    def passages(self, rows: np.ndarray) -> list[Passage]:
        """Return the passages of the rows that were found."""
        return self.store.get([row for row in rows.tolist() if row != NOT_FOUND])


def _open_mips(
    vectors: Vectors, folder: Path, kind: str, device: str, store: PassageStore, progress: Progress
) -> mips.Mips:
    """Open the index in ``folder``, built if it is not there."""
    if not folder.is_dir():
        with artefacts.create_directory(folder) as temporary:
            tuned = mips.build(vectors, kind, temporary, progress=progress)
            (temporary / _SEARCH).write_text(json.dumps({"kind": kind, "effort": tuned and tuned.as_dict()}))
    try:
        search = json.loads((folder / _SEARCH).read_text())
        is_same = search["kind"] == kind
    except (OSError, ValueError, KeyError, TypeError):
        is_same = False
    if not is_same:
        raise BadInput(f"{folder} is no index of kind {kind} that was made here: choose another directory")
    effort = mips.Effort.from_manifest(search["effort"])
    return mips.open_index(folder, kind, effort=effort, device=device, deleted=store.deleted)
