"""Directories that ragqa uses, and checks of paths, hub names and URLs."""

import os
import re
from pathlib import Path

from ragqa.errors import ArtefactError

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_URL = re.compile(r"(https?):/{1,2}([^/].*)", re.IGNORECASE)


def get_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/ragqa``, by default ``~/.cache/ragqa``; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragqa"


def get_weights_dir() -> Path:
    """Return the directory of the encoder and the reader that are shipped with the package."""
    return Path(__file__).parents[1] / "weights"


def get_demo_dir() -> Path:
    """Return the directory of the demo's articles and questions."""
    return Path(__file__).parents[1] / "demo"


def make_absolute(path: str | Path) -> Path:
    """Return ``path`` absolute and without ``..``: the same name from every directory."""
    absolute = Path(path).absolute()
    if ".." not in absolute.parts:
        return absolute
    # Resolve links up to the last "..", which a link changes the meaning of, and keep them after it.
    after_up = len(absolute.parts) - absolute.parts[::-1].index("..")
    return Path(*absolute.parts[:after_up]).resolve().joinpath(*absolute.parts[after_up:])


def check_model(name: str | Path) -> None:
    """Raise ArtefactError unless ``name`` is a directory or, as text, a possible hub name."""
    if not Path(name).is_dir() and (isinstance(name, Path) or not _HUB_NAME.fullmatch(name)):
        raise ArtefactError(f"{name}: no such directory")


def parse_url(path: object) -> str | None:
    """Return the URL in ``path``, mended if ``Path`` took a slash from it, or None."""
    match = _URL.fullmatch(str(path))
    return f"{match[1].lower()}://{match[2].rstrip('/')}" if match else None
