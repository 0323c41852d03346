"""Where ragqa keeps what it makes for itself."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/ragqa``, by default ``~/.cache/ragqa``; not necessarily there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragqa"


def weights_dir() -> Path:
    """The encoder and the reader that come with the package."""
    return Path(__file__).parent / "weights"


def demo_dir() -> Path:
    """The articles and the questions of the demo encyclopedia."""
    return Path(__file__).parent / "demo"
