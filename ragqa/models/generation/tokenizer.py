"""Tokenizers of seq2seq models.

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
"""Files of a tokenizer; without any of them transformers makes an empty one."""


class Seq2SeqTokenizer:
    """A transformers tokenizer, which adds its own special tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.start: int | None = None
        """First input of the decoder; the model sets this and the next two attributes."""
        self.ends: tuple[int, ...] = ()
        """Tokens that end an answer."""
        self.silent_ids: frozenset[int] = frozenset()
        """Tokens to leave out of text, whether or not the tokenizer declares them special."""

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self.tokenizer)

    @property
    def digest(self) -> str:
        """Digest of the pieces and their ids, 16 hex digits."""
        rows = sorted(self.tokenizer.get_vocab().items())
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]

    @property
    def pad(self) -> int | None:
        """Id of the padding token."""
        return self.tokenizer.pad_token_id

    @property
    def end(self) -> int | None:
        """Id of the token that ends a text; [SEP] for BERT."""
        eos = self.tokenizer.eos_token_id
        return self.tokenizer.sep_token_id if eos is None else eos

    @property
    def prefix_length(self) -> int:
        """Number of special tokens before a text."""
        return self.encode(["a"])[0].index(self.encode_bare("a")[0])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text with its special tokens, without truncation."""
        rows: list[list[int]] = self.tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return rows

    def encode_bare(self, text: str) -> list[int]:
        """Encode a text without special tokens."""
        ids: list[int] = self.tokenizer(text, verbose=False, add_special_tokens=False)["input_ids"]
        return ids

    def respell(self, texts: Sequence[str]) -> list[str]:
        """Encode and decode each text, which for an uncased BERT removes capitals and accents.

        Spaces before punctuation are removed again, as transformers did by default when RAG was trained.
        """
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": True}
        return [self.tokenizer.decode(row, **options) for row in self.encode(texts)]

    def pad_rows(self, rows: Sequence[Sequence[int]]) -> Inputs:
        """Pad rows of ids to one batch."""
        return pad_rows(rows, self.pad or 0)

    def make_labels(self, answers: Sequence[str], max_tokens: int) -> Tensor:
        """Return labels ``[B, T]`` of at most ``max_tokens``, ``IGNORED`` after the answers' ends.

        They equal transformers' labels with two exceptions. The decoder's start is not repeated, as it would be for a
        BERT decoder. If the tokenizer adds no end, the model's end is added, so that stopping is learned.
        """
        rows: list[list[int]] = self.tokenizer(text_target=list(answers), verbose=False)["input_ids"]
        rows = [row[1:] if row[:1] == [self.start] else row for row in rows]
        rows = [row if not self.ends or (row[-1:] and row[-1] in self.ends) else [*row, self.ends[0]] for row in rows]
        rows = [row if len(row) <= max_tokens else [*row[: max_tokens - 1], row[-1]] for row in rows]
        return pad_rows(rows, IGNORED).ids_NL

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids, without special tokens."""
        visible = [token for token in ids if token not in self.silent_ids]
        text: str = self.tokenizer.decode(visible, skip_special_tokens=True)
        return text.strip()

    def save(self, path: Path) -> None:
        """Write the files of the tokenizer."""
        self.tokenizer.save_pretrained(path)

    @classmethod
    def load(cls, source: str | Path, **options: Any) -> "Seq2SeqTokenizer":
        """Load from a directory or the hub; a tokenizer.json alone is loaded unchanged.

        Raises:
            ArtefactError: there is no tokenizer.
            MissingExtra: its vocabulary needs a package that is not installed.
        """
        file = Path(source) / "tokenizer.json"
        folder = Path(source, options.get("subfolder", ""))
        if Path(source).is_dir() and not any(file for name in _FILES for file in folder.glob(name)):
            raise ArtefactError(f"{folder} has no tokenizer files")
        try:
            if file.is_file() and not file.with_name("tokenizer_config.json").is_file():
                # The class of the model's tokenizer might change it.
                return cls(PreTrainedTokenizerFast(tokenizer_file=str(file)))
            return cls(AutoTokenizer.from_pretrained(source, **options))
        except Exception as error:  # tokenizers raises plain exceptions for broken files
            reason = summarize_error(error)
            if find_spec("sentencepiece") is None and ("tiktoken" in reason or "sentencepiece" in reason.lower()):
                raise MissingExtra(f"the vocabulary of {source} (SentencePiece)", "torch") from error
            raise ArtefactError(f"{source} has no tokenizer that can be loaded: {reason}") from error
