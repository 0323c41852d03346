"""The encoders of DPR as transformers publishes them: a BERT whose [CLS] is the vector (Karpukhin et al. 2020)."""

from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, BertConfig, BertModel, DPRContextEncoder, DPRQuestionEncoder

from ragqa.errors import ArtefactError
from ragqa.models.options import encoder_options, load_weights

_KINDS = {"DPRQuestionEncoder": DPRQuestionEncoder, "DPRContextEncoder": DPRContextEncoder}


def load_dpr(source: str | Path, *kinds: str) -> tuple[nn.Module, nn.Linear | None]:
    """The encoder of questions or passages in a directory or on the hub, and its projection if it has one.

    ``kinds`` are the classes of transformers that it may be, by default both.

    Raises:
        ArtefactError: it is none of them, or some of its weights are missing.
    """
    kinds = kinds or tuple(_KINDS)
    kind = next(iter(AutoConfig.from_pretrained(source).architectures or ["nothing that is named"]))
    if kind not in kinds:
        wanted = f"one of {', '.join(kinds)}" if len(kinds) > 1 else f"a {kinds[0]}"
        raise ArtefactError(f"{source} holds {kind}, not {wanted}")
    return parts(load_weights(_KINDS[kind], source, {}, "encoder of DPR"))


def parts(model: Any) -> tuple[nn.Module, nn.Linear | None]:
    """A plain BERT with the weights of a DPR encoder, and its projection if it has one."""
    inner = model.base_model
    bert = inner.bert_model
    names = BertConfig().to_dict().keys() & bert.config.to_dict().keys() - {"model_type", "architectures"}
    config = BertConfig(**{name: getattr(bert.config, name) for name in names if hasattr(bert.config, name)})
    plain = BertModel._from_config(config, **encoder_options(config))
    plain.load_state_dict(bert.state_dict())
    return plain, getattr(inner, "encode_proj", None)
