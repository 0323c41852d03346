"""Dense retrieval, which compares vectors of questions and passages by inner products."""

import numpy as np

from ragqa.artefacts.paths import find_local_model
from ragqa.errors import DamagedArtefact, Mismatch
from ragqa.retrieval.base import IndexVersion, Ranking, Rows, Scoring, check_k
from ragqa.retrieval.registry import VECTORS_FOLDER, RetrieverKind
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.exact import search_rows
from ragqa.retrieval.vectors.index_kinds import Effort, IndexKind
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.encoder import TextEncoder, load_encoder


class DenseRanker:
    """Ranker that scores passages by the inner product of question vector and passage vector."""

    def __init__(self, encoder: TextEncoder, mips: Mips) -> None:
        """Combine an encoder of questions and an index of passage vectors.

        Args:
            encoder: encoder of the questions.
            mips: index of the passage vectors of the same encoder.

        Raises:
            Mismatch: the vectors of the encoder and of the index have different widths.
        """
        if encoder.width != mips.width:
            raise Mismatch(f"the encoder's vectors have width {encoder.width}, the vectors of the index {mips.width}")
        self.encoder, self.mips = encoder, mips

    @property
    def scoring(self) -> Scoring:
        """Origin of the scores: inner products of this encoder's vectors."""
        return Scoring(RetrieverKind.DENSE, self.encoder.fingerprint)

    def rank(self, questions: list[str], k: int, rows: Rows | None = None) -> list[Ranking]:
        """Return at most ``k`` rows for each question, best first.

        Arguments: as for ``Ranker.rank``.

        Raises:
            BadInput, DamagedArtefact: as for ``search``.
        """
        check_k(k)
        return self.search(self.encoder.encode_questions(questions), k, rows) if questions else []

    def search(self, queries_BD: np.ndarray, k: int, rows: Rows | None = None) -> list[Ranking]:
        """Return at most ``k`` rows for each query vector, best first.

        Args:
            queries_BD: query vectors [B, D].
            k: maximum number of rows.
            rows: sorted rows to search, by exact search; None for all rows.

        Raises:
            BadInput: ``k`` is less than 1 or more than a GPU returns, or a query is not finite.
            Mismatch: the queries have another width than the vectors.
            DamagedArtefact: a vector is not finite.
        """
        return self.mips.search(queries_BD, k) if rows is None else search_rows(self.mips.vectors, rows, queries_BD, k)


def open_ranker(index: IndexVersion) -> DenseRanker:
    """Open the dense ranker over the vectors of an index.

    Raises:
        Mismatch: the encoder has changed since the index was made, or an earlier ragqa made the index.
        DamagedArtefact: the numbers of vectors and passages differ, or a file is damaged.
        ArtefactError: the encoder is missing or incomplete.
        BadInput: the device is unknown, or the kind of index cannot be searched on it.
        MissingExtra: FAISS, torch or huggingface_hub is needed and not installed.
    """
    encoder = _load_encoder(index)
    path, kind, search = index.path, index.config["kind"], index.config.get("search")
    if kind != IndexKind.FLAT and search is None:
        raise Mismatch(
            f"{path} was made by an earlier ragqa, which stored no search effort for kind {kind}: index again"
        )
    vectors = mips.open_index(
        path / VECTORS_FOLDER,
        kind,
        effort=Effort.from_manifest(search),
        device=index.device,
        deleted=index.passages.deleted,
    )
    if len(vectors) != index.rows:
        raise DamagedArtefact(f"{path} holds {len(vectors)} vectors for {index.rows} passages: make it again")
    return DenseRanker(encoder, vectors)


def _load_encoder(index: IndexVersion) -> TextEncoder:
    name, expected = index.encoder or find_local_model(index.config["encoder"]), index.manifest.parents["encoder"]
    encoder = index.encoders.get(name)
    if encoder is None or encoder.fingerprint != expected:
        encoder = index.encoders[name] = load_encoder(name, device=index.device)
    if encoder.fingerprint != expected:
        raise Mismatch(
            f"{index.path} was made with another encoder ({expected}) than "
            f"{name} is now ({encoder.fingerprint}): index again, or name the encoder that made the index"
        )
    return encoder
