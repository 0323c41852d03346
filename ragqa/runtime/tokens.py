"""Text to the integers a model reads; the same assembly when it is trained and when it answers."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from ragqa.errors import ArtefactError, DamagedArtefact

MAX_QUESTION = 64
"""Wordpieces of a question that are read; the rest is cut (REALM: 64)."""
MAX_TITLE = 16
"""Wordpieces of a title that are read before its passage."""
_HALVES = re.compile("[\ud800-\udfff]")
_SPECIAL = (("[CLS]", "[SEP]"), ("<s>", "</s>"))


@dataclass(frozen=True)
class Pieces:
    """Wordpieces of a text, each with its character offsets in that text and the word it is part of."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    words: list[int | None]


@dataclass(frozen=True)
class TokenInput:
    """One sequence for a model: ids, and how many of them are the first segment."""

    ids: Sequence[int]
    first_segment: int


class TextTokenizer:
    """A ``tokenizer.json``, without the padding and truncation that may be stored in it."""

    def __init__(self, path: Path) -> None:
        file = path / "tokenizer.json"
        if not path.is_dir():
            raise ArtefactError(f"{path}: no such directory")
        if not file.is_file():
            raise ArtefactError(f"{path} has no tokenizer.json: a fast tokenizer is needed")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # whose type says no more
            raise DamagedArtefact(f"{file} is not a tokenizer that can be loaded: {error}") from error
        self._file = file
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self._file.read_bytes()).hexdigest()

    def cuts_like(self, other: "TextTokenizer") -> bool:
        """Whether it makes the same ids of every text: padding, truncation and marks around it aside."""
        one, two = (json.loads(each._file.read_text(encoding="utf-8")) for each in (self, other))
        return all(one.get(name) == two.get(name) for name in ("normalizer", "pre_tokenizer", "model", "added_tokens"))

    @cached_property
    def special(self) -> tuple[int, int]:
        """Ids of the piece that begins a sequence and of the one that ends a segment."""
        for first, last in _SPECIAL:
            begin, end = self._tokenizer.token_to_id(first), self._tokenizer.token_to_id(last)
            if begin is not None and end is not None:
                return begin, end
        marks = " nor ".join(f"{first} and {last}" for first, last in _SPECIAL)
        raise ArtefactError(f"{self._file} knows neither {marks}: it is of no encoder")

    @cached_property
    def mask(self) -> int:
        """Id of the piece that stands where something is to be guessed."""
        for name in ("[MASK]", "<mask>"):
            if (found := self._tokenizer.token_to_id(name)) is not None:
                return int(found)
        raise ArtefactError("the tokenizer knows no [MASK] and no <mask>: pretraining needs one")

    @cached_property
    def unknown(self) -> int | None:
        """Id of the piece that stands for whatever is not in the vocabulary."""
        found = (self._tokenizer.token_to_id(name) for name in ("[UNK]", "<unk>"))
        return next((number for number in found if number is not None), None)

    @cached_property
    def ordinary(self) -> list[int]:
        """Ids of all pieces but those with a meaning of their own, such as [CLS] or [unused3]."""
        pieces = self._tokenizer.get_vocab()
        special = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        marked = ("[", "<")
        return sorted(
            number
            for piece, number in pieces.items()
            if piece not in special and not (len(piece) > 2 and piece.startswith(marked) and piece[-1] in "]>")
        )

    def pieces(self, text: str) -> Pieces:
        """The wordpieces of ``text`` alone, nothing added."""
        return _pieces(self._tokenizer.encode(_whole(text), add_special_tokens=False))

    def many(self, texts: list[str]) -> list[Pieces]:
        """``pieces`` of each text, on all cores."""
        return [_pieces(e) for e in self._tokenizer.encode_batch(list(map(_whole, texts)), add_special_tokens=False)]

    def text_input(self, text: str, max_tokens: int) -> TokenInput:
        """[CLS] text [SEP], cut to ``max_tokens``."""
        first, last = self.special
        ids = self._tokenizer.encode(_whole(text), add_special_tokens=False).ids
        ids = [first, *ids[: max_tokens - 2], last]
        return TokenInput(ids, len(ids))

    def reader_prefix(self, question: list[int], title: list[int]) -> tuple[list[int], int]:
        """[CLS] question [SEP] title [SEP] and the length of its first segment.

        A passage without a title has no title segment.
        """
        first, last = self.special
        head = [first, *question[:MAX_QUESTION], last]
        tail = [*title[:MAX_TITLE], last] if title else []
        return head + tail, len(head)


def _whole(text: str) -> str:
    """A text as it can be encoded: half of a pair of UTF-16 becomes the character that stands for what is none."""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)


def _pieces(encoding: Encoding) -> Pieces:
    return Pieces(encoding.ids, encoding.offsets, encoding.word_ids)
