"""Encoders of transformers, as they are made here."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import torch
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from ragqa.artefacts.paths import check_model
from ragqa.errors import ArtefactError, DamagedArtefact, Mismatch

SEQ2SEQS = (
    "bart",
    "blenderbot",
    "encoder-decoder",
    "m2m_100",
    "marian",
    "mbart",
    "mt5",
    "pegasus",
    "plbart",
    "t5",
)
"""Families that are tested to say what transformers has them say; ByT5 is a t5. UMT5 and LongT5 cut the keys of a text
into as many as the decoder has rows, so rows cannot share a text as ``attention`` has them do; LED and ProphetNet have
attentions of their own."""
DTYPE = torch.float32
"""Of all weights, whatever they were stored in: transformers would take theirs, and half precision cannot be trained
(AdamW's eps is 0 in float16). Who wants less converts the loaded model."""


def encoder_options(config: PretrainedConfig) -> dict[str, object]:
    """No pooler, which nothing reads; eager attention, whose backward on a CPU is the faster one.

    Measured on 2 cores at 43 x 140 tokens in bf16: 3,400 tokens a second against 2,800 (sdpa).
    """
    pooler = {"add_pooling_layer": False} if config.model_type in {"bert", "roberta"} else {}
    return {"attn_implementation": "eager", "dtype": DTYPE, **pooler}


def load_encoder_module(source: str | Path) -> nn.Module:
    """The encoder in a directory or on the hub; heads that lie beside it are left.

    Raises:
        ArtefactError: there is none, or some of its weights are missing.
    """
    return _loaded(AutoModel, source, encoder_options, "encoder")


def load_masked_lm(source: str | Path) -> nn.Module:
    """The masked language model in a directory or on the hub; raises as ``load_encoder_module``."""
    return _loaded(
        AutoModelForMaskedLM, source, lambda config: {"attn_implementation": "eager"}, "masked language model"
    )


def make_masked_lm(path: Path) -> nn.Module:
    """A masked language model of random weights, as ``config.json`` in the directory ``path`` says.

    Raises:
        ArtefactError: there is none, or it is of an architecture that has no masked language model.
    """
    check_model(path)
    try:
        with silence_transformers():
            config = AutoConfig.from_pretrained(path)
            check_encoder(config, path)
            return cast(nn.Module, AutoModelForMaskedLM.from_config(config, attn_implementation="eager", dtype=DTYPE))
    except Exception as error:  # of wrong types transformers raises its own
        raise ArtefactError(f"{path} is not the shape of a masked language model: {_first_line(error)}") from error


def check_tokenizer(model: Any, tokenizer: Path | None) -> None:
    """Raise Mismatch where a tokenizer has pieces that the encoder ``model`` has no embeddings of."""
    if tokenizer is None or not tokenizer.is_file():
        return
    pieces = Tokenizer.from_file(str(tokenizer)).get_vocab_size()
    rows = model.get_input_embeddings().weight.shape[0]
    if pieces > rows:
        raise Mismatch(
            f"{tokenizer} has {pieces} pieces, the model beside it {rows} embeddings: give its own tokenizer"
        )


def load_seq2seq_module(source: str | Path, *, fresh: bool = False) -> nn.Module:
    """The sequence-to-sequence model in a directory or on the hub, or random weights of its shape.

    Raises as ``load_encoder_module`` does.
    """
    config = load_config(source, "seq2seq")
    check_family(config.model_type, source)
    if fresh:
        return cast(nn.Module, AutoModelForSeq2SeqLM.from_config(config, dtype=DTYPE))
    return load_weights(AutoModelForSeq2SeqLM, source, {}, "seq2seq")


def check_family(family: str, source: str | Path) -> None:
    """Raise ArtefactError for the ``model_type`` of a seq2seq that is none of ``SEQ2SEQS``."""
    if family not in SEQ2SEQS:
        raise ArtefactError(f"{source} is a {family}, not a seq2seq that is known: {', '.join(SEQ2SEQS)}")


def check_encoder(config: PretrainedConfig, source: str | Path) -> None:
    """Raise ArtefactError for a model that also writes, or whose tokens see none behind them."""
    onward = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    if config.is_encoder_decoder or onward:
        raise ArtefactError(f"{source} is a {config.model_type}, not an encoder as BERT and RoBERTa are: give one")


def _loaded(
    kind: Any, source: str | Path, options: Callable[[PretrainedConfig], dict[str, Any]], what: str
) -> nn.Module:
    config = load_config(source, what)
    check_encoder(config, source)
    return load_weights(kind, source, {"use_safetensors": True, **options(config)}, what)


def load_config(source: str | Path, what: str = "model") -> PretrainedConfig:
    """The configuration of ``what`` lies in a directory or on the hub; raises ArtefactError where there is none."""
    check_model(source)
    try:
        with silence_transformers():
            return AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise _not_loaded(source, what, error) from error


def load_weights(kind: Any, source: str | Path, options: dict[str, Any], what: str) -> nn.Module:
    """A model of transformers' class ``kind``, all its weights there; published ones without safetensors, too.

    What is no safetensors, transformers reads with ``torch.load(weights_only=True)``. Raises as
    ``load_encoder_module``.
    """
    try:
        with silence_transformers():
            model, info = kind.from_pretrained(source, output_loading_info=True, **{"dtype": DTYPE, **options})
    except Exception as error:  # whatever a broken file makes torch.load raise
        if "ignore_mismatched_sizes" in str(error):  # transformers' words are about its own arguments
            raise ArtefactError(f"{source} holds a {what} of other sizes than its config.json says") from error
        raise _not_loaded(source, what, error) from error
    missing = sorted(name for name in info["missing_keys"] if ".pooler." not in name)  # which nothing reads
    if missing:
        raise ArtefactError(f"{source} lacks {len(missing)} weights of its {what}, {missing[0]} among them")
    return cast(nn.Module, model)


def _not_loaded(source: str | Path, what: str, error: Exception) -> ArtefactError:
    if not Path(source).is_dir():
        return ArtefactError(f"{source}: no such directory, nor could it be taken from the hub: {_first_line(error)}")
    article = "an" if what[0] in "aeiou" else "a"
    return ArtefactError(f"{source} is not {article} {what} that can be loaded: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


@contextmanager
def silence_transformers() -> Iterator[None]:
    """No report of weights that are left, no bar for what takes less than a second, no try by try of the hub."""
    before, bar, hub = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub_logging.get_verbosity()
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        hub_logging.set_verbosity(hub)
        if bar:
            logging.enable_progress_bar()


def segments(config: Any, token_type_ids: Tensor) -> dict[str, Tensor]:
    """Arguments that tell a model of this configuration what is question and what is passage, where it knows two kinds.

    RoBERTa has but one, DistilBERT and ModernBERT none at all: to them [SEP] says it.
    """
    return {"token_type_ids": token_type_ids} if getattr(config, "type_vocab_size", 0) > 1 else {}


def set_dropout(module: nn.Module, share: float) -> None:
    """Have every dropout of a model drop ``share``; with 0 a training step on a CPU takes less than half as long."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = share
        for name in _DROPOUTS & vars(part).keys():
            if isinstance(getattr(part, name), int | float):
                setattr(part, name, share)


def fuse_attention(model: nn.Module) -> None:
    """Have every encoder of transformers in ``model`` compute attention in one kernel: for GPUs.

    Eager attention keeps the weights of all pairs of tokens for backward, which there are many of.
    """
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.base_model is part and _encodes(part.config):
            part.set_attn_implementation("sdpa")


def compile_encoders(model: nn.Module) -> None:
    """Have ``torch.compile`` fuse what every encoder of transformers in ``model`` computes, for texts of any length.

    Decoders and sequence-to-sequence models stay as they are. ``forward`` is what is compiled, so hooks of the module
    are still called as they were, and its weights keep their names.
    """
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.base_model is part and _encodes(part.config):
            part.forward = torch.compile(part.forward, dynamic=True)


def _encodes(config: Any) -> bool:
    return config.model_type not in SEQ2SEQS and not getattr(config, "is_decoder", False)


_BEHIND_PADDING = {
    "esm",
    "ibert",
    "luke",
    "xlm-roberta-xl",
    "xmod",
    "camembert",
    "data2vec-text",
    "longformer",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
}
"""Families whose first position is the one behind the padding's id: so many rows of their table are of no text."""
_DROPOUTS = {"dropout", "attention_dropout", "activation_dropout"}
"""Shares that BART and its like keep as plain numbers."""


def max_sequence_tokens(config: Any) -> int:
    """What an encoder's positions allow; 512 at most, which is what all are trained with."""
    positions = int(getattr(config, "max_position_embeddings", 512))
    if config.model_type in _BEHIND_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    return min(512, positions)


def max_input_tokens(config: Any, own: Literal["reader_tokens", "tower_tokens"] = "reader_tokens") -> int:
    """Longest sequence of a reader or a tower: what its configuration says itself, or what its positions allow."""
    longest = max_sequence_tokens(config)
    said = getattr(config, own, longest)
    if not isinstance(said, int) or said < 1:
        raise DamagedArtefact(f"config.json of a model says {own}: {said!r}, which is no number of wordpieces")
    return min(longest, said)


def save_head(module: Any, path: Path) -> None:
    """Write a model on an encoder as ``config.json``, its own ``config``, and ``model.safetensors``."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(module.config.to_dict(), indent=1))
    weights = {name: value.contiguous() for name, value in module.state_dict().items()}
    save_file(weights, path / "model.safetensors")


def load_head(module: nn.Module, path: Path) -> None:
    """Load the weights that ``save_head`` wrote; raises DamagedArtefact where they are not the model's."""
    try:
        module.load_state_dict(load_file(path / "model.safetensors"))
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise DamagedArtefact(f"{path} holds other weights than its config.json says: {reason[:200]}") from error
