"""Small sequence-to-sequence models of transformers, as directories with config.json and tokenizer.json."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from ragqa.indexing.build import IndexConfig, build_index

WORDS = [f"W{number}" for number in range(40)]
SPECIAL = {
    "t5": ["<pad>", "</s>", "<unk>"],
    "bart": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
}
SENTINELS = {
    "t5": [f"<extra_id_{number}>" for number in reversed(range(10))],
    "bart": [],
    "bert": [f"[unused{number}]" for number in range(10)],
}


def make_tokenizer(kind: str) -> Tokenizer:
    """Return a tokenizer of whole words, with sentinels for T5 and BERT."""
    pieces = [*SPECIAL[kind], *([] if kind == "t5" else SENTINELS[kind]), ".", *WORDS]
    pieces += SENTINELS[kind] if kind == "t5" else []
    tokenizer = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate(pieces)}, SPECIAL[kind][1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    around = {"t5": "$A </s>", "bart": "<s> $A </s>", "bert": "[CLS] $A [SEP]"}[kind]
    named = [(piece, tokenizer.token_to_id(piece)) for piece in SPECIAL[kind] if piece in around]
    tokenizer.post_processor = processors.TemplateProcessing(single=around, special_tokens=named)
    return tokenizer


def make_shape(kind: str, width: int) -> Any:
    """Return the configuration of a model with one layer per side."""
    from transformers import BartConfig, BertConfig, EncoderDecoderConfig, T5Config

    rows = make_tokenizer(kind).get_vocab_size()
    if kind == "t5":
        return T5Config(
            vocab_size=rows, d_model=width, d_kv=width // 2, d_ff=2 * width, num_layers=1, num_heads=2, pad_token_id=0,
            eos_token_id=1, decoder_start_token_id=0,
        )  # fmt: skip
    if kind == "bart":
        sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
                 {"layers": 1, "attention_heads": 2, "ffn_dim": 2 * width}.items()}  # fmt: skip
        return BartConfig(vocab_size=rows, d_model=width, max_position_embeddings=32, forced_eos_token_id=None, **sizes)
    bert = BertConfig(
        vocab_size=rows, hidden_size=width, num_hidden_layers=1, num_attention_heads=2, intermediate_size=2 * width
    )
    special = {"decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    return EncoderDecoderConfig.from_encoder_decoder_configs(bert, bert, **special)


def write_shape(kind: str, folder: Path, *, width: int = 32) -> Path:
    """Write a model directory of the kind t5, bart or bert (an ``EncoderDecoderModel``), without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(kind).save(str(folder / "tokenizer.json"))
    make_shape(kind, width).save_pretrained(folder)
    return folder


def write_counting_index(root: Path, *, passages: int = 80, words: int = 20) -> Path:
    """Build an index of passages that count up from a word: "W3 W4 W5 W6. W7 …"."""
    root.mkdir(parents=True, exist_ok=True)
    rows = []
    for first in range(passages):
        words_of_text = [WORDS[(first + at) % len(WORDS)] + ("." if at % 4 == 3 else "") for at in range(words)]
        rows.append(f'{{"id": "{first}", "text": "{" ".join(words_of_text)}"}}\n')
    (root / "passages.jsonl").write_text("".join(rows))
    build_index([root / "passages.jsonl"], root / "corpus.index", IndexConfig(retriever="bm25"))
    return root / "corpus.index"
