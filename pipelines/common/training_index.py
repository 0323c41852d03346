"""What open-domain training searches: passages whose vectors stay as they are, and questions whose answers are known.

Legend: B questions, K passages of a beam, N passages, D width.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from index.embed import EmbedConfig, embed
from pipelines.common.answer_rows import AnswerRows
from pipelines.common.retrieval_eval import live_vectors
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.indexing.embed import open_shards
from ragqa.models.span_reader import IMPOSSIBLE
from ragqa.models.tower import Tower
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import Vectors
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND, IndexKind
from ragqa.runtime.encoder import find_tokenizer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.types import Passage, Question

NONE = -1
"""Row where an approximate index found fewer passages than were asked for."""


class Shelf(Protocol):
    """Passages that training searches: a ``Library``, or a ``live_library.LiveLibrary``, whose tower learns, too."""

    @property
    def store(self) -> PassageStore:
        """The passages."""
        ...

    @property
    def corpus(self) -> str:
        """Fingerprint of the passages."""
        ...

    @property
    def tokenizer(self) -> TextTokenizer:
        """Of the retriever."""
        ...

    @property
    def index(self) -> mips.Mips:
        """What proposes them."""
        ...

    def encode(self, tower: Tower, texts: Sequence[str], device: str) -> Tensor:
        """Vectors [B, D] of questions by the live tower."""
        ...

    def propose(self, queries_BD: np.ndarray, beam: int) -> np.ndarray:
        """Rows [B, K] of the best passages, at most all there are, ``NONE`` where fewer were found."""
        ...

    def relevance(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """f(x, z) [B, K] with all the gradient that there is; ``IMPOSSIBLE`` where nothing was found."""
        ...

    def passages(self, rows: np.ndarray) -> list[Passage]:
        """The passages of rows that were found."""
        ...


@dataclass(frozen=True)
class Library:
    """The passages of an index, their vectors, and an index of these; nothing of it changes in training."""

    store: PassageStore
    corpus: str
    """Fingerprint of the passages."""
    tokenizer: TextTokenizer
    """Of the retriever."""
    index: mips.Mips
    vectors: Vectors
    """[N, D]"""

    @classmethod
    def open(
        cls,
        corpus: Path,
        retriever: Path,
        work: Path,
        *,
        kind: str = DEFAULT_KIND,
        workers: int = 0,
        device: str = "cpu",
        progress: Progress = SILENT,
    ) -> "Library":
        """Embed and index the passages of the index directory ``corpus`` under ``work``, unless that was done.

        Args:
            corpus: index directory.
            retriever: directory of a dual encoder, whose tower of passages makes the vectors.
            work: holds ``vectors`` and ``index`` afterwards.
            kind: of the index, see ``ragqa.retrieval.vectors.kinds.IndexKind``.
            workers: Ray actors that embed; 0 embeds here.
            device: where passages are embedded, and an index of kind flat is searched.
            progress: told how far it is.

        Raises:
            BadInput: ``work`` holds the vectors of something else.
            ArtefactError, DamagedArtefact: a directory is not what it should be.
        """
        source = artefacts.read_manifest(corpus, "index")
        store = PassageStore.open(corpus / "passages")
        gpus = device.startswith("cuda")
        embed(
            EmbedConfig(corpus=corpus, out=work / "vectors", encoder=str(retriever), workers=workers, gpus=gpus),
            progress=progress,
        )
        vectors = open_shards(work / "vectors", len(store))
        index = _index(vectors, work / "index", kind, device if kind == IndexKind.FLAT else "cpu", store, progress)
        tokenizer = TextTokenizer(find_tokenizer(str(retriever)))
        return cls(store, source.parents["corpus"], tokenizer, index, vectors)

    @classmethod
    def of(cls, config: Any, progress: Progress = SILENT) -> "Library":
        """That of a recipe's settings, beside its run; one of several processes after the other."""
        with parallel.take_turns():
            return cls.open(
                config.corpus,
                config.retriever,
                config.out,
                kind=config.kind,
                workers=config.workers,
                device=config.device,
                progress=progress,
            )

    def propose(self, queries_BD: np.ndarray, beam: int) -> np.ndarray:
        """Rows [B, K] of the best passages, at most all there are, ``NONE`` where fewer were found."""
        return proposed(self.index, queries_BD, min(beam, self.store.live_count))

    def relevance(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """f(x, z) [B, K]; what carries gradient is the questions' vectors, those of the passages are as stored."""
        stored = np.asarray(self.vectors[np.maximum(rows_BK, 0).ravel()], np.float32)
        passage_BKD = torch.from_numpy(stored).to(query_BD.device).unflatten(0, rows_BK.shape)
        score_BK = (passage_BKD @ query_BD.float().unsqueeze(-1)).squeeze(-1)
        return score_BK.masked_fill(torch.from_numpy(rows_BK == NONE).to(score_BK.device), IMPOSSIBLE)

    def encode(self, tower: Tower, texts: Sequence[str], device: str) -> Tensor:
        """Vectors [B, D] of questions by the live tower."""
        return live_vectors(tower, self.tokenizer, texts, device)

    def passages(self, rows: np.ndarray) -> list[Passage]:
        """The passages of rows that were found."""
        return self.store.get([row for row in rows.tolist() if row != NONE])


def proposed(index: mips.Mips, queries_BD: np.ndarray, beam: int) -> np.ndarray:
    """Rows [B, ``beam``] of what an index finds, best first; ``NONE`` where it found fewer."""
    found = index.search(queries_BD, beam)
    return np.stack([np.pad(each.rows, (0, beam - len(each)), constant_values=NONE) for each in found])


_SEARCH = "search.json"
"""Of an index: its kind, and how far it is searched."""


def _index(
    vectors: Vectors, folder: Path, kind: str, device: str, store: PassageStore, progress: Progress
) -> mips.Mips:
    if not folder.is_dir():
        aside = folder.with_name(f".{folder.name}.writing")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        tuned = mips.build(vectors, kind, aside, progress=progress)
        (aside / _SEARCH).write_text(json.dumps({"kind": kind, "effort": tuned and tuned.as_dict()}))
        aside.rename(folder)
    try:
        made = json.loads((folder / _SEARCH).read_text())
        same = made["kind"] == kind
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise BadInput(f"{folder} is no index of kind {kind} that was made here: choose another directory")
    return mips.open_index(
        folder, kind, effort=mips.Effort.from_manifest(made["effort"]), device=device, deleted=store.deleted
    )


@dataclass(frozen=True)
class Asked:
    """Questions whose answers are known, and where these stand."""

    questions: list[Question]
    numbers: list[int]
    """Of the questions, in ``rows``."""
    rows: AnswerRows

    def __len__(self) -> int:
        return len(self.questions)

    def marks(self, at: int, rows_K: np.ndarray) -> np.ndarray:
        """``[K]`` bool: the passages that hold an answer of a question."""
        return self.rows.marks(self.numbers[at], rows_K)


def open_questions(
    library: Shelf,
    teach: list[Question],
    ask: list[Question],
    cache: Path,
    *,
    regex: bool = False,
    progress: Progress = SILENT,
) -> tuple[Asked, Asked]:
    """Training questions that some passage answers, and held-out ones, answered by a passage or not.

    Args:
        library: the passages.
        teach: training questions; those without an answer in the corpus have no loss, and are left out.
        ask: held-out questions.
        cache: directory of what was found.
        regex: answers are patterns.
        progress: told how far the pass over the corpus is.

    Raises:
        BadInput: no passage answers a training question.
    """
    answers = [question.answers for question in (*teach, *ask)]
    rows = AnswerRows.open(library.store, library.corpus, answers, cache, regex=regex, progress=progress)
    taught = [at for at in range(len(teach)) if len(rows.of(at))]
    if not taught:
        raise BadInput("no passage of the corpus holds an answer of any training question: is it their corpus?")
    return Asked([teach[at] for at in taught], taught, rows), Asked(ask, list(range(len(teach), len(answers))), rows)
