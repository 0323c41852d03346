"""Where ragqa keeps what it makes for itself."""

import os
import re
from pathlib import Path

from ragqa.errors import ArtefactError

_HUB = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_URL = re.compile(r"(https?):/{1,2}([^/].*)", re.IGNORECASE)


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/ragqa``, by default ``~/.cache/ragqa``; not necessarily there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragqa"


def weights_dir() -> Path:
    """The encoder and the reader that come with the package."""
    return Path(__file__).parents[1] / "weights"


def demo_dir() -> Path:
    """The articles and the questions of the demo encyclopedia."""
    return Path(__file__).parents[1] / "demo"


def absolute(path: str | Path) -> Path:
    """``path`` from the root and without ``..``, so that a file has the same name wherever it is named from."""
    whole = Path(path).absolute()
    if ".." not in whole.parts:
        return whole
    up = len(whole.parts) - whole.parts[::-1].index("..")
    return Path(*whole.parts[:up]).resolve().joinpath(*whole.parts[up:])


def check_model(name: str | Path) -> None:
    """Raise ArtefactError where ``name`` is neither a directory nor, as text, what the hub could call a model."""
    if not Path(name).is_dir() and (isinstance(name, Path) or not _HUB.fullmatch(name)):
        raise ArtefactError(f"{name}: no such directory")


def as_url(path: object) -> str | None:
    """The URL that ``path`` is, also where ``Path`` has made ``http:/host`` of it; None where it is none."""
    match = _URL.fullmatch(str(path))
    return f"{match[1].lower()}://{match[2].rstrip('/')}" if match else None
