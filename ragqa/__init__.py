"""ragqa: retrieval-augmented question answering. ``Pipeline.load(dir).ask("…")`` answers with sources."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragqa.pipeline import Pipeline as Pipeline

__version__ = "0.1.0"
__all__ = ["Pipeline", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from ragqa.pipeline import Pipeline

        return Pipeline
    raise AttributeError(f"module 'ragqa' has no attribute {name!r}")
