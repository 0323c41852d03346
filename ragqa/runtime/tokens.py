"""Token sequences of texts, assembled in the same way for training and answering."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from ragqa.errors import ArtefactError, DamagedArtefact
from ragqa.text import replace_surrogates

MAX_QUESTION = 64
"""Maximum length of a question in wordpieces; the rest is cut (REALM: 64)."""
MAX_TITLE = 16
"""Maximum length of a title in wordpieces."""
_SPECIAL = (("[CLS]", "[SEP]"), ("<s>", "</s>"))


@dataclass(frozen=True)
class Pieces:
    """Wordpieces of a text."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    """Start and end of each wordpiece, in characters of the text."""
    words: list[int | None]
    """Number of the word that each wordpiece belongs to."""


@dataclass(frozen=True)
class TokenInput:
    """One sequence for a model."""

    ids: Sequence[int]
    first_segment: int
    """Number of leading ids that form the first segment."""


class TextTokenizer:
    """A ``tokenizer.json``, without the padding and truncation that may be stored in it."""

    def __init__(self, path: Path) -> None:
        """Load the tokenizer in the directory ``path``.

        Raises:
            ArtefactError: there is no such directory, or no ``tokenizer.json`` in it.
            DamagedArtefact: the file cannot be loaded.
        """
        file = path / "tokenizer.json"
        if not path.is_dir():
            raise ArtefactError(f"{path}: no such directory")
        if not file.is_file():
            raise ArtefactError(f"{path} has no tokenizer.json: a fast tokenizer is needed")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises nothing more specific
            raise DamagedArtefact(f"{file} is not a tokenizer that can be loaded: {error}") from error
        self._file = file
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self._file.read_bytes()).hexdigest()

    def tokenizes_like(self, other: "TextTokenizer") -> bool:
        """Tell whether both turn every text into the same ids; padding, truncation and special tokens may differ."""
        one, two = (json.loads(item._file.read_text(encoding="utf-8")) for item in (self, other))
        return all(one.get(name) == two.get(name) for name in ("normalizer", "pre_tokenizer", "model", "added_tokens"))

    @cached_property
    def special_ids(self) -> tuple[int, int]:
        """Ids of the tokens that begin a sequence and end a segment."""
        for first, last in _SPECIAL:
            begin, end = self._tokenizer.token_to_id(first), self._tokenizer.token_to_id(last)
            if begin is not None and end is not None:
                return begin, end
        pairs = " nor ".join(f"{first} and {last}" for first, last in _SPECIAL)
        raise ArtefactError(f"{self._file} has neither {pairs}: it is not the tokenizer of an encoder")

    @cached_property
    def mask_id(self) -> int:
        """Id of the mask token."""
        for name in ("[MASK]", "<mask>"):
            if (number := self._tokenizer.token_to_id(name)) is not None:
                return int(number)
        raise ArtefactError("the tokenizer has neither [MASK] nor <mask>: pretraining needs one")

    @cached_property
    def unknown_id(self) -> int | None:
        """Id of the token for text outside the vocabulary; None if the tokenizer has none."""
        numbers = (self._tokenizer.token_to_id(name) for name in ("[UNK]", "<unk>"))
        return next((number for number in numbers if number is not None), None)

    @cached_property
    def ordinary_ids(self) -> list[int]:
        """Ids of all wordpieces except special ones such as [CLS] or [unused3]."""
        vocabulary = self._tokenizer.get_vocab()
        special = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        opening = ("[", "<")
        return sorted(
            number
            for piece, number in vocabulary.items()
            if piece not in special and not (len(piece) > 2 and piece.startswith(opening) and piece[-1] in "]>")
        )

    def tokenize(self, text: str) -> Pieces:
        """Return the wordpieces of ``text``, without special tokens."""
        return _make_pieces(self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False))

    def tokenize_batch(self, texts: list[str]) -> list[Pieces]:
        """Return the wordpieces of each text, using all cores."""
        clean = list(map(replace_surrogates, texts))
        return [_make_pieces(encoding) for encoding in self._tokenizer.encode_batch(clean, add_special_tokens=False)]

    def encode_text(self, text: str, max_tokens: int) -> TokenInput:
        """Return [CLS] text [SEP], cut to ``max_tokens``."""
        first, last = self.special_ids
        ids = self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False).ids
        ids = [first, *ids[: max_tokens - 2], last]
        return TokenInput(ids, len(ids))

    def make_reader_prefix(self, question: list[int], title: list[int]) -> tuple[list[int], int]:
        """Return [CLS] question [SEP] title [SEP] and the length of its first segment.

        A passage without a title has no title segment.
        """
        first, last = self.special_ids
        head = [first, *question[:MAX_QUESTION], last]
        tail = [*title[:MAX_TITLE], last] if title else []
        return head + tail, len(head)


def _make_pieces(encoding: Encoding) -> Pieces:
    return Pieces(encoding.ids, encoding.offsets, encoding.word_ids)
