"""Seq2seq models made from BERT-like encoders (Rothe et al. 2020)."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModelForCausalLM, EncoderDecoderModel, PreTrainedTokenizerFast

from ragqa.errors import ArtefactError, summarize_error
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.pretrained import DTYPE, load_encoder_module, save_module, silence_transformers
from ragqa.models.span_readers import load_reader

_NAMES = {
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def make_from_encoder(path: Path, *, decoder_layers: int | None = None) -> Seq2Seq:
    """Make a seq2seq model whose encoder and decoder start with the weights of an encoder.

    The cross-attention of the decoder is random. If ``path`` holds no language model, the output layer of the decoder
    is random, too. An answer starts after [CLS] and ends with [SEP] (RoBERTa: ``<s>`` and ``</s>``).

    Args:
        path: directory of the encoder.
        decoder_layers: number of decoder layers; default: as many as the encoder has. Additional layers are random.

    Raises:
        ArtefactError: there is no encoder or no tokenizer.json with its special tokens, or transformers has no decoder
            of its family.
    """
    encoder, tokens = load_encoder_module(path), _load_tokenizer(path)
    config = AutoConfig.from_pretrained(path, is_decoder=True, add_cross_attention=True)
    config.num_hidden_layers = decoder_layers or config.num_hidden_layers
    try:
        with silence_transformers():
            decoder = AutoModelForCausalLM.from_pretrained(path, config=config, dtype=DTYPE)
            model: Any = EncoderDecoderModel(encoder=encoder, decoder=decoder)
    except (OSError, ValueError) as error:
        reason = summarize_error(error)
        raise ArtefactError(f"{path}: no decoder can be made from a {config.model_type}: {reason}") from error
    special = tokens.tokenizer
    for settings in (model.config, model.generation_config):
        settings.decoder_start_token_id = special.cls_token_id
        settings.eos_token_id, settings.pad_token_id = special.sep_token_id, special.pad_token_id
    return Seq2Seq(model, tokens)


def make_from_reader(path: Path, *, decoder_layers: int | None = None) -> Seq2Seq:
    """Make a seq2seq model from the encoder of the span reader in the directory ``path``.

    The reader's own limits of input and answer length are removed, because the generator is trained further.

    Args:
        path: directory of the reader.
        decoder_layers: as for ``make_from_encoder``.

    Raises:
        ArtefactError, DamagedArtefact: as for ``load_reader`` and ``make_from_encoder``.
    """
    encoder: Any = load_reader(path).encoder
    for limit in ("reader_tokens", "reader_span"):
        vars(encoder.config).pop(limit, None)
    with tempfile.TemporaryDirectory() as scratch, silence_transformers():
        save_module(encoder, Path(scratch))  # ``save_pretrained`` would write in the first process only
        shutil.copyfile(_find_tokenizer(path), Path(scratch, "tokenizer.json"))
        return make_from_encoder(Path(scratch), decoder_layers=decoder_layers)


def _find_tokenizer(path: Path) -> Path:
    file = path / "tokenizer.json"
    if not file.is_file():
        raise ArtefactError(f"{path} has no tokenizer.json: a fast tokenizer is needed")
    return file


def _load_tokenizer(path: Path) -> Seq2SeqTokenizer:
    """Load tokenizer.json and set the special tokens, which the file does not name."""
    backend = Tokenizer.from_file(str(_find_tokenizer(path)))
    known, names = backend.get_vocab(), {}
    for name, choices in _NAMES.items():
        piece = next((choice for choice in choices if choice in known), None)
        if piece is None:
            raise ArtefactError(f"the tokenizer of {path} knows none of {' and '.join(choices)}")
        names[name] = piece
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    first, last = tokenizer.cls_token, tokenizer.sep_token
    # A file without a post-processor adds no special tokens.
    if tokenizer("")["input_ids"] != [tokenizer.cls_token_id, tokenizer.sep_token_id]:
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {last} $B:1 {last}:1",
            special_tokens=[(piece, known[piece]) for piece in (first, last)],
        )
    return Seq2SeqTokenizer(tokenizer)
