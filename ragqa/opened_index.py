"""Open the index that a pipeline searches, with the settings of the pipeline."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.index_threshold import IndexThreshold
from ragqa.pipeline_settings import PipelineSettings
from ragqa.reading.base import RetrieverIdentity
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.live import LiveRetriever, open_retriever
from ragqa.retrieval.registry import DEFAULT_FUSION, RetrieverKind


@dataclass(frozen=True)
class OpenedIndex:
    """Index that a pipeline searches, in a directory or on a server."""

    retriever: Retriever
    origin: str | None
    """Fingerprint of the index before its first update; None if a shard of a served index is missing."""
    description: dict[str, Any]
    """Entries about the index for ``Pipeline.describe``."""
    encoder: str | None = None
    """Fingerprint of the encoder of the index's vectors; None without vectors, and for a served index."""
    threshold: IndexThreshold | None = None
    """Threshold stored in the index directory; None without one, and for a served index."""

    @property
    def identity(self) -> RetrieverIdentity:
        """Identity of the retriever, for readers that depend on the scores of its hits."""
        retriever = self.description["retriever"]
        has_inner_products = RetrieverKind(retriever).has_inner_products
        return RetrieverIdentity(retriever, self.description["encoder"] if has_inner_products else None)


def open_directory(settings: PipelineSettings, device: str) -> OpenedIndex:
    """Open the index in the directory ``settings.index``.

    Args:
        settings: settings of the pipeline.
        device: ``cpu``, ``cuda`` or ``cuda:N`` for torch encoders and vector search.

    Raises:
        ArtefactError, DamagedArtefact, Mismatch, BadInput, MissingExtra: as for ``open_retriever``.
    """
    path = Path(settings.index)
    opened = open_retriever(path, settings.retriever, encoder=settings.encoder, fusion=settings.fusion, device=device)
    with artefacts.report_damage(path):
        return _describe_index(opened, artefacts.peek_manifest(path), settings)


def _describe_index(opened: LiveRetriever, index: artefacts.Manifest, settings: PipelineSettings) -> OpenedIndex:
    retriever = settings.retriever or index.config["retriever"]
    has_vectors = RetrieverKind(retriever).needs_vectors
    description = {
        "retriever": retriever,
        "fusion": (settings.fusion or DEFAULT_FUSION) if RetrieverKind(retriever).can_fuse else None,
        "kind": index.config["kind"] if has_vectors else None,
        "encoder": index.parents["encoder"] if has_vectors else None,
        "index": index.fingerprint,
        "passages": index.config["passages"],
        "corpus": index.parents["corpus"],
        "sources": [Path(source).name for source in index.config["sources"]],
    }
    stored = IndexThreshold.load(Path(settings.index))
    return OpenedIndex(opened, index.origin, description, index.parents.get("encoder"), stored)


def open_served(settings: PipelineSettings) -> OpenedIndex:
    """Open the served index at the URL ``settings.index``.

    Raises:
        BadInput: ``settings`` name an encoder, or another retriever or fusion than the server's, or the URL is invalid.
        RemoteError, Mismatch: as for ``RemoteRetriever.fetch_collection``.
    """
    from ragqa.retrieval.remote import RemoteRetriever

    opened = RemoteRetriever(settings.index)
    served = opened.fetch_collection()
    for name, server_value in {"retriever": served.retriever, "fusion": served.fusion, "encoder": None}.items():
        value = getattr(settings, name)
        if value not in (None, server_value):
            raise BadInput(f"{name} {value}: {settings.index} is searched with its server's own settings; leave it out")
    return OpenedIndex(opened, served.origin, served.describe())
