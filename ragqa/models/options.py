"""Encoders of transformers, as they are made here."""

from pathlib import Path
from typing import Any, cast

from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig
from transformers.utils import logging

from ragqa.errors import ArtefactError


def encoder_options(config: PretrainedConfig) -> dict[str, object]:
    """No pooler, which nothing reads; eager attention, whose backward on a CPU is the faster one.

    Measured on 2 cores at 43 x 140 tokens in bf16: 3,400 tokens a second against 2,800 (sdpa).
    """
    pooler = {"add_pooling_layer": False} if config.model_type in {"bert", "roberta"} else {}
    return {"attn_implementation": "eager", **pooler}


def load_encoder_module(source: str | Path) -> nn.Module:
    """The encoder in a directory or on the hub; heads that lie beside it are left.

    Raises:
        ArtefactError: there is none, or some of its weights are missing.
    """
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # else it reports every weight that is left
    try:
        options: Any = encoder_options(AutoConfig.from_pretrained(source))
        loaded = AutoModel.from_pretrained(source, use_safetensors=True, output_loading_info=True, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ArtefactError(f"{source} is not an encoder that can be loaded: {reason}") from error
    finally:
        logging.set_verbosity(before)
    model, info = cast(tuple[nn.Module, dict[str, Any]], loaded)
    if missing := sorted(info["missing_keys"]):
        raise ArtefactError(f"{source} lacks {len(missing)} weights of its encoder, {missing[0]} among them")
    return model
