"""Tokenizer of a seq2seq model.

Legend: B answers, T tokens of an answer.
"""

import hashlib
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ragqa.errors import ArtefactError, MissingExtra, summarize_error
from ragqa.models.inputs import Inputs, pad_rows
from ragqa.objectives import IGNORED

_FILES = ("tokenizer*.json", "*.model", "vocab*", "added_tokens.json", "special_tokens_map.json")
"""Files of a tokenizer; without any of them, transformers would make an empty tokenizer."""


class Seq2SeqTokenizer:
    """Tokenizer with the special tokens that its seq2seq model defines.

    Args:
        tokenizer: tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.start: int | None = None
        """First input of the decoder. ``Seq2Seq`` sets this attribute and the next two."""
        self.ends: tuple[int, ...] = ()
        """Tokens that end an answer."""
        self.silent_ids: frozenset[int] = frozenset()
        """Tokens to leave out of decoded text, even if the tokenizer does not call them special."""

    @property
    def size(self) -> int:
        """Number of pieces in the vocabulary, added tokens included."""
        return len(self.tokenizer)

    @property
    def digest(self) -> str:
        """Digest of the pieces and their ids, as 16 hex digits."""
        rows = sorted(self.tokenizer.get_vocab().items())
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]

    @property
    def pad(self) -> int | None:
        """Id of the padding token; None if there is none."""
        return self.tokenizer.pad_token_id

    @property
    def end(self) -> int | None:
        """Id of the token that ends a text ([SEP] for BERT); None if there is none."""
        eos = self.tokenizer.eos_token_id
        return self.tokenizer.sep_token_id if eos is None else eos

    @property
    def prefix_length(self) -> int:
        """Number of special tokens that the tokenizer puts before a text."""
        return self.encode(["a"])[0].index(self.encode_bare("a")[0])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, with special tokens and without truncation."""
        rows: list[list[int]] = self.tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return rows

    def encode_bare(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        ids: list[int] = self.tokenizer(text, verbose=False, add_special_tokens=False)["input_ids"]
        return ids

    def respell(self, texts: Sequence[str]) -> list[str]:
        """Return each text in the tokenizer's spelling: encoded and decoded again.

        For example, an uncased tokenizer removes capitals and accents. Decoding also removes spaces before
        punctuation, the default of transformers when RAG was trained.
        """
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": True}
        return [self.tokenizer.decode(row, **options) for row in self.encode(texts)]

    def pad_rows(self, rows: Sequence[Sequence[int]]) -> Inputs:
        """Return rows of token ids as a padded batch."""
        return pad_rows(rows, self.pad or 0)

    def make_labels(self, answers: Sequence[str], max_tokens: int) -> Tensor:
        """Return the token ids of answers as labels ``[B, T]``, padded with ``IGNORED``.

        The labels differ from the labels of transformers in two ways. They do not begin with the decoder's start token
        (in transformers they do for a BERT decoder). If the tokenizer adds no end token, the model's end token is
        added, so that the model learns to stop.

        Args:
            answers: B answers.
            max_tokens: largest T; a longer answer loses the tokens before its end token.
        """
        rows: list[list[int]] = self.tokenizer(text_target=list(answers), verbose=False)["input_ids"]
        rows = [row[1:] if row[:1] == [self.start] else row for row in rows]
        rows = [row if not self.ends or (row[-1:] and row[-1] in self.ends) else [*row, self.ends[0]] for row in rows]
        rows = [row if len(row) <= max_tokens else [*row[: max_tokens - 1], row[-1]] for row in rows]
        return pad_rows(rows, IGNORED).ids_NL

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens and ``silent_ids``."""
        visible = [token for token in ids if token not in self.silent_ids]
        text: str = self.tokenizer.decode(visible, skip_special_tokens=True)
        return text.strip()

    def save(self, path: Path) -> None:
        """Write the files of the tokenizer into the directory ``path``."""
        self.tokenizer.save_pretrained(path)

    @classmethod
    def load(cls, source: str | Path, **options: Any) -> "Seq2SeqTokenizer":
        """Load a tokenizer from a directory or the hub.

        Args:
            source: directory or hub name; a ``tokenizer.json`` without ``tokenizer_config.json`` is loaded unchanged.
            options: further arguments of transformers' ``from_pretrained``.

        Raises:
            ArtefactError: there is no tokenizer, or it cannot be loaded.
            MissingExtra: the vocabulary needs a package that is not installed.
        """
        file = Path(source) / "tokenizer.json"
        folder = Path(source, options.get("subfolder", ""))
        if Path(source).is_dir() and not any(file for name in _FILES for file in folder.glob(name)):
            raise ArtefactError(f"{folder} has no tokenizer files")
        try:
            if file.is_file() and not file.with_name("tokenizer_config.json").is_file():
                # The tokenizer class of the model's family could change how the file tokenizes.
                return cls(PreTrainedTokenizerFast(tokenizer_file=str(file)))
            return cls(AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options))
        except Exception as error:  # tokenizers raises plain exceptions for broken files
            reason = summarize_error(error)
            if find_spec("sentencepiece") is None and ("tiktoken" in reason or "sentencepiece" in reason.lower()):
                raise MissingExtra(f"the vocabulary of {source} (SentencePiece)", "torch") from error
            raise ArtefactError(f"{source} has no tokenizer that can be loaded: {reason}") from error
