"""Answer questions from your documents, with sources: ``Pipeline.load(dir).ask("…")``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragqa.conversation import Conversation
    from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch, MissingExtra, RagqaError, RemoteError
    from ragqa.pipeline import Pipeline
    from ragqa.retrieval.filters import PassageFilter
    from ragqa.types import Answer, Passage, Source, Statement

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "ArtefactError",
    "BadInput",
    "Conversation",
    "DamagedArtefact",
    "Mismatch",
    "MissingExtra",
    "Passage",
    "PassageFilter",
    "Pipeline",
    "RagqaError",
    "RemoteError",
    "Source",
    "Statement",
    "__version__",
]
_MODULES = {
    "Conversation": "conversation",
    "Pipeline": "pipeline",
    "Answer": "types",
    "Passage": "types",
    "Source": "types",
    "Statement": "types",
    "PassageFilter": "retrieval.filters",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that ``import ragqa`` stays fast."""
    if name in __all__:
        return getattr(import_module(f"ragqa.{_MODULES.get(name, 'errors')}"), name)
    raise AttributeError(f"module 'ragqa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
