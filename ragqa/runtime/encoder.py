"""Compute vectors of texts with encoders, in ONNX Runtime or torch."""

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.paths import DEFAULT_ENCODER as DEFAULT_ENCODER
from ragqa.artefacts.paths import check_model, get_weights_dir
from ragqa.errors import ArtefactError, BadInput, Mismatch, MissingExtra
from ragqa.runtime.runner import OnnxRunner, Runner, TorchRunner, check_device
from ragqa.runtime.tokens import TextTokenizer

PRECISIONS = ("float32", "bfloat16", "float16")
"""Precisions of torch models, float16 for GPUs only. Exports have the precision ``int8``."""

_OPTIONAL_FILES = (
    "modules.json",
    "1_Pooling/config.json",
    *(f"{part}/{file}" for part in ("2_Dense", "3_LayerNorm") for file in ("config.json", "model.safetensors")),
)
"""Files of a sentence-transformers model that not every model on the hub has."""


class TextEncoder:
    """Encoder of passages and questions; ``load_encoder`` returns one.

    Args:
        passages: runner of the passage tower.
        questions: runner of the question tower, or of the same tower if it is shared.
        tokenizer: tokenizer of both towers.
        config: ``width`` D, ``max_tokens``, ``identity`` and, for two towers, ``question_tokens``.
        precision: one of ``PRECISIONS``, or ``int8``.
    """

    def __init__(
        self, passages: Runner, questions: Runner, tokenizer: TextTokenizer, config: dict[str, Any], precision: str
    ) -> None:
        self._passages, self._questions, self._tokenizer = passages, questions, tokenizer
        self.precision = precision
        """One of ``PRECISIONS``, or ``int8``."""
        self.width: int = config["width"]
        """Length of a vector, D."""
        self.max_tokens: int = config["max_tokens"]
        """Maximum length of a passage in wordpieces, including special tokens; the rest is cut."""
        self.question_tokens: int = config.get("question_tokens", self.max_tokens)
        """Maximum length of a question in wordpieces, including special tokens; the rest is cut."""
        self.fingerprint: str = config["identity"]
        """Digest of weights, settings and tokenizer, which is equal for all engines and precisions."""

    def encode(self, texts: Iterable[str], on_done: Callable[[int], None] | None = None) -> np.ndarray:
        """Return float32 vectors [N, D] of N passages; most encoders scale them to length 1.

        Args:
            texts: passages with their titles, as in ``Passage.titled_text``; each is cut to ``max_tokens``.
            on_done: function called repeatedly with the number of passages encoded so far.
        """
        return self._run(self._passages, texts, self.max_tokens, on_done)

    def encode_questions(self, texts: Iterable[str]) -> np.ndarray:
        """Return float32 vectors [N, D] of N questions, each cut to ``question_tokens``."""
        return self._run(self._questions, texts, self.question_tokens)

    def _run(
        self, runner: Runner, texts: Iterable[str], limit: int, on_done: Callable[[int], None] | None = None
    ) -> np.ndarray:
        inputs = [self._tokenizer.encode_text(text, limit) for text in texts]
        vectors = [outputs[0] for outputs in runner.run(inputs, on_done)]
        return np.stack(vectors).astype(np.float32) if vectors else np.empty((0, self.width), np.float32)


def load_encoder(
    name: str | Path | None = None,
    *,
    device: str = "cpu",
    precision: str | None = None,
    threads: int | None = None,
) -> TextEncoder:
    """Load an encoder from an export (ONNX Runtime) or from its weights (torch).

    Args:
        name: directory of an export or of torch weights, or hub name; None for the encoder of the package.
        device: ``cpu``, ``cuda`` or ``cuda:N`` for torch weights; an export runs in ONNX Runtime on the CPU.
        precision: one of ``PRECISIONS``; by default float32 on a CPU, bfloat16 on a GPU, int8 for an export.
        threads: number of cores to use; by default all for an export, and torch's own setting for torch weights.

    Raises:
        BadInput: the model cannot be run in ``precision`` or on ``device``.
        MissingExtra: torch is needed and not installed.
        ArtefactError, DamagedArtefact: the directory or hub model is not an encoder, or is incomplete.
        Mismatch: the model is one of DPR's two encoders, its two towers differ in width, or a newer version of ragqa
            wrote the export.
    """
    path = get_encoder_path(name)
    if precision not in (None, "int8", *PRECISIONS):
        raise BadInput(f"precision {precision!r}: choose one of {', '.join(PRECISIONS)}")
    if is_export(path):
        if precision not in (None, "int8"):
            raise BadInput(f"encoder '{name}' is exported in 8 bits and cannot run in {precision}: name torch weights")
        with artefacts.report_damage(path):
            return _load_export(path, threads)
    if precision == "int8":
        raise BadInput(f"encoder '{name}' is not exported, so it cannot run in int8")
    if path.exists() and not all((Path(part) / "config.json").is_file() for part in find_towers(str(path))):
        raise ArtefactError(f"{path} is not an encoder: neither {artefacts.MANIFEST} nor config.json is in it")
    check_model(str(name))
    check_device(device)
    return _load_torch(str(name), device, precision or ("float32" if device == "cpu" else "bfloat16"), threads)


def _load_export(path: Path, threads: int | None) -> TextEncoder:
    config = artefacts.read_manifest(path, "encoder").config
    for name in ("width", "max_tokens", *(["question_tokens"] if "question_tokens" in config else [])):
        artefacts.check_count(config[name], name)
    passages = OnnxRunner(path, config, threads)
    has_two_towers = "questions" in config
    questions = OnnxRunner(path / "questions", config["questions"], threads) if has_two_towers else passages
    return TextEncoder(passages, questions, TextTokenizer(path), config, "int8")


def get_encoder_path(name: str | Path | None) -> Path:
    """Return the directory of an encoder; for a hub name, the name as a path.

    Args:
        name: directory or hub name; None and ``default`` stand for the encoder of the package.
    """
    return get_weights_dir() / "encoder" if name is None or name == DEFAULT_ENCODER else Path(name)


def is_export(path: Path) -> bool:
    """Return True if ``path`` is the directory of an exported model."""
    return (path / artefacts.MANIFEST).is_file()


def load_tower(name: str) -> tuple[Any, Path, dict[str, Any]]:
    """Load a tower in torch, in evaluation mode.

    Pooling, projection and normalisation: as for ``Tower.load``.

    Args:
        name: directory of the tower, or hub name, whose files are downloaded.

    Returns:
        The tower, its directory, and its settings: ``width``, ``max_tokens``, ``pooling`` and ``normalise``.

    Raises:
        ArtefactError: there is no such directory or hub model, or the model is not an encoder.
        Mismatch: the model is one of DPR's two encoders.
        MissingExtra: torch or transformers is not installed.
    """
    path = _download(name)
    from ragqa.models.tower import Tower

    tower = Tower.load(path, name).eval()
    settings = {
        "width": tower.width,
        "max_tokens": tower.max_tokens,
        "pooling": tower.pooling,
        "normalise": tower.unit_length,
    }
    return tower, path, settings


def find_tokenizer(name: str) -> Path:
    """Return the directory of an encoder's ``tokenizer.json``, downloaded for a hub name.

    Args:
        name: directory or hub name of the encoder, or ``default``.

    Raises:
        ArtefactError: there is no such directory or hub model.
        MissingExtra: torch or transformers, which the download needs, is not installed.
    """
    path = Path(find_towers(str(get_encoder_path(name)))[0])
    return path if path.is_dir() else _download(name)


def _download(name: str) -> Path:
    """Return a model's directory; for a hub name, download all files but the weights."""
    if Path(name).is_dir():
        return Path(name)
    check_model(name)
    try:
        from transformers.utils.hub import cached_file

        from ragqa.models.pretrained import announce_hub, make_load_error, silence_transformers
    except ImportError as error:
        raise MissingExtra("an encoder by its hub name", "torch") from error
    announce_hub(name)
    try:
        with silence_transformers():
            path = Path(str(cached_file(name, "config.json"))).parent
            cached_file(name, "tokenizer.json")
            for optional in _OPTIONAL_FILES:
                cached_file(name, optional, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        raise make_load_error(name, "encoder", error) from error
    return path


def compute_identity(path: Path, settings: dict[str, Any]) -> str:
    """Return a digest of a tower's weights, tokenizer and settings: 16 hexadecimal digits.

    Args:
        path: directory of the tower.
        settings: settings that ``load_tower`` returned.

    Raises:
        OSError: ``tokenizer.json`` is missing or cannot be read.
    """
    weights = [*sorted(path.glob("*.safetensors")), *sorted(path.glob("[1-9]_*/*.safetensors"))]
    parts = [artefacts.checksum(file) for file in weights]
    parts += [artefacts.checksum(path / "tokenizer.json"), json.dumps(settings, sort_keys=True)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _run_tower(tower: Any, ids: Any, mask: Any, types: Any) -> tuple[Any, ...]:
    # Dropout changes the vectors at each call, even if only one layer is in training mode.
    if any(part.training for part in tower.modules()):
        raise Mismatch("the encoder is in training mode, and dropout would spoil its vectors: call eval() first")
    return (tower(ids, mask),)


def _load_torch(name: str, device: str, precision: str, threads: int | None) -> TextEncoder:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    runners, configs, path = [], [], Path(name)
    for part in find_towers(name):
        tower, path, settings = load_tower(part)
        tower.to(device=device, dtype=getattr(torch, precision))
        runners.append(TorchRunner(partial(_run_tower, tower), device=device))
        configs.append({**settings, "identity": compute_identity(path, settings)})
    return TextEncoder(runners[0], runners[-1], TextTokenizer(path), join_towers(*configs), precision)


def find_towers(name: str) -> list[str]:
    """Return the directories of an encoder's passage tower and question tower, in this order.

    Args:
        name: directory or hub name of the encoder; if the encoder has one shared tower, only ``name`` is returned.
    """
    towers = [Path(name) / part for part in ("passages", "questions")]
    return [str(tower) for tower in towers] if all(tower.is_dir() for tower in towers) else [name]


def join_towers(passages: dict[str, Any], questions: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the configuration of an encoder from the settings of its towers.

    Args:
        passages: settings and ``identity`` of the passage tower.
        questions: settings and ``identity`` of the question tower; None for a shared tower.

    Raises:
        Mismatch: the vectors of the towers differ in width.
    """
    if questions is None:
        return passages
    if passages["width"] != questions["width"]:
        widths = f"{questions['width']} and {passages['width']}"
        raise Mismatch(f"the encoders of questions and passages have vectors of width {widths}: they must be equal")
    identities = passages["identity"] + questions["identity"]
    identity = hashlib.sha256(identities.encode()).hexdigest()[:16]
    return {**passages, "question_tokens": questions["max_tokens"], "identity": identity}
