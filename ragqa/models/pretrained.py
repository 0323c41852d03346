"""Load and save transformers models, and set options that they share."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import torch
from huggingface_hub import constants
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
from ragqa.errors import ArtefactError, DamagedArtefact, Mismatch, summarize_error
from ragqa.terminal import print_note

SEQ2SEQS = ("bart", "blenderbot", "encoder-decoder", "m2m_100", "marian", "mbart", "mt5", "pegasus", "plbart", "t5")
"""Supported seq2seq families: tests show that ragqa generates the same answers as transformers. ByT5 is in t5.

Other families do not support the attention function ``SHARED``. UMT5 and LongT5 reshape the keys of texts by the number
of decoder rows, and LED and ProphetNet have attention functions of their own.
"""
DTYPE = torch.float32
"""Type of all loaded weights; weights in half precision cannot be trained (AdamW's eps is 0 in float16)."""
_POSITIONS_AFTER_PADDING = {
    *("esm", "ibert", "luke", "xlm-roberta-xl", "xmod", "camembert", "data2vec-text"),
    *("longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta"),
}
"""Model families whose positions start after the padding id, so that the first position embeddings are unused."""
_DROPOUTS = {"dropout", "attention_dropout", "activation_dropout"}
"""Attributes in which models like BART store dropout rates as plain numbers."""


def get_encoder_options(config: PretrainedConfig) -> dict[str, object]:
    """Return the options to load an encoder: float32, eager attention, no (unused) pooler.

    The backward pass of eager attention is faster on a CPU. On 2 cores, with batches of 43 texts of 140 tokens in
    bfloat16, training processes 3,400 tokens per second, and 2,800 with sdpa.
    """
    pooler = {"add_pooling_layer": False} if config.model_type in {"bert", "roberta"} else {}
    return {"attn_implementation": "eager", "dtype": DTYPE, **pooler}


def load_encoder_module(source: str | Path) -> nn.Module:
    """Load the encoder in a directory or on the hub, without its heads.

    Raises:
        ArtefactError: there is no encoder, the model has a decoder or causal attention, or some of its weights are
            missing.
    """
    config = load_config(source, "encoder")
    _check_encoder(config, source)
    return load_weights(AutoModel, source, {"use_safetensors": True, **get_encoder_options(config)}, "encoder")


def load_masked_lm(source: str | Path) -> nn.Module:
    """Load the masked language model in a directory or on the hub.

    Raises:
        ArtefactError: there is no masked language model, it has a decoder or causal attention, or some of its weights
            are missing.
    """
    options, noun = {"use_safetensors": True, "attn_implementation": "eager"}, "masked language model"
    _check_encoder(load_config(source, noun), source)
    return load_weights(AutoModelForMaskedLM, source, options, noun)


def make_masked_lm(path: Path) -> nn.Module:
    """Make a masked language model with random weights from ``config.json`` in ``path``.

    Raises:
        ArtefactError: the file is missing, or its architecture has no masked language model.
    """
    check_model(path)
    try:
        with silence_transformers():
            config = AutoConfig.from_pretrained(path, trust_remote_code=False)
            _check_encoder(config, path)
            return cast(nn.Module, AutoModelForMaskedLM.from_config(config, attn_implementation="eager", dtype=DTYPE))
    except Exception as error:  # transformers raises many types for wrong values
        raise ArtefactError(
            f"{path} does not describe a masked language model: {summarize_error(error)[:200]}"
        ) from error


def check_tokenizer(model: Any, tokenizer: Path | None) -> None:
    """Check that a model has an embedding for each wordpiece of a tokenizer file.

    Args:
        model: model of transformers.
        tokenizer: ``tokenizer.json``; if it is None or missing, nothing is checked.

    Raises:
        Mismatch: the tokenizer has more wordpieces, so it belongs to another model.
    """
    if tokenizer is None or not tokenizer.is_file():
        return
    pieces = Tokenizer.from_file(str(tokenizer)).get_vocab_size()
    rows = model.get_input_embeddings().weight.shape[0]
    if pieces > rows:
        raise Mismatch(
            f"{tokenizer} has {pieces} pieces, but the model has {rows} embeddings: give the model's own tokenizer"
        )


def copy_tokenizer(tokenizer: Path | None, folder: Path) -> None:
    """Copy a tokenizer file into a folder as ``tokenizer.json``; None copies nothing."""
    target = folder / "tokenizer.json"
    if tokenizer is not None and tokenizer.resolve() != target.resolve():
        shutil.copyfile(tokenizer, target)


def load_seq2seq_module(source: str | Path, *, fresh: bool = False) -> nn.Module:
    """Load a seq2seq model from a directory or the hub.

    Args:
        source: directory or hub name.
        fresh: True to make random weights in the shape of the model instead of loading its weights.

    Raises:
        ArtefactError: there is no seq2seq model of a supported family, or some of its weights are missing.
    """
    config = load_config(source, "seq2seq")
    check_family(config.model_type, source)
    if fresh:
        return cast(nn.Module, AutoModelForSeq2SeqLM.from_config(config, dtype=DTYPE))
    return load_weights(AutoModelForSeq2SeqLM, source, {}, "seq2seq")


def check_family(family: str, source: str | Path) -> None:
    """Raise ArtefactError if the ``model_type`` of a seq2seq model is not in ``SEQ2SEQS``."""
    if family not in SEQ2SEQS:
        raise ArtefactError(f"{source} is a {family}, not one of the supported seq2seqs: {', '.join(SEQ2SEQS)}")


def _check_encoder(config: PretrainedConfig, source: str | Path) -> None:
    is_causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    if config.is_encoder_decoder or is_causal:
        raise ArtefactError(f"{source} is a {config.model_type}, not an encoder: use a model like BERT or RoBERTa")


def load_config(source: str | Path, noun: str = "model") -> PretrainedConfig:
    """Load the configuration of a model from a directory or the hub.

    Args:
        source: directory or hub name.
        noun: kind of model for error messages.

    Raises:
        ArtefactError: there is no configuration.
    """
    check_model(source)
    announce_hub(source)
    try:
        with silence_transformers():
            # False, since by default transformers asks on the terminal if it may run the code of a model.
            return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise make_load_error(source, noun, error) from error


def load_weights(ModelClass: Any, source: str | Path, options: dict[str, Any], noun: str) -> nn.Module:
    """Load a complete model from safetensors files or from published ``.bin`` files.

    transformers loads ``.bin`` files with ``torch.load(weights_only=True)``, which executes no code.

    Args:
        ModelClass: class of transformers.
        source: directory or hub name.
        options: options of ``from_pretrained``.
        noun: kind of model for error messages.

    Raises:
        ArtefactError: there is no model at ``source``, or some of its weights are missing.
    """
    try:
        with silence_transformers():
            model, info = ModelClass.from_pretrained(source, output_loading_info=True, **{"dtype": DTYPE, **options})
    except Exception as error:  # a broken file makes torch.load raise any type
        if "ignore_mismatched_sizes" in str(error):  # the message of transformers gives advice that does not help here
            raise ArtefactError(f"{source} holds a {noun} of other sizes than its config.json says") from error
        raise make_load_error(source, noun, error) from error
    missing = sorted(name for name in info["missing_keys"] if ".pooler." not in name)  # the pooler is unused
    if missing:
        raise ArtefactError(f"{source} lacks {len(missing)} weights of its {noun}, for example {missing[0]}")
    return cast(nn.Module, model)


@cache
def announce_hub(source: str | Path) -> None:
    """Print a note, once per hub name, that the hub is asked for a model; none if offline."""
    if not Path(source).is_dir() and not constants.HF_HUB_OFFLINE:
        print_note(f"asking the Hugging Face hub for {source}")


def make_load_error(source: str | Path, noun: str, error: Exception) -> ArtefactError:
    """Return the error for a model that transformers cannot load.

    Args:
        source: directory or hub name.
        noun: kind of model.
        error: error of transformers.
    """
    reason = summarize_error(error)[:200]
    if not Path(source).is_dir():
        return ArtefactError(f"{source} is not a directory here, and the Hugging Face hub gave no such model: {reason}")
    article = "an" if noun[0] in "aeiou" else "a"
    return ArtefactError(f"{source} is not {article} {noun} that can be loaded: {reason}")


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Suppress transformers' reports of unused weights, loading progress and retries."""
    levels = [(module, module.get_verbosity()) for module in (logging, hub_logging)]
    has_bar = logging.is_progress_bar_enabled()
    for module, _ in levels:
        module.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        for module, level in levels:
            module.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()


def select_segments(config: Any, token_type_ids: Tensor) -> dict[str, Tensor]:
    """Return the token types as keyword arguments; none for a model that ignores token types.

    RoBERTa has one token type, and DistilBERT and ModernBERT have none; [SEP] separates question and passage.

    Args:
        config: configuration of the model.
        token_type_ids: ``[N, L]``, 0 on the question and 1 on the passage.
    """
    return {"token_type_ids": token_type_ids} if getattr(config, "type_vocab_size", 0) > 1 else {}


def set_dropout(module: nn.Module, share: float) -> None:
    """Set the rate of every dropout in a module.

    Without dropout, a training step on a CPU takes less than half the time.

    Args:
        module: module that contains the dropout layers.
        share: share of the values to drop, from 0 to 1.
    """
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = share
        for name in _DROPOUTS & vars(part).keys():
            if isinstance(getattr(part, name), int | float):
                setattr(part, name, share)


def fuse_attention(model: nn.Module) -> None:
    """Make every transformers encoder in ``model`` use a fused attention kernel.

    This saves GPU memory, because eager attention stores a weight for each pair of tokens for the backward pass.
    Decoders and seq2seq models do not change.
    """
    for encoder in _iter_encoders(model):
        encoder.set_attn_implementation("sdpa")


def compile_encoders(model: nn.Module) -> None:
    """Compile every transformers encoder in ``model`` for texts of any length.

    Decoders and seq2seq models do not change. Only ``forward`` is compiled, so that hooks are still called and weights
    keep their names.
    """
    for encoder in _iter_encoders(model):
        encoder.forward = torch.compile(encoder.forward, dynamic=True)


def _iter_encoders(model: nn.Module) -> Iterator[Any]:
    part: Any
    for part in model.modules():
        is_whole = isinstance(part, PreTrainedModel) and part.base_model is part
        if is_whole and part.config.model_type not in SEQ2SEQS and not getattr(part.config, "is_decoder", False):
            yield part


def get_max_sequence(config: Any) -> int:
    """Return the maximum sequence length in tokens: the model's positions, at most BERT's 512."""
    positions = int(getattr(config, "max_position_embeddings", 512))
    if config.model_type in _POSITIONS_AFTER_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    return min(512, positions)


def get_max_input(config: Any, name: Literal["reader_tokens", "tower_tokens"] = "reader_tokens") -> int:
    """Return the maximum length of an input in tokens.

    Args:
        config: configuration of the encoder.
        name: setting of the configuration that can lower the limit of ``get_max_sequence``.

    Raises:
        DamagedArtefact: the setting is not a positive integer.
    """
    longest = get_max_sequence(config)
    value = getattr(config, name, longest)
    if not isinstance(value, int) or value < 1:
        raise DamagedArtefact(f"config.json of a model has {name}: {value!r}, not a number of wordpieces")
    return min(longest, value)


def save_module(module: Any, path: Path) -> None:
    """Write a module with a transformers ``config`` into the directory ``path``.

    The files are ``config.json`` and ``model.safetensors``; others in the directory stay.
    """
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(module.config.to_dict(), indent=1))
    weights = {name: value.contiguous() for name, value in module.state_dict().items()}
    save_file(weights, path / "model.safetensors")


def load_module_weights(module: nn.Module, path: Path) -> None:
    """Load the weights that ``save_module`` wrote into the directory ``path``.

    Raises:
        DamagedArtefact: the weights are missing, damaged, or do not fit the module.
    """
    try:
        module.load_state_dict(load_file(path / "model.safetensors"))
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise DamagedArtefact(f"{path} holds weights that do not fit its config.json: {reason[:200]}") from error
