"""Find the directories that ragqa uses, and check paths, hub names and URLs."""

import os
import re
from ipaddress import ip_address
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from urllib.parse import urlsplit

from ragqa.errors import ArtefactError, BadInput, MissingExtra

DEFAULT_ENCODER = "default"
"""Name of the encoder that ragqa ships, even if the working directory has a folder of this name."""
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_SUFFIXES = (".bin", ".gz", ".index", ".json", ".onnx", ".pipeline", ".pt", ".safetensors")
"""Suffixes of files and directories of models, indexes and pipelines; hub names do not have them."""
_URL = re.compile(r"(https?):/{1,2}([^/].*)", re.IGNORECASE)


def get_cache_dir() -> Path:
    """Return the cache directory, ``$XDG_CACHE_HOME/ragqa`` or ``~/.cache/ragqa``.

    The directory need not exist. A relative ``XDG_CACHE_HOME`` is ignored (XDG Base Directory Specification).
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "ragqa"


def get_weights_dir() -> Path:
    """Return the directory of the encoder and the reader that ragqa ships."""
    return Path(__file__).parents[1] / "weights"


def get_demo_dir() -> Path:
    """Return the directory of the demo's articles and questions."""
    return Path(__file__).parents[1] / "demo"


def suggest_model_folder(path: Path) -> str:
    """Return the end of an error message that names the model in a run's directory.

    Args:
        path: directory that is not a model; if it is not a run's directory either, the result is empty.
    """
    folder = path / "model"
    return f": name the model of the run, {folder}" if (folder / "model.safetensors").is_file() else ""


def make_absolute(path: str | Path) -> Path:
    """Return the absolute form, without ``..``, of a path relative to the working directory."""
    absolute = Path(path).absolute()
    if ".." not in absolute.parts:
        return absolute
    # A symbolic link changes the folder that a later ".." means, so links are resolved up to the last "..". Links after
    # it stay as they are.
    after_up = len(absolute.parts) - absolute.parts[::-1].index("..")
    return Path(*absolute.parts[:after_up]).resolve().joinpath(*absolute.parts[after_up:])


def resolve_input_file(path: Path) -> Path:
    """Return ``path``, or ``os.devnull`` in place of a regular file of size 0.

    Raises:
        BadInput: ``path`` is a pipe, a device or a socket, whose reading might never end.
        OSError: ``path`` is missing or cannot be reached.
    """
    empty = Path(os.devnull)
    if path == empty:
        return path
    state = path.stat()
    if S_ISREG(state.st_mode):
        # Files of /proc have size 0, and reading one of them, such as /proc/kmsg, might never end.
        return path if state.st_size else empty
    if not S_ISDIR(state.st_mode):
        raise BadInput(f"{path} is not a file, but a pipe, a device or a socket: name a file")
    return path


def make_encoder_absolute(name: str) -> str:
    """Return the absolute path of an encoder; return a name that is no path unchanged."""
    return str(Path(name).absolute()) if is_encoder_path(name) else name


def is_encoder_path(name: str) -> bool:
    """Return True if the encoder ``name`` is an existing path.

    ``default`` is never a path, but ``./default`` can be one.
    """
    return name != DEFAULT_ENCODER and Path(name).exists()


def check_model(name: str | Path) -> None:
    """Raise ArtefactError unless ``name`` is a directory, or a string that can be a hub name.

    A mistyped path can have the form of a hub name. A string counts as a path if it is a file, if its parent folder
    exists, or if it ends in a suffix such as ``.index``. The hub must not be asked for a path: without a network this
    takes half a minute, and with a network it tells others the name of a user's folder.
    """
    path = Path(name)
    if path.is_dir():
        return
    if isinstance(name, Path) or path.exists() or not _HUB_NAME.fullmatch(name) or path.suffix in _SUFFIXES:
        raise ArtefactError(f"{name}: no such directory")
    if "/" in name and path.parent.is_dir():
        raise ArtefactError(f"{name}: no such directory in {path.parent}/, which is here, so the hub is not asked")


def find_local_model(name: str) -> str:
    """Return the directory of a model that an artefact names; ``default`` does not change.

    Nothing is downloaded, because an artefact of somebody else could name any model. For a hub name, the result is the
    directory of an earlier download.

    Raises:
        ArtefactError: there is no such directory, or the model was not downloaded.
        MissingExtra: huggingface_hub is not installed.
    """
    if name == DEFAULT_ENCODER or Path(name).is_dir():
        return name
    if not _HUB_NAME.fullmatch(name):
        raise ArtefactError(f"{name}: no such directory")
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError as error:
        raise MissingExtra("a model by its hub name", "torch") from error
    config = try_to_load_from_cache(name, "config.json")
    if not isinstance(config, str):
        raise ArtefactError(
            f"the model {name} is not on this machine, and ragqa downloads only models that you name yourself: "
            f"run hf download {name}"
        )
    return str(Path(config).parent)


def parse_url(path: object) -> str | None:
    """Return ``path`` as an HTTP or HTTPS URL, or None if it is not one.

    The URL has a lower-case scheme, and no slash at its end. ``Path`` turns ``http://`` into ``http:/``; this function
    restores the slash.
    """
    match = _URL.fullmatch(str(path))
    return f"{match[1].lower()}://{match[2].rstrip('/')}" if match else None


def is_loopback_url(url: str) -> bool:
    """Return True if the host of a URL is ``localhost`` or a loopback address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
