"""Settings of a pipeline: the content of ``pipeline.json``."""

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from ragqa import artefacts
from ragqa.artefacts.paths import find_local_model, is_encoder_path, parse_url
from ragqa.errors import BadInput
from ragqa.reading import registry
from ragqa.reading.base import Decoding


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """Parts and options of a pipeline; None stands for the default of the index or the reader."""

    reader: str | None = None
    """Directory of the reader, or ``KIND:SOURCE``; None for the reader that comes with ragqa."""
    retriever: str | None = None
    """Kind of retriever, a ``RetrieverKind``."""
    encoder: str | None = None
    """Path or hub name of another form of the encoder that made the index."""
    fusion: str | None = None
    """Fusion of scores in a hybrid retriever, a ``Fusion``."""
    k: int | None = None
    """Number of passages to read for a question."""
    decoding: Decoding | None = None
    """Settings with which a generative reader decodes answers."""
    index: str
    """Directory of the index, or the URL of a served index."""
    readers: Mapping[str, str] = field(default_factory=dict)
    """Further readers by their kinds; a user can choose one of them instead of ``reader``."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the settings in the pipeline directory ``folder``; their paths begin with it.

        Raises:
            OSError, ValueError, KeyError, TypeError, AttributeError: ``pipeline.json`` is missing or damaged.
            BadInput: a reader has a kind without a source.
        """
        saved = json.loads((folder / "pipeline.json").read_text())
        values = {field.name: saved[field.name] for field in fields(cls) if field.name in saved}
        if values.get("decoding"):
            values["decoding"] = Decoding(**values["decoding"])
        names = [values.get(name) for name in ("reader", "retriever", "encoder", "fusion")]
        names += [values["index"], *values.get("readers", {}).values()]
        if not all(isinstance(name, str | None) for name in names) or not isinstance(values.get("k"), int | None):
            raise TypeError("the name of a part, or k, is of the wrong type")
        if any("\0" in name for name in names if name):
            raise ValueError("the name of a part holds a zero byte")
        # An encoder can also be a hub name, which unlike the paths of ``to_json`` does not begin with a dot.
        return cls(**values)._relocate_paths(lambda path: str(folder / path), lambda encoder: encoder.startswith("."))

    def to_json(self, folder: Path) -> dict[str, Any]:
        """Return the content of ``pipeline.json`` for the pipeline directory ``folder``.

        Paths are relative to ``folder``, so that the pipeline and its parts can be moved together.
        """

        def to_folder(path: str) -> str:
            return os.path.join(".", os.path.relpath(Path(path).resolve(), folder.resolve()))

        return asdict(self._relocate_paths(to_folder, is_encoder_path))

    def override(
        self, path: object, reader: str | Path | None, readers: Mapping[str, str | Path] | None, **options: Any
    ) -> Self:
        """Return a copy of the settings with other values.

        Args:
            path: path of the pipeline, for error messages.
            reader: new reader, or the kind of a saved or added reader; None keeps the saved reader. A new reader drops
                the saved ``k`` and ``decoding``, which were chosen for the saved reader.
            readers: readers to add by their kinds.
            options: new values of other fields; None keeps the saved value.

        Raises:
            BadInput: a kind is unknown, or the pipeline has no reader of the kind ``reader``.
        """
        if unknown := sorted(set(readers or ()) - set(registry.READERS)):
            raise BadInput(f"readers={{{unknown[0]!r}: …}}: the names are {', '.join(registry.READERS)}")
        by_name = {**self.readers, **{name: str(reader) for name, reader in (readers or {}).items()}}
        settings = replace(self, readers=by_name)
        if reader is not None:
            chosen = registry.resolve_setting(str(reader), by_name, path)
            if chosen != self.reader:
                settings = replace(settings, reader=chosen, k=None, decoding=None)
        return replace(settings, **{name: value for name, value in options.items() if value is not None})

    def find_local_models(self, user_models: Collection[str | None]) -> Self:
        """Return a copy with local paths for hub names, so that opening a model downloads nothing.

        Args:
            user_models: models and readers that the user named, which do not change and may be downloaded.

        Raises:
            ArtefactError: a model is not on this machine, or the server of a chat model is another machine.
            BadInput: a reader has a kind without a source.
            MissingExtra: a hub name cannot be looked up, because huggingface_hub is not installed.
        """
        encoder, reader = self.encoder, self.reader
        if encoder is not None and encoder not in user_models:
            encoder = find_local_model(encoder)
        if reader is not None and reader not in user_models:
            reader = registry.find_local_setting(reader)
        return replace(self, encoder=encoder, reader=reader)

    def _relocate_paths(self, move: Callable[[str], str], is_encoder_path: Callable[[str], bool]) -> Self:
        """Return a copy with ``move`` applied to every path; URLs and hub names do not change."""
        return replace(
            self,
            index=self.index if parse_url(self.index) else move(self.index),
            encoder=move(self.encoder) if self.encoder and is_encoder_path(self.encoder) else self.encoder,
            reader=self.reader and registry.relocate_setting(self.reader, move),
            readers={name: registry.relocate_setting(reader, move) for name, reader in self.readers.items()},
        )


def read_settings(path: str | Path) -> tuple[PipelineSettings, dict[str, str]]:
    """Return the settings of a pipeline, and the fingerprints of its parts.

    Args:
        path: a pipeline directory, an index directory or the URL of a served index.

    Returns:
        The settings, and the fingerprints with which the parts of a pipeline were saved, by the name of the part. For
        an index there are no fingerprints, and only the setting ``index``.

    Raises:
        ArtefactError: the directory does not exist, cannot be read, or is not an artefact.
        DamagedArtefact: a file of the pipeline is missing or damaged.
        BadInput: a reader in the pipeline has a kind without a source.
        Mismatch: a newer version of ragqa wrote the directory.
    """
    if url := parse_url(path):
        return PipelineSettings(index=url), {}
    folder = Path(path)
    if artefacts.peek_manifest(folder).kind != "pipeline":
        return PipelineSettings(index=str(folder)), {}
    parents = artefacts.read_manifest(folder, "pipeline").parents
    with artefacts.report_damage(folder):
        return PipelineSettings.read(folder), parents
