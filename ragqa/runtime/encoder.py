"""Text encoders: texts in, vectors out, by whichever engine runs them."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.paths import check_model, weights_dir
from ragqa.errors import ArtefactError, BadInput, Mismatch, MissingExtra
from ragqa.runtime.runner import OnnxRunner, Runner, TorchRunner, check_device
from ragqa.runtime.tokens import TextTokenizer

DEFAULT = "default"
"""Name of the encoder that comes with the package."""
PRECISIONS = ("float32", "bfloat16", "float16")
"""What a model can be run in by torch; float16 on a GPU only. An export runs in ``int8``."""


_MODULES = (
    "modules.json",
    "1_Pooling/config.json",
    *(f"{part}/{file}" for part in ("2_Dense", "3_LayerNorm") for file in ("config.json", "model.safetensors")),
)
"""Of a sentence-transformers model on the hub, where it has them."""


class TextEncoder:
    """Texts to vectors; ``load_encoder`` makes one."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: TextTokenizer,
        config: dict[str, Any],
        precision: str,
        questions: Runner | None = None,
    ) -> None:
        """``runner`` encodes passages, and questions too where nothing else does."""
        self._passages, self._questions, self._tokenizer = runner, questions or runner, tokenizer
        self.precision = precision
        """One of ``PRECISIONS``, or ``int8``."""
        self.width: int = config["width"]
        """Length of a vector, D."""
        self.max_tokens: int = config["max_tokens"]
        """Wordpieces of a passage that are read; the rest is cut."""
        self.question_tokens: int = config.get("question_tokens", self.max_tokens)
        """The same of a question."""
        self.fingerprint: str = config["identity"]
        """Same for the same weights, pooling and tokenizer, whatever engine or precision runs them."""

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Vectors ``[N, D]`` float32 of N passages, unit length where the model normalises (most do)."""
        return self._run(self._passages, texts, self.max_tokens)

    def encode_questions(self, texts: Iterable[str]) -> np.ndarray:
        """Vectors ``[N, D]`` float32 of N questions: another tower's, where the encoder has two."""
        return self._run(self._questions, texts, self.question_tokens)

    def _run(self, runner: Runner, texts: Iterable[str], limit: int) -> np.ndarray:
        inputs = [self._tokenizer.text_input(text, limit) for text in texts]
        vectors = [outputs[0] for outputs in runner.run(inputs)]
        return np.stack(vectors).astype(np.float32) if vectors else np.empty((0, self.width), np.float32)


def load_encoder(
    name: str | Path | None = None,
    *,
    device: str = "cpu",
    precision: str | None = None,
    threads: int | None = None,
) -> TextEncoder:
    """The encoder ``name``: an export, a Hugging Face directory, or a hub name.

    None is the one that comes with the package. An export runs in ONNX Runtime on the CPU, whatever
    ``device`` says; everything else runs in torch, which the extra ``torch`` brings, on ``device``.

    Args:
        name: see above.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        precision: one of ``PRECISIONS``; by default float32 on a CPU, bfloat16 on a GPU, int8 for an export.
        threads: cores that one encoder may take; by default all there are (torch: what it is set to).

    Raises:
        BadInput: such a model cannot be run in ``precision``.
        MissingExtra: torch is needed and not there.
        ArtefactError, DamagedArtefact: the directory is no encoder, or not whole.
    """
    path = encoder_path(name)
    if precision not in (None, "int8", *PRECISIONS):
        raise BadInput(f"precision {precision!r}: one of {', '.join(PRECISIONS)} is needed")
    if is_export(path):
        if precision not in (None, "int8"):
            raise BadInput(
                f"encoder '{name}' is exported in 8 bits and cannot be run in {precision}: name torch weights"
            )
        config = artefacts.read_manifest(path, "encoder").config
        asked = OnnxRunner(path / "questions", config["questions"], threads) if "questions" in config else None
        return TextEncoder(OnnxRunner(path, config, threads), TextTokenizer(path), config, "int8", asked)
    if precision == "int8":
        raise BadInput(f"encoder '{name}' is not exported: it cannot be run in int8")
    if path.exists() and not all((Path(part) / "config.json").is_file() for part in towers(str(path))):
        raise ArtefactError(f"{path} is not an encoder: neither {artefacts.MANIFEST} nor config.json is in it")
    check_model(str(name))
    check_device(device)
    return _load_torch(str(name), device, precision or ("float32" if device == "cpu" else "bfloat16"), threads)


def encoder_path(name: str | Path | None) -> Path:
    """The directory that ``name`` stands for; a hub name stands for none that exists."""
    return weights_dir() / "encoder" if name is None or name == DEFAULT else Path(name)


def is_export(path: Path) -> bool:
    """Whether ``path`` is an exported model."""
    return (path / artefacts.MANIFEST).is_file()


def torch_encoder(name: str) -> tuple[Any, Path, dict[str, Any]]:
    """A torch function (ids, mask, types) -> (vectors,), the directory it came from, its settings.

    Pooling, projection and normalisation are those of a sentence-transformers directory; a plain encoder
    is pooled by the mean and normalised.
    """
    path = _downloaded(name)
    from ragqa.models.tower import Tower

    tower = Tower.load(path, name).eval()
    settings = {
        "width": tower.width,
        "max_tokens": tower.max_tokens,
        "pooling": tower.pooling,
        "normalise": tower.unit_length,
    }
    return _Vectors(tower), path, settings


def tokenizer_folder(name: str) -> Path:
    """The directory with the ``tokenizer.json`` of an encoder, downloaded if ``name`` is one of the hub's."""
    path = Path(towers(str(encoder_path(name)))[0])
    return path if path.is_dir() else _downloaded(name)


def _downloaded(name: str) -> Path:
    """The directory ``name``, or that of the hub's model with all that is read of it but the weights."""
    if Path(name).is_dir():
        return Path(name)
    try:
        from transformers.utils.hub import cached_file

        from ragqa.models.pretrained import silence_transformers
    except ImportError as error:
        raise MissingExtra("an encoder by its hub name", "torch") from error
    try:
        with silence_transformers():
            path = Path(str(cached_file(name, "config.json"))).parent
            cached_file(name, "tokenizer.json")
            for optional in _MODULES:
                cached_file(name, optional, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ArtefactError(f"{name}: no such directory, and no such model to download: {reason}") from error
    return path


def identity(path: Path, settings: dict[str, Any]) -> str:
    """16 hex digits for the weights, the tokenizer and the settings."""
    weights = [*sorted(path.glob("*.safetensors")), *sorted(path.glob("[1-9]_*/*.safetensors"))]
    parts = [artefacts.checksum(file) for file in weights]
    parts += [artefacts.checksum(path / "tokenizer.json"), json.dumps(settings, sort_keys=True)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


class _Vectors:
    """A tower, called with ids, mask, types."""

    def __init__(self, tower: Any) -> None:
        self.model = tower

    def __call__(self, ids: Any, mask: Any, types: Any) -> tuple[Any, ...]:
        # Dropout would make other vectors each time; one forgotten layer is enough.
        if any(part.training for part in self.model.modules()):
            raise Mismatch("the encoder is in training mode, and dropout would spoil its vectors: call eval() first")
        return (self.model(ids, mask),)


def _load_torch(name: str, device: str, precision: str, threads: int | None) -> TextEncoder:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    runners, path, config = [], Path(name), dict[str, Any]()
    for part in towers(name):
        function, path, settings = torch_encoder(part)
        function.model.to(device=device, dtype=getattr(torch, precision))
        runners.append(TorchRunner(function, device=device))
        config = joined(config, {**settings, "identity": identity(path, settings)})
    return TextEncoder(runners[0], TextTokenizer(path), config, precision, runners[-1])


def towers(name: str) -> list[str]:
    """The directories of passages' and questions' towers; just ``name`` where one does both."""
    two = [Path(name) / part for part in ("passages", "questions")]
    return [str(part) for part in two] if all(part.is_dir() for part in two) else [name]


def joined(passages: dict[str, Any], questions: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an encoder with two towers; each alone is one of one.

    Raises:
        Mismatch: their vectors do not compare.
    """
    if not passages:
        return questions
    if passages["width"] != questions["width"]:
        widths = f"{questions['width']} and {passages['width']}"
        raise Mismatch(f"the towers of questions and passages have vectors of width {widths}: they must be alike")
    both = passages["identity"] + questions["identity"]
    identity = hashlib.sha256(both.encode()).hexdigest()[:16]
    return {**passages, "question_tokens": questions["max_tokens"], "identity": identity}
