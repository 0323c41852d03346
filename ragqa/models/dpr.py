"""DPR encoders: BERT and an optional projection of the [CLS] state (Karpukhin et al. 2020)."""

from pathlib import Path
from typing import Any

from transformers import BertConfig, BertModel, DPRContextEncoder, DPRQuestionEncoder

from ragqa.errors import ArtefactError
from ragqa.models.pretrained import get_encoder_options, load_config, load_weights
from ragqa.models.tower import Tower

_CLASSES = {"DPRQuestionEncoder": DPRQuestionEncoder, "DPRContextEncoder": DPRContextEncoder}


def load_dpr_tower(source: str | Path, kind: str) -> Tower:
    """Load a DPR encoder as a tower.

    Args:
        source: directory or hub name.
        kind: class of the encoder in transformers, DPRQuestionEncoder or DPRContextEncoder.

    Raises:
        ArtefactError: there is no model, it is of another class, or some of its weights are missing.
    """
    architecture = next(iter(load_config(source).architectures or ["a model without a named architecture"]))
    if architecture != kind:
        raise ArtefactError(f"{source} holds {architecture}, not a {kind}")
    return make_dpr_tower(load_weights(_CLASSES[kind], source, {}, "encoder of DPR"))


def make_dpr_tower(model: Any) -> Tower:
    """Make a tower from a DPR encoder: BERT and, if there is one, the projection.

    Args:
        model: ``DPRQuestionEncoder`` or ``DPRContextEncoder`` of transformers.
    """
    bert, projection = model.base_model.bert_model, getattr(model.base_model, "encode_proj", None)
    names = BertConfig().to_dict().keys() & bert.config.to_dict().keys() - {"model_type", "architectures"}
    config = BertConfig(**{name: getattr(bert.config, name) for name in names if hasattr(bert.config, name)})
    plain = BertModel._from_config(config, **get_encoder_options(config))
    plain.load_state_dict(bert.state_dict())
    tower = Tower(plain, width=projection.out_features if projection else None, layer_norm=False)
    if tower.project is not None and projection is not None:
        tower.project.load_state_dict(projection.state_dict())
    return tower
