"""Tower of a dual encoder: an encoder, pooling and an optional projection.

A tower is stored as a directory in sentence-transformers' format, which other programs can load.

Legend: N texts, L tokens, H width of the encoder, D width of the vectors.
"""

import json
from pathlib import Path
from typing import Any, Literal, cast

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ragqa.errors import ArtefactError, Mismatch
from ragqa.models.pretrained import get_max_input, load_encoder_module

Pooling = Literal["cls", "mean"]
_MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
_IDENTITY = "torch.nn.modules.linear.Identity"


class Tower(nn.Module):
    """Encoder with pooling, and optionally with projection and normalisation.

    ORQA and REALM project the hidden state of [CLS] to 128 values and apply a layer norm (Lee et al. 2019, and ORQA's
    code). DPR uses the state of [CLS] itself. Most sentence encoders scale the mean of all states to length 1.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        pooling: Pooling = "cls",
        width: int | None = None,
        layer_norm: bool = True,
        unit_length: bool = False,
    ) -> None:
        """Combine an encoder, pooling and a new projection.

        Args:
            encoder: encoder of transformers.
            pooling: ``cls`` for the first token's hidden state, ``mean`` for the mean of all hidden states.
            width: length of the vectors, D; None leaves out the projection.
            layer_norm: True to apply a layer norm after the projection.
            unit_length: True to scale vectors to length 1.
        """
        super().__init__()
        self.encoder = encoder
        self.config = cast(Any, encoder.config)
        """Configuration of the encoder."""
        self.pooling, self.unit_length = pooling, unit_length
        self.project = nn.Linear(self.config.hidden_size, width) if width else None
        self.norm = nn.LayerNorm(width) if width and layer_norm else None
        if self.project is not None:
            nn.init.trunc_normal_(self.project.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(self.project.bias)

    @property
    def width(self) -> int:
        """Width of the vectors, D."""
        return int(self.project.out_features if self.project is not None else self.config.hidden_size)

    @property
    def max_tokens(self) -> int:
        """Maximum length of a text in tokens, including [CLS] and [SEP].

        Raises:
            DamagedArtefact: as for ``get_max_input``.
        """
        return get_max_input(self.config, "tower_tokens")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode N texts as float32 vectors ``[N, D]``.

        Args:
            input_ids: ``[N, L]``.
            attention_mask: ``[N, L]``, 1 on tokens and 0 on padding.
        """
        hidden_NLH = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        # The export cannot quantise the projection of [N, H] to 8 bits, so keep an extra dimension: [N, 1, H].
        if self.pooling == "cls":
            vector = hidden_NLH[:, :1]
        else:
            hidden_NLH = hidden_NLH.float()
            weight_NL1 = attention_mask.unsqueeze(-1).to(hidden_NLH.dtype)
            vector = (hidden_NLH * weight_NL1).sum(1, keepdim=True) / weight_NL1.sum(1, keepdim=True)
        if self.project is not None:
            vector = self.project(vector.to(self.project.weight.dtype))
        if self.norm is not None:
            vector = self.norm(vector)
        vector = vector.squeeze(1).float()
        return nn.functional.normalize(vector, dim=-1) if self.unit_length else vector

    @classmethod
    def from_encoder(cls, path: str | Path, **options: Any) -> "Tower":
        """Make a tower from an encoder, with a new projection.

        Args:
            path: directory or hub name of the encoder.
            options: further arguments of the constructor.

        Raises:
            ArtefactError: there is no encoder, or some of its weights are missing.
        """
        return cls(load_encoder_module(path), **options)

    def save(self, path: Path) -> None:
        """Write the tower, without a tokenizer, into the directory ``path``."""
        folders = {"Transformer": "", "Pooling": "1_Pooling"}
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config.to_dict(), indent=1))
        (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": self.max_tokens}))
        _save_weights(self.encoder, path)
        width = {"word_embedding_dimension": self.config.hidden_size}
        _write_config(path / "1_Pooling", width | {mode: name == self.pooling for name, mode in _MODES.items()})
        if self.project is not None:
            folder = folders["Dense"] = f"{len(folders)}_Dense"
            sizes = {"in_features": self.project.in_features, "out_features": self.width}
            _write_config(path / folder, {**sizes, "bias": True, "activation_function": _IDENTITY})
            _save_weights(self.project, path / folder, "linear.")
        if self.norm is not None:
            folder = folders["LayerNorm"] = f"{len(folders)}_LayerNorm"
            _write_config(path / folder, {"dimension": self.width})
            _save_weights(self.norm, path / folder, "norm.")
        if self.unit_length:
            folders["Normalize"] = f"{len(folders)}_Normalize"
        rows = [
            {"idx": n, "name": str(n), "path": folder, "type": f"sentence_transformers.models.{kind}"}
            for n, (kind, folder) in enumerate(folders.items())
        ]
        (path / "modules.json").write_text(json.dumps(rows, indent=1))

    @classmethod
    def load(cls, path: Path, name: str | None = None) -> "Tower":
        """Load the tower in the directory ``path``.

        Without ``modules.json``, a vector is the mean of the encoder's states, or the state of [CLS] if ``1_Pooling``
        says so, scaled to length 1.

        Args:
            path: directory in sentence-transformers' format, or of a transformers encoder.
            name: hub name of the encoder, if its weights are not in the directory.

        Raises:
            ArtefactError: there is no encoder, some of its weights are missing, or it has a module or an activation
                that is not supported.
            Mismatch: the encoder is one of DPR's two encoders.
        """
        modules = _find_modules(path)
        if not (path / "modules.json").is_file():
            _check_not_dpr(name or path, path / "config.json")
        dense, norm = modules.get("Dense"), modules.get("LayerNorm")
        tower = cls(
            load_encoder_module(name or path),
            pooling=_read_pooling(modules.get("Pooling")),
            width=_read_width(dense) if dense else None,
            layer_norm=norm is not None,
            unit_length="Normalize" in modules,
        )
        for part, folder, prefix in ((tower.project, dense, "linear."), (tower.norm, norm, "norm.")):
            if part is not None and folder is not None:
                weights = load_file(folder / "model.safetensors")
                part.load_state_dict({key.removeprefix(prefix): value for key, value in weights.items()})
        return tower


def _find_modules(path: Path) -> dict[str, Path]:
    file = path / "modules.json"
    if not file.is_file():
        pooling = path / "1_Pooling"
        return {"Transformer": path, "Normalize": path} | ({"Pooling": pooling} if pooling.is_dir() else {})
    modules = {row["type"].rpartition(".")[2]: path / row["path"] for row in json.loads(file.read_text())}
    if unknown := modules.keys() - {"Transformer", "Pooling", "Dense", "LayerNorm", "Normalize"}:
        raise ArtefactError(f"{path} has the unknown module {', '.join(sorted(unknown))}")
    return modules


def _check_not_dpr(source: str | Path, file: Path) -> None:
    try:
        config = dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return  # loading the encoder reports what is wrong
    if config.get("model_type") != "dpr":
        return
    kind = next(iter(config.get("architectures") or ["a model without a named architecture"]))
    encoded = {"DPRQuestionEncoder": ("questions", "passages"), "DPRContextEncoder": ("passages", "questions")}
    if kind not in encoded:
        raise ArtefactError(f"{source} holds {kind}, not an encoder of DPR")
    side, other = encoded[kind]
    raise Mismatch(
        f"{source} encodes only DPR's {side}, and {other} need the other encoder: combine both with "
        "python -m pipelines.publish --questions … --passages … --out DIR, and give DIR/model"
    )


def _read_pooling(folder: Path | None) -> Pooling:
    config = json.loads((folder / "config.json").read_text()) if folder else {}
    return "cls" if config.get(_MODES["cls"]) else "mean"


def _read_width(folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text())
    if config.get("activation_function", _IDENTITY) != _IDENTITY:
        raise ArtefactError(f"{folder} has the activation {config['activation_function']}: only Identity is supported")
    return int(config["out_features"])


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def _save_weights(module: nn.Module, folder: Path, prefix: str = "") -> None:
    weights = {prefix + name: value.contiguous() for name, value in module.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
