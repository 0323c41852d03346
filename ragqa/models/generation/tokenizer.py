"""Text to the integers of a seq2seq and back, by the tokenizer that came with it.

Legend: B answers, T tokens of an answer.
"""

import hashlib
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ragqa.errors import ArtefactError, MissingExtra
from ragqa.models.inputs import Inputs, pad_rows
from ragqa.objectives import IGNORED

_FILES = ("tokenizer*.json", "*.model", "vocab*", "added_tokens.json", "special_tokens_map.json")
"""Of a tokenizer; without any of them transformers makes one that knows no word."""


class Seq2SeqTokenizer:
    """A tokenizer of transformers; special tokens are put where it puts them."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.start: int | None = None
        """The decoder's start; set by the model, as are the two below."""
        self.ends: tuple[int, ...] = ()
        """What ends an answer."""
        self.silent: frozenset[int] = frozenset()
        """What says nothing in an answer, whether the tokenizer calls it special or not."""

    @property
    def size(self) -> int:
        """Pieces it knows."""
        return len(self.tokenizer)

    @property
    def digest(self) -> str:
        """16 hex digits for the pieces and their ids."""
        rows = sorted(self.tokenizer.get_vocab().items())
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]

    @property
    def pad(self) -> int | None:
        """Id of the piece that pads."""
        return self.tokenizer.pad_token_id

    @property
    def end(self) -> int | None:
        """Id of the piece that ends a text; of a BERT that is [SEP]."""
        own = self.tokenizer.eos_token_id
        return self.tokenizer.sep_token_id if own is None else own

    @property
    def opening(self) -> int:
        """Special tokens before a text."""
        piece = self.encode_bare("a")[0]
        return self.ids(["a"])[0].index(piece)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text with its special tokens, uncut."""
        return self._ids(texts, add_special_tokens=True) if texts else []

    def encode_bare(self, text: str) -> list[int]:
        """The pieces of a text alone."""
        return self.pieces([text])[0]

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Those of each text, nothing around them."""
        return self._ids(texts, add_special_tokens=False) if texts else []

    def _ids(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        rows: list[list[int]] = self.tokenizer(list(texts), verbose=False, **options)["input_ids"]
        return rows

    def respelled(self, texts: Sequence[str]) -> list[str]:
        """Each text as its own pieces say it: a BERT's of lower case, and without accents.

        Spaces before marks are taken out again, as transformers did by itself when RAG was trained.
        """
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": True}
        return [self.tokenizer.decode(row, **options) for row in self.ids(texts)]

    def pad_rows(self, rows: Sequence[Sequence[int]]) -> Inputs:
        """Rows of ids as a batch."""
        return pad_rows(rows, self.pad or 0)

    def labels(self, answers: Sequence[str], max_tokens: int) -> Tensor:
        """``[B, T]`` labels of the answers, cut to ``max_tokens``; ``IGNORED`` behind their ends.

        As transformers makes them. Only the decoder's start is not said twice, as it would be where a BERT decodes; and
        the model's end comes where the tokenizer puts none: or to stop would not be learned.
        """
        rows: list[list[int]] = self.tokenizer(text_target=list(answers), verbose=False)["input_ids"]
        rows = [row[1:] if row[:1] == [self.start] else row for row in rows]
        rows = [row if not self.ends or (row[-1:] and row[-1] in self.ends) else [*row, self.ends[0]] for row in rows]
        rows = [row if len(row) <= max_tokens else [*row[: max_tokens - 1], row[-1]] for row in rows]
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[IGNORED] * (longest - len(row))] for row in rows])

    def decode(self, ids: Sequence[int]) -> str:
        """What the ids say, special tokens left out."""
        said: str = self.tokenizer.decode([each for each in ids if each not in self.silent], skip_special_tokens=True)
        return said.strip()

    def save(self, path: Path) -> None:
        """Write the tokenizer's own files."""
        self.tokenizer.save_pretrained(path)

    @classmethod
    def load(cls, source: str | Path, **options: Any) -> "Seq2SeqTokenizer":
        """The tokenizer in a directory or on the hub, a tokenizer.json alone as it is.

        Raises ArtefactError where there is none, MissingExtra where its vocabulary cannot be read.
        """
        file = Path(source) / "tokenizer.json"
        folder = Path(source, options.get("subfolder", ""))
        if Path(source).is_dir() and not any(there for name in _FILES for there in folder.glob(name)):
            raise ArtefactError(f"{folder} has no tokenizer: none of its files is there")
        try:
            if file.is_file() and not file.with_name("tokenizer_config.json").is_file():
                return cls(PreTrainedTokenizerFast(tokenizer_file=str(file)))  # the model's class might change it
            return cls(AutoTokenizer.from_pretrained(source, **options))
        except Exception as error:  # tokenizers has no class of its own for a file that is broken
            reason = str(error).strip().split("\n")[0]
            if find_spec("sentencepiece") is None and ("tiktoken" in reason or "sentencepiece" in reason.lower()):
                raise MissingExtra(f"the vocabulary of {source} (SentencePiece)", "torch") from error
            raise ArtefactError(f"{source} has no tokenizer that can be loaded: {reason}") from error
