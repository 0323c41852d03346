"""Small generators with random weights, in transformers' own formats, and the tokenizers that belong to them."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    ByT5Tokenizer,
    DPRConfig,
    DPRQuestionEncoder,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from ragqa.types import Passage

TEXTS = [
    "who wrote the tale of genji",
    "The Tale of Genji / a novel // by a lady of the court of Heian",
    "in 1008, 4/5",
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def passage(title: str, text: str) -> Passage:
    return Passage(0, "d", title, text, "d.txt", 0, len(text))


def bart_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer like that of BART."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", **names)


def wordless(size: int = 60) -> Any:
    """Return a stand-in for a tokenizer, for tests that use only ids."""
    return SimpleNamespace(size=size, pad=None, end=None, start=None)


def tiny_bart(
    vocabulary: int = 60,
    *,
    spread: float = 0.4,
    seed: int = 0,
    kind: tuple[Any, Any] = (BartConfig, BartForConditionalGeneration),
    **options: Any,
) -> Any:
    torch.manual_seed(seed)
    sizes = {
        f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 2))
    }
    config = kind[0](
        vocab_size=vocabulary,
        d_model=16,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=128,
        init_std=spread,
        dropout=0.0,
        **sizes,
        **options,
    )
    return kind[1](config).eval()


def tiny_t5(
    vocabulary: int = 60, *, seed: int = 0, kind: tuple[Any, Any] = (T5Config, T5ForConditionalGeneration)
) -> Any:
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = kind[0](vocab_size=vocabulary, decoder_start_token_id=0, dropout_rate=0.0, **sizes)
    config.bos_token_id = None  # transformers' RAG classes ask for it
    return kind[1](config).eval()


def tiny_pegasus(**options: Any) -> Any:
    return tiny_bart(kind=(PegasusConfig, PegasusForConditionalGeneration), scale_embedding=True, **options)


def tiny_marian(**options: Any) -> Any:
    """Return a model whose answers begin with padding and contain none, as in published checkpoints."""
    rules = {"pad_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": 2}
    model = tiny_bart(spread=0.2, kind=(MarianConfig, MarianMTModel), scale_embedding=True, **rules, **options)
    model.generation_config.bad_words_ids = [[1]]
    return model


def tiny_bert_to_bert() -> Any:
    """Return an encoder-decoder whose answers begin with [CLS] and end with [SEP]."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    # Each half needs its own config, because that of the decoder is marked as causal.
    halves = [BertConfig(vocab_size=60, max_position_embeddings=64, initializer_range=0.4, **sizes) for _ in range(2)]
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(*halves)).eval()
    for settings in (model.config, model.generation_config):
        settings.decoder_start_token_id, settings.eos_token_id, settings.pad_token_id = 2, 3, 0
    return model


def tiny_dpr_config(vocabulary: int = 60, **options: Any) -> DPRConfig:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return DPRConfig(vocab_size=vocabulary, max_position_embeddings=64, **sizes, **options)


def write_bart(path: Path) -> Path:
    tokenizer = bart_tokenizer()
    tiny_bart(len(tokenizer), forced_bos_token_id=0).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def write_byt5(path: Path) -> Path:
    tokenizer = ByT5Tokenizer()
    tiny_t5(len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def word_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Return a BERT tokenizer with a vocabulary of whole words."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[f"w{n}" for n in range(size - 5)]]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def write_rag(path: Path, kind: Any, *, published: bool = False, **options: Any) -> Any:
    """A checkpoint as ``facebook/rag-token-nq`` is: one model, two folders of tokenizers.

    ``published``: of their first form, with their vocabularies as text.
    """
    tokenizer, asked_by = bart_tokenizer(), word_tokenizer(60)
    torch.manual_seed(6)
    question_encoder = DPRQuestionEncoder(tiny_dpr_config())
    model = kind(question_encoder=question_encoder, generator=tiny_bart(len(tokenizer)), n_docs=3, **options).eval()
    model.save_pretrained(path)
    row = json.loads((path / "config.json").read_text())
    row["generator"]["forced_bos_token_id"] = 0
    (path / "config.json").write_text(json.dumps(row))
    folders = path / "generator_tokenizer", path / "question_encoder_tokenizer"
    if not published:
        tokenizer.save_pretrained(folders[0])
        asked_by.save_pretrained(folders[1])
        return model
    for folder, longest in zip(folders, (1024, 512), strict=True):
        folder.mkdir()
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": longest}))
    tokenizer.backend_tokenizer.model.save(str(folders[0]))  # vocab.json and merges.txt
    pieces = asked_by.get_vocab()
    (folders[1] / "vocab.txt").write_text("\n".join(sorted(pieces, key=lambda piece: pieces[piece])) + "\n")
    return model


FAMILIES = {
    "bart": tiny_bart,
    "t5": tiny_t5,
    "mt5": partial(tiny_t5, kind=(MT5Config, MT5ForConditionalGeneration)),
    "pegasus": tiny_pegasus,
    "marian": tiny_marian,
    "mbart": partial(tiny_bart, kind=(MBartConfig, MBartForConditionalGeneration)),
    "plbart": partial(tiny_bart, kind=(PLBartConfig, PLBartForConditionalGeneration)),
    "m2m_100": partial(tiny_bart, kind=(M2M100Config, M2M100ForConditionalGeneration), spread=0.2),
    "blenderbot": partial(tiny_bart, kind=(BlenderbotConfig, BlenderbotForConditionalGeneration)),
    "encoder-decoder": tiny_bert_to_bert,
}
"""A small model of each family of ``options.SEQ2SEQS``."""
