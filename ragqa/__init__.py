"""ragqa: question answering over your documents, with sources. ``Pipeline.load(dir).ask("…")`` answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragqa.errors import ArtefactError as ArtefactError
    from ragqa.errors import BadInput as BadInput
    from ragqa.errors import DamagedArtefact as DamagedArtefact
    from ragqa.errors import Mismatch as Mismatch
    from ragqa.errors import MissingExtra as MissingExtra
    from ragqa.errors import RagqaError as RagqaError
    from ragqa.errors import RemoteError as RemoteError
    from ragqa.pipeline import Pipeline as Pipeline
    from ragqa.types import Answer as Answer
    from ragqa.types import Passage as Passage
    from ragqa.types import Source as Source

__version__ = "0.1.0"
_MODULES = {
    "Pipeline": "ragqa.pipeline",
    **dict.fromkeys(("Answer", "Passage", "Source"), "ragqa.types"),
    **dict.fromkeys(
        ("ArtefactError", "BadInput", "DamagedArtefact", "Mismatch", "MissingExtra", "RagqaError", "RemoteError"),
        "ragqa.errors",
    ),
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import ragqa`` stays fast."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'ragqa' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, imported yet or not."""
    return sorted(__all__)
