"""Export encoders to folders that sentence-transformers loads."""

import json
import shutil
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput, MissingExtra
from ragqa.runtime.encoder import find_towers, get_encoder_path, is_export, load_tower
from ragqa.runtime.tokens import TextTokenizer

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_SAMPLES = ("Forth Bridge\nThe bridge is 2,467 metres long.", "w1 w2 w3", "word " * 600)
"""Texts for which both tokenizers must give the same ids; the last text is longer than a model reads."""
_PROMPTS: dict[str, Any] = {"__version__": {}, "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "dot"}
"""Content of ``config_sentence_transformers.json``; ragqa compares vectors by their inner products."""


def export_sentence_transformer(source: str | Path, out: Path, *, card: Path | None = None) -> dict[str, Any]:
    """Export a torch encoder to a folder that ``SentenceTransformer(folder)`` loads.

    The folder uses only sentence-transformers' own modules: Transformer and Pooling, and Dense, LayerNorm and Normalize
    if the encoder has a projection, a layer norm and vectors of length 1.

    Args:
        source: directory or hub name of an encoder, or of one tower of a dual encoder.
        out: directory to write; it is replaced when the export is complete.
        card: Markdown model card to copy as README.md.

    Returns:
        Settings of the encoder: ``width`` of its vectors, ``max_tokens`` of a text, ``pooling``, and ``normalise``
        (True for vectors of length 1).

    Raises:
        MissingExtra: torch or transformers is not installed.
        BadInput: the card does not exist; ``source`` is an 8-bit export, a reader or two towers, or its tokenizer adds
            other special tokens; or ``out`` holds something else or cannot be written.
        ArtefactError: there is no encoder at ``source``, or it has no ``tokenizer.json``.
        Mismatch: ``source`` is one of DPR's two encoders.
    """
    if card is not None and not card.is_file():
        raise BadInput(f"--card {card}: there is no such file")
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401

        from ragqa.models.span_readers import read_head_name
    except ImportError as error:
        raise MissingExtra("exporting a model", "torch") from error
    path = get_encoder_path(source)
    if is_export(path):
        raise BadInput(f"{source} is an export in 8 bits, or an index: name a folder with torch weights")
    if path.is_dir() and read_head_name(path) is not None:
        raise BadInput(f"{source} is a reader, and sentence-transformers has encoders only: leave out --format")
    if len(find_towers(str(path))) > 1:
        raise BadInput(f"{source} has two encoders: export its folders passages and questions, each by itself")
    tower, folder, settings = load_tower(str(source))
    if not (folder / "tokenizer.json").is_file():
        raise ArtefactError(f"{folder} has no tokenizer.json")
    with artefacts.replace_directory(out) as new:
        tower.save(new)
        for name in _TOKENIZER_FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, new / name)
        if not (new / "tokenizer_config.json").is_file():
            _write_tokenizer_config(new, settings["max_tokens"])
        (new / "config_sentence_transformers.json").write_text(json.dumps(_PROMPTS, indent=1))
        _check_tokens(new, str(source), settings["max_tokens"])
        if card is not None:
            shutil.copyfile(card, new / "README.md")
    return settings


def _check_tokens(folder: Path, source: str, max_tokens: int) -> None:
    from transformers import AutoTokenizer

    tokenizer, own = AutoTokenizer.from_pretrained(folder), TextTokenizer(folder)
    for text in _SAMPLES:
        ids = tokenizer(text, truncation=True, max_length=max_tokens)["input_ids"]
        if ids != own.encode_text(text, max_tokens).ids:
            raise BadInput(f"{source}: its tokenizer.json does not add [CLS] and [SEP] as ragqa does")


def _write_tokenizer_config(folder: Path, max_tokens: int) -> None:
    content = {row["content"] for row in json.loads((folder / "tokenizer.json").read_text("utf-8"))["added_tokens"]}
    known = {"pad_token": ("[PAD]", "<pad>"), "unk_token": ("[UNK]", "<unk>"), "mask_token": ("[MASK]", "<mask>")}
    known |= {"cls_token": ("[CLS]", "<s>"), "sep_token": ("[SEP]", "</s>")}
    found = {name: token for name, tokens in known.items() for token in tokens if token in content}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_tokens, **found}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
