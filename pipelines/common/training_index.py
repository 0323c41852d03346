"""Index that recipes search during training: frozen, or refreshed while its encoder learns.

Legend: B questions, K passages of a question, N passages, P different passages of a batch, D width.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from index.embed import EmbedConfig, embed
from index.refresh import (
    IndexRefresher,
    RefreshSettings,
    make_version_opener,
    open_blocking_refresher,
    open_ray_refresher,
)
from pipelines.common.config import RefreshConfig, TrainingConfig, TrainingIndexConfig
from pipelines.common.examples.spans import IMPOSSIBLE
from pipelines.common.retrieval_eval import tokenize_questions
from pipelines.common.run import Run
from pipelines.common.tokenized_passages import TokenizedPassages
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, BadInput, RefreshFailed
from ragqa.indexing.embed import open_shards
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.inputs import pad_rows, round_up
from ragqa.models.tower import Tower
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import Vectors
from ragqa.retrieval.vectors.index_kinds import Effort, IndexKind
from ragqa.runtime.encoder import find_tokenizer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.precision import autocast
from ragqa.types import Passage

NOT_FOUND = -1
"""Row of a missing passage: an approximate index can find fewer passages than requested."""
_SEARCH = "search.json"
"""Name of the file in a frozen index that holds its kind and its search effort."""


class TrainingIndex:
    """Index of passages that training searches: a ``FrozenIndex`` or a ``RefreshedIndex``."""

    store: PassageStore
    """The passages."""
    corpus_fingerprint: str
    """Fingerprint of the corpus."""
    tokenizer: TextTokenizer
    """Tokenizer of the retriever."""
    mips: mips.Mips
    """Index of vectors in use."""
    version: int | None = None
    """Number of training steps of the retriever that computed the vectors; None for a frozen index."""
    staleness: int = 0
    """Number of training steps of the retriever since ``version``."""
    encoded_tokens: int = 0
    """Number of passage tokens that the last call of ``score`` encoded, including padding."""

    def encode(self, tower: Tower, texts: Sequence[str], device: str) -> Tensor:
        """Return the vectors [B, D] of questions, with gradient.

        Args:
            tower: question tower in training.
            texts: B questions.
            device: device of the tower.
        """
        batch = pad_rows(tokenize_questions(self.tokenizer, texts)).to(device)
        with autocast(device):
            vectors_BD: Tensor = tower(batch.ids_NL, batch.mask_NL)
        return vectors_BD

    def propose(self, queries_BD: np.ndarray, k: int) -> np.ndarray:
        """Return the rows [B, K] of the best passages, best first; ``NOT_FOUND`` if missing.

        Args:
            queries_BD: vectors of B questions.
            k: number of passages K; in a smaller corpus, K is the number of its passages.
        """
        k = min(k, self.store.live_count)
        rankings = self.mips.search(queries_BD, k)
        return np.stack(
            [np.pad(ranking.rows, (0, k - len(ranking)), constant_values=NOT_FOUND) for ranking in rankings]
        )

    def score(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """Return the relevance scores [B, K] of passages, with gradient.

        Args:
            query_BD: vectors of B questions, with gradient.
            rows_BK: rows of the passages; ``NOT_FOUND`` gets the score ``IMPOSSIBLE``.
        """
        score_BK = self._score(query_BD, rows_BK)
        return score_BK.masked_fill(torch.from_numpy(rows_BK == NOT_FOUND).to(score_BK.device), IMPOSSIBLE)

    def passages(self, rows: np.ndarray) -> list[Passage]:
        """Return the passages of rows, in their order and without ``NOT_FOUND``."""
        return self.store.get([row for row in rows.tolist() if row != NOT_FOUND])

    def adopt_newer_index(self) -> None:
        """Take a newer index into use, if there is one; a frozen index never changes."""

    def keep_saved_versions(self) -> None:
        """Delete old index versions that no checkpoint names; a frozen index has no versions."""

    def close(self) -> None:
        """Stop building new indexes."""

    def _score(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """Return the scores [B, K]; the caller replaces the scores of missing passages."""
        raise NotImplementedError


class FrozenIndex(TrainingIndex):
    """Training index with fixed vectors, for recipes that train only the question tower."""

    def __init__(
        self, store: PassageStore, corpus_fingerprint: str, tokenizer: TextTokenizer, index: mips.Mips, vectors: Vectors
    ) -> None:
        """Combine the parts of an index; ``open`` makes or reads them.

        Args:
            store: the passages.
            corpus_fingerprint: fingerprint of the corpus.
            tokenizer: tokenizer of the retriever.
            index: index of ``vectors``.
            vectors: vectors of all passages [N, D].
        """
        self.store, self.corpus_fingerprint, self.tokenizer = store, corpus_fingerprint, tokenizer
        self.mips, self.vectors = index, vectors

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
        """Open the index in the directory of a run; the first call makes the vectors and the index.

        In several processes, the calls run one after the other.

        Args:
            corpus: index directory of the passages.
            retriever: directory of a dual encoder, whose passage tower computes the vectors.
            config: settings of the recipe. The folders ``vectors`` and ``index`` are made in ``out``. Passages are
                embedded on GPUs if ``device`` is cuda. An index of kind flat is searched on ``device``.
            index: kind of the index, and number of actors that embed.
            progress: shows the embedding and the building of the index.

        Raises:
            BadInput: ``config.out`` holds an index of another kind.
            RagqaError: as for ``embed``, ``mips.build`` and ``mips.open_index``.
        """
        with parallel.take_turns():
            source = artefacts.read_manifest(corpus, "index")
            store = PassageStore.open(corpus / "passages")
            work, gpus = config.out / "vectors", config.device.startswith("cuda")
            embedding = EmbedConfig(
                corpus=corpus,
                out=work,
                encoder=str(retriever),
                workers=index.workers,
                gpus=gpus,
                insecure=config.insecure,
            )
            embed(embedding, progress=progress)
            vectors = open_shards(work, len(store))
            opened = _open_mips(
                vectors, config.out / "index", index.kind, _search_device(config, index), store, progress
            )
            tokenizer = TextTokenizer(find_tokenizer(str(retriever)))
            return cls(store, source.parents["corpus"], tokenizer, opened, vectors)

    def _score(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """Return the scores with the stored vectors; the gradient reaches only the questions."""
        stored = np.asarray(self.vectors[np.maximum(rows_BK, 0).ravel()], np.float32)
        passage_BKD = torch.from_numpy(stored).to(query_BD.device).unflatten(0, rows_BK.shape)
        return (passage_BKD @ query_BD.float().unsqueeze(-1)).squeeze(-1)


class RefreshedIndex(TrainingIndex):
    """Training index that is rebuilt while its retriever learns.

    The current weights of both towers compute the scores. The first process refreshes the index, and all processes use
    the same version at each step.
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
        """Start without an index, or continue with the version that the run's checkpoint names.

        Args:
            run: run whose checkpoints store the version under ``index``.
            passages: wordpieces of the passages.
            retriever: dual encoder in training.
            config: settings of the recipe.
            index: kind of the index, and number of actors that embed.
            refresh: schedule of the refreshes.
            corpus: index directory of the passages.
            frozen: number of steps before the retriever learns, in which the index does not age.

        Raises:
            BadInput, Mismatch, ArtefactError, DamagedArtefact, MissingExtra: as for ``open_ray_refresher``.
        """
        self.tokenized, self.store, self.tokenizer = passages, passages.store, passages.tokenizer
        self.corpus_fingerprint = read_corpus_fingerprint(corpus)
        self._run, self._retriever, self._frozen, self._every = run, retriever, frozen, refresh.refresh_every
        self._requested: int | None = None
        self._refresher: IndexRefresher | None = None
        work = config.out / "index"
        work.mkdir(parents=True, exist_ok=True)
        settings = RefreshSettings(
            kind=index.kind, search_device=_search_device(config, index), max_staleness=refresh.staleness_limit
        )
        version, step = run.state.extra.get("index"), self._learned_steps
        if not parallel.is_first_process():
            self._open = make_version_opener(corpus, work, settings)
        elif index.workers:
            self._refresher = open_ray_refresher(
                corpus,
                work,
                settings,
                workers=index.workers,
                gpus=config.gpus,
                insecure=config.insecure,
                version=version,
                step=step,
            )
        else:
            self._refresher = open_blocking_refresher(
                corpus, work, settings, device=config.device, version=version, step=step
            )

    @property
    def _learned_steps(self) -> int:
        return max(0, self._run.step - self._frozen)

    def adopt_newer_index(self) -> None:
        """Start a refresh if one is due, and take a finished index into use.

        Each process waits while the index is too old. If a refresh fails, the run sends an alarm, and the old index
        stays in use until it is too old.

        Raises:
            RefreshFailed, ArtefactError: the first index could not be built, or another process cannot open a new one.
            StaleIndex: the index is too old, and no newer index is being built.
            BadInput: the directory of the index has other weights of this step, or weights of a later step.
        """
        learned = self._learned_steps
        try:
            self._request(learned)
            self._poll(learned)
        except (RefreshFailed, ArtefactError) as error:  # raised once; the old index serves until it is too old
            if self.version is None or self._refresher is None:  # other processes only open what the first has made
                raise
            self._run.alarm(self._run.step, [str(error)])
            self._poll(learned)
        if self._refresher is not None:
            for swap in self._refresher.log:
                row = {f"swap_{name}": value for name, value in swap.as_dict().items() if name != "step"}
                self._run.log.write(self._run.step, **row)
            self._refresher.log.clear()
        self.staleness = learned - (self.version or 0)

    def _request(self, learned: int) -> None:
        is_due = learned == 0 or (self._every is not None and learned % self._every == 0)
        if is_due and learned != self._requested and self._refresher is not None:
            self._requested = learned
            self._refresher.refresh(_PassageTower(self._retriever), learned)

    def _poll(self, step: int) -> None:
        if self._refresher is not None:
            self.mips = self._refresher.poll(step)
            self.version = parallel.broadcast_from_first(self._refresher.version)
            return
        version = parallel.broadcast_from_first(None)
        assert version is not None  # the first process has polled
        if version != self.version:
            self.mips, self.version = self._open(version), version

    def keep_saved_versions(self) -> None:
        """Delete old index versions that no checkpoint names."""
        if self._refresher is not None:
            self._refresher.keep(self._run.saved_extras("index"))

    def close(self) -> None:
        """Stop refreshing the index."""
        if self._refresher is not None:
            self._refresher.close()

    def _score(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """Return the scores by both towers; the gradient reaches both."""
        limit = self._retriever.passages.max_tokens
        with autocast(query_BD.device):
            score_BK, self.encoded_tokens = score_with_towers(self._retriever, query_BD, rows_BK, self.tokenized, limit)
        return score_BK


class _PassageTower:
    """Passage tower of a dual encoder, in the form that the refresher saves."""

    def __init__(self, retriever: DualEncoder) -> None:
        self.save = retriever.save_passages


def score_with_towers(
    retriever: DualEncoder, query_BD: Tensor, rows_BK: np.ndarray, passages: TokenizedPassages, limit: int
) -> tuple[Tensor, int]:
    """Return relevance scores [B, K] by the passage tower, and the number of encoded tokens.

    A passage that occurs several times in the batch is encoded once. The tokens include padding.

    Args:
        retriever: dual encoder in training.
        query_BD: vectors of B questions.
        rows_BK: rows of the passages; -1 is the null passage, which is empty.
        passages: wordpieces of the passages.
        limit: largest length of a passage in wordpieces, including [CLS] and [SEP].
    """
    different, place_BK = np.unique(rows_BK, return_inverse=True)
    rows = different.tolist()
    # Padding to one of few shapes, because a CPU compiles kernels for each new shape. No score uses the padding.
    rows += rows[-1:] * (round_up(len(rows)) - len(rows))
    batch = passages.batch(rows, limit).to(query_BD.device)
    vector_PD = retriever.passages(batch.ids_NL, batch.mask_NL)
    place = torch.from_numpy(place_BK.reshape(rows_BK.shape)).to(query_BD.device)
    with torch.autocast(query_BD.device.type, enabled=False):  # because bfloat16 would round scores near 100 to halves
        score_BP = query_BD @ vector_PD.T
    return torch.gather(score_BP, 1, place), batch.ids_NL.numel()


def _search_device(config: TrainingConfig, index: TrainingIndexConfig) -> str:
    return config.device if index.kind == IndexKind.FLAT else "cpu"  # only flat can be searched on a GPU


def _open_mips(
    vectors: Vectors, folder: Path, kind: str, device: str, store: PassageStore, progress: Progress
) -> mips.Mips:
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
        raise BadInput(f"{folder} is not a training index of kind {kind}: choose another directory")
    effort = Effort.from_manifest(search["effort"])
    return mips.open_index(folder, kind, effort=effort, device=device, deleted=store.deleted)


def read_corpus_fingerprint(index: Path) -> str:
    """Return the fingerprint of an index's corpus; errors are as for ``read_manifest``."""
    return artefacts.read_manifest(index, "index").parents["corpus"]


def check_corpus_size(index: Path, k: int, option: str) -> None:
    """Check that an index directory has at least ``k`` passages.

    Args:
        index: index directory.
        k: number of passages to read per question.
        option: name of the option that sets ``k``, for the error message.

    Raises:
        BadInput: there are fewer passages.
        ArtefactError, DamagedArtefact: ``index`` is not an index, or is damaged.
    """
    artefacts.read_manifest(index, "index")
    if (count := PassageStore.open(index / "passages").live_count) < k:
        raise BadInput(f"{index} has only {count} passages, but {k} are to be read: lower {option}")
