"""DPR encoders in transformers' format: a BERT whose [CLS] is the vector (Karpukhin et al. 2020)."""

import json
from pathlib import Path
from typing import Any

from torch import nn
from transformers import BertConfig, BertModel, DPRContextEncoder, DPRQuestionEncoder

from ragqa.errors import ArtefactError, Mismatch
from ragqa.models.pretrained import get_encoder_options, load_config, load_weights

_KINDS = {"DPRQuestionEncoder": DPRQuestionEncoder, "DPRContextEncoder": DPRContextEncoder}
_UNNAMED = "a model without a named architecture"


def load_dpr(source: str | Path, kind: str) -> tuple[nn.Module, nn.Linear | None]:
    """Load a DPR encoder and its projection, if it has one.

    Args:
        source: directory or hub name.
        kind: its class in transformers, DPRQuestionEncoder or DPRContextEncoder.

    Raises:
        ArtefactError: it is of another class, or some of its weights are missing.
    """
    architecture = next(iter(load_config(source).architectures or [_UNNAMED]))
    if architecture != kind:
        raise ArtefactError(f"{source} holds {architecture}, not a {kind}")
    return split_dpr_encoder(load_weights(_KINDS[kind], source, {}, "encoder of DPR"))


def check_not_dpr(source: str | Path, file: Path) -> None:
    """Raise Mismatch if a ``config.json`` is that of a DPR encoder, which encodes only questions or only passages."""
    try:
        config = dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return  # loading the encoder reports what is wrong
    if config.get("model_type") != "dpr":
        return
    kind = next(iter(config.get("architectures") or [_UNNAMED]))
    if kind not in _KINDS:
        raise ArtefactError(f"{source} holds {kind}, not an encoder of DPR")
    encoded, other = ("questions", "passages") if kind == "DPRQuestionEncoder" else ("passages", "questions")
    raise Mismatch(
        f"{source} encodes only DPR's {encoded}, and {other} need another encoder: combine the two with "
        "python -m pipelines.publish --questions … --passages … --out DIR, and give DIR/model"
    )


def split_dpr_encoder(model: Any) -> tuple[nn.Module, nn.Linear | None]:
    """Return a plain BERT with the weights of a DPR encoder, and its projection if it has one."""
    inner = model.base_model
    bert = inner.bert_model
    names = BertConfig().to_dict().keys() & bert.config.to_dict().keys() - {"model_type", "architectures"}
    config = BertConfig(**{name: getattr(bert.config, name) for name in names if hasattr(bert.config, name)})
    plain = BertModel._from_config(config, **get_encoder_options(config))
    plain.load_state_dict(bert.state_dict())
    return plain, getattr(inner, "encode_proj", None)
