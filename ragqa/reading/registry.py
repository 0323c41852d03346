"""Registry of reader kinds, and functions that open a reader from its setting.

To add a reader, write its file with a class whose ``load`` takes the arguments of ``ExtractiveReader.load``, and add
one entry to ``READERS``.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ragqa.artefacts.paths import find_local_model, is_loopback_url, parse_url
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.generation.generator_kinds import GeneratorKind

if TYPE_CHECKING:
    from ragqa.reading.base import Decoding, Reader, RetrieverIdentity

SPAN, CHAT = "span", "chat"
"""Reader kinds besides generators in torch: span readers, and language models on a server or in a file."""
_GENERATIVE = "ragqa.reading.generative:GenerativeReader"
READERS: dict[str, str] = {
    SPAN: "ragqa.reading.span:ExtractiveReader",
    CHAT: "ragqa.reading.chat.reader:ChatReader",
    **dict.fromkeys(GeneratorKind, _GENERATIVE),
}
"""Import path of the class of each reader kind, so that this module imports no reader."""


def open_reader(
    setting: str | None,
    *,
    decoding: "Decoding | None" = None,
    device: str = "cpu",
    scored_by: "RetrieverIdentity | None" = None,
) -> "Reader":
    """Open the reader that a setting names.

    Args:
        setting: directory of a reader, ``KIND:SOURCE`` for a model (directory or hub name) to use as that kind, or
            None for the reader of the package. For ``chat``, the source is ``URL#MODEL`` or a GGUF file.
        decoding: settings of a generative reader; None for its defaults.
        device: ``cpu``, ``cuda`` or ``cuda:N`` for torch models and GGUF files.
        scored_by: retriever that scores the hits; None for the retriever used in training.

    Raises:
        ArtefactError, DamagedArtefact: there is no reader, or it is incomplete.
        Mismatch: a tokenizer or a shared encoder has changed since the reader was saved.
        BadInput: the setting has no source, or names a plain seq2seq without a kind; torch does not see the device;
            ``decoding`` is set for a span reader or out of range; or the URL or key of a server cannot be used.
        MissingExtra: the extra that the reader needs is not installed.
    """
    kind, source = split_setting(setting)
    name = READERS[kind or SPAN]
    if kind is None and source and is_generator(Path(source)):
        name = _GENERATIVE  # its directory names the kind
    reader: Reader = resolve_name(name).load(source, kind, decoding=decoding, device=device, scored_by=scored_by)
    return reader


def split_setting(setting: str | None) -> tuple[str | None, str | None]:
    """Split a reader setting into its kind and its source.

    Returns:
        The kind, which is None if the setting names none, and the source, which is None without a setting.

    Raises:
        BadInput: there is a kind, but no source after the colon.
    """
    kind, colon, source = (setting or "").partition(":")
    if colon and kind in READERS:
        if not source:
            wanted = "a server and its model, or a GGUF file," if kind == CHAT else "the directory of the model"
            raise BadInput(f"--reader {setting}: name {wanted} after the colon")
        return kind, source
    return None, setting


def relocate_setting(setting: str, relocate: Callable[[str], str]) -> str:
    """Return a reader setting with another path; hub names and URLs do not change.

    Args:
        setting: setting of a reader, as for ``open_reader``.
        relocate: function from the path in the setting to the new path.

    Raises:
        BadInput: there is a kind, but no source after the colon.
    """
    kind, source = split_setting(setting)
    assert source is not None
    if kind is None:
        return relocate(source)
    return f"{kind}:{relocate(source) if source.startswith('.') or Path(source).exists() else source}"


def find_local_setting(setting: str) -> str:
    """Replace a hub name in a reader setting by the directory of the model on this machine.

    Nothing is downloaded.

    Raises:
        ArtefactError, MissingExtra: as for ``find_local_model``, or the setting names a server on another machine.
        BadInput: there is a kind, but no source after the colon.
    """
    kind, source = split_setting(setting)
    if kind == CHAT and source:
        url = parse_url(source.partition("#")[0])
        if url and not is_loopback_url(url):
            # A pipeline of others must not send questions and passages to a server that the user has not named.
            raise ArtefactError(f"the pipeline would send your questions to {url}: to allow it, add --reader {setting}")
        return setting
    return setting if kind is None or source is None else f"{kind}:{find_local_model(source)}"


def is_generator(path: Path) -> bool:
    """Return True if a directory contains a seq2seq model of ragqa or of transformers."""
    if (path / "generator.json").is_file():
        return True
    try:
        config = json.loads((path / "config.json").read_text())
        return bool(config.get("is_encoder_decoder")) or config.get("model_type") == "rag"
    except (OSError, ValueError, AttributeError):
        return False


def resolve_setting(name: str, readers: Mapping[str, str], owner: object) -> str:
    """Return the setting of a pipeline's reader by its name; return a setting unchanged.

    Args:
        name: name of a reader in the pipeline, or a setting as for ``open_reader``.
        readers: settings of the pipeline's readers by their names.
        owner: path of the pipeline, for messages.

    Raises:
        BadInput: the pipeline has no reader of that name.
    """
    if name in readers:
        return readers[name]
    if name in READERS:
        hint = (
            f"it has {', '.join(readers)}"
            if readers
            else f"give a directory, or {name}:{'URL#MODEL' if name == CHAT else 'DIRECTORY'}"
        )
        raise BadInput(f"--reader {name}: {owner} names no such reader; {hint}")
    if readers and ":" not in name and not Path(name).exists():
        raise BadInput(f"--reader {name}: {owner} has {', '.join(readers)}, and no such directory is there")
    return name
