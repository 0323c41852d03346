"""The encoders of DPR as transformers publishes them: a BERT whose [CLS] is the vector (Karpukhin et al. 2020)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn
from transformers import BertConfig, BertModel, DPRContextEncoder, DPRQuestionEncoder

from ragqa.errors import ArtefactError, Mismatch
from ragqa.models.pretrained import encoder_options, load_config, load_weights

_KINDS = {"DPRQuestionEncoder": DPRQuestionEncoder, "DPRContextEncoder": DPRContextEncoder}


def load_dpr(source: str | Path, kind: str) -> tuple[nn.Module, nn.Linear | None]:
    """The encoder in a directory or on the hub, and its projection if it has one.

    ``kind`` is the class of transformers that it must be: DPRQuestionEncoder or DPRContextEncoder.

    Raises:
        ArtefactError: it is another, or some of its weights are missing.
    """
    found = next(iter(load_config(source).architectures or ["nothing that is named"]))
    if found != kind:
        raise ArtefactError(f"{source} holds {found}, not a {kind}")
    return parts(load_weights(_KINDS[kind], source, {}, "encoder of DPR"))


def alone(source: str | Path, architectures: Sequence[str]) -> ArtefactError:
    """What is to be raised where one of DPR's models is taken for an encoder of both questions and passages."""
    kind = next(iter(architectures), "nothing that is named")
    if kind not in _KINDS:
        return ArtefactError(f"{source} holds {kind}, and no encoder of DPR")
    reads, other = ("questions", "passages") if kind == "DPRQuestionEncoder" else ("passages", "questions")
    return Mismatch(
        f"{source} is DPR's encoder of {reads} alone, and {other} have one of their own: put them together with "
        "python -m pipelines.publish --questions … --passages … --out DIR, and give DIR/model"
    )


def parts(model: Any) -> tuple[nn.Module, nn.Linear | None]:
    """A plain BERT with the weights of a DPR encoder, and its projection if it has one."""
    inner = model.base_model
    bert = inner.bert_model
    names = BertConfig().to_dict().keys() & bert.config.to_dict().keys() - {"model_type", "architectures"}
    config = BertConfig(**{name: getattr(bert.config, name) for name in names if hasattr(bert.config, name)})
    plain = BertModel._from_config(config, **encoder_options(config))
    plain.load_state_dict(bert.state_dict())
    return plain, getattr(inner, "encode_proj", None)
