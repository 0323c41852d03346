"""Text encoders: texts in, vectors out, by whichever engine runs them."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefact
from ragqa.errors import ArtefactError, BadInput, Mismatch, MissingExtra
from ragqa.paths import weights_dir
from ragqa.runtime.runner import OnnxRunner, Runner, TorchRunner, check_device
from ragqa.runtime.tokens import TextTokenizer

DEFAULT = "default"
"""Name of the encoder that comes with the package."""
PRECISIONS = ("float32", "bfloat16", "float16")
"""What a model can be run in by torch; float16 on a GPU only. An export runs in ``int8``."""


class TextEncoder:
    """Texts to vectors; ``load_encoder`` makes one."""

    def __init__(self, runner: Runner, tokenizer: TextTokenizer, config: dict[str, Any], precision: str) -> None:
        self._runner, self._tokenizer = runner, tokenizer
        self.precision = precision
        """One of ``PRECISIONS``, or ``int8``."""
        self.width: int = config["width"]
        """Length of a vector, D."""
        self.max_tokens: int = config["max_tokens"]
        """Wordpieces of a text that are read; the rest is cut."""
        self.fingerprint: str = config["identity"]
        """Same for the same weights, pooling and tokenizer, whatever engine or precision runs them."""

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Vectors ``[N, D]`` float32 of N texts, unit length where the model normalises (most do)."""
        inputs = [self._tokenizer.text_input(text, self.max_tokens) for text in texts]
        vectors = [outputs[0] for outputs in self._runner.run(inputs)]
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
        config = artefact.read(path, "encoder").config
        return TextEncoder(OnnxRunner(path, config, threads), TextTokenizer(path), config, "int8")
    if precision == "int8":
        raise BadInput(f"encoder '{name}' is not exported: it cannot be run in int8")
    if path.exists() and not (path / "config.json").is_file():
        raise ArtefactError(f"{path} is not an encoder: neither {artefact.MANIFEST} nor config.json is in it")
    if not path.exists() and (path.is_absolute() or str(name).startswith(".")):
        raise ArtefactError(f"{path}: no such directory")  # and no hub's name for one
    check_device(device)
    return _load_torch(str(name), device, precision or ("float32" if device == "cpu" else "bfloat16"), threads)


def encoder_path(name: str | Path | None) -> Path:
    """The directory that ``name`` stands for; a hub name stands for none that exists."""
    return weights_dir() / "encoder" if name is None or name == DEFAULT else Path(name)


def is_export(path: Path) -> bool:
    """Whether ``path`` is an exported model."""
    return (path / artefact.MANIFEST).is_file()


def torch_encoder(name: str) -> tuple[Any, Path, dict[str, Any]]:
    """A torch function (ids, mask, types) -> (vectors,), the directory it came from, its settings.

    Pooling and normalisation are those of a sentence-transformers directory; a plain encoder
    is pooled by the mean and normalised.
    """
    try:
        from transformers import AutoModel
    except ImportError as error:
        raise MissingExtra("an encoder that is not exported", "torch") from error
    path = _downloaded(name)
    try:
        model = AutoModel.from_pretrained(name, use_safetensors=True, attn_implementation="eager")
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ArtefactError(f"{name} is not an encoder that can be loaded: {reason}") from error
    model.eval()
    pooling, normalise = _pooling(path)
    settings = {
        "width": model.config.hidden_size,
        "max_tokens": min(512, getattr(model.config, "max_position_embeddings", 512)),
        "pooling": pooling,
        "normalise": normalise,
    }
    return _Pooled(model, pooling, normalise), path, settings


def tokenizer_folder(name: str) -> Path:
    """The directory with the ``tokenizer.json`` of an encoder, downloaded if ``name`` is one of the hub's."""
    path = encoder_path(name)
    return path if path.is_dir() else _downloaded(name)


def _downloaded(name: str) -> Path:
    """The directory ``name``, or that of the hub's model with all that is read of it but the weights."""
    if Path(name).is_dir():
        return Path(name)
    try:
        from transformers.utils.hub import cached_file
    except ImportError as error:
        raise MissingExtra("an encoder by its hub name", "torch") from error
    try:
        path = Path(str(cached_file(name, "config.json"))).parent
        cached_file(name, "tokenizer.json")
        for optional in ("modules.json", "1_Pooling/config.json"):
            cached_file(name, optional, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ArtefactError(f"{name}: no such directory, and no such model to download: {reason}") from error
    return path


def identity(path: Path, settings: dict[str, Any]) -> str:
    """16 hex digits for the weights, the tokenizer and the settings."""
    parts = [artefact.checksum(file) for file in sorted(path.glob("*.safetensors"))]
    parts += [artefact.checksum(path / "tokenizer.json"), json.dumps(settings, sort_keys=True)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


class _Pooled:
    """A model with its pooling, called with ids, mask, types."""

    def __init__(self, model: Any, pooling: str, normalise: bool) -> None:
        self.model, self.pooling, self.normalise = model, pooling, normalise

    def __call__(self, ids: Any, mask: Any, types: Any) -> tuple[Any, ...]:
        import torch

        # Dropout would make other vectors each time; one forgotten layer is enough.
        if any(part.training for part in self.model.modules()):
            raise Mismatch("the encoder is in training mode, and dropout would spoil its vectors: call eval() first")
        extra = {"token_type_ids": types} if getattr(self.model.config, "type_vocab_size", 0) > 1 else {}
        hidden_NLD = self.model(input_ids=ids, attention_mask=mask, **extra).last_hidden_state.float()
        if self.pooling == "cls":
            vector_ND = hidden_NLD[:, 0]
        else:
            weight_NL1 = mask.unsqueeze(-1).to(hidden_NLD.dtype)
            vector_ND = (hidden_NLD * weight_NL1).sum(1) / weight_NL1.sum(1)
        return (torch.nn.functional.normalize(vector_ND, dim=-1) if self.normalise else vector_ND,)


def _pooling(path: Path) -> tuple[str, bool]:
    file = path / "1_Pooling" / "config.json"
    if not file.is_file():
        return "mean", True
    config = json.loads(file.read_text())
    modules = json.loads((path / "modules.json").read_text()) if (path / "modules.json").is_file() else []
    normalise = any(module.get("type", "").endswith("Normalize") for module in modules)
    return ("cls" if config.get("pooling_mode_cls_token") else "mean"), normalise


def _load_torch(name: str, device: str, precision: str, threads: int | None) -> TextEncoder:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    function, path, settings = torch_encoder(name)
    function.model.to(device=device, dtype=getattr(torch, precision))
    config = {**settings, "identity": identity(path, settings)}
    return TextEncoder(TorchRunner(function, device=device), TextTokenizer(path), config, precision)
