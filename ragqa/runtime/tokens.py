"""Token sequences of texts, the same for training and answering."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from ragqa.errors import ArtefactError, DamagedArtefact, summarize_error
from ragqa.text import replace_surrogates

MAX_QUESTION = 64
"""Maximum length of a question in wordpieces; the rest is cut (REALM: 64)."""
_CHARACTERS_PER_PIECE = 100
"""Number of characters to tokenize for each wordpiece that a model reads; English words have about four."""
MAX_TITLE = 32
"""Maximum length of a title in wordpieces; the rest is cut."""


@dataclass(frozen=True)
class Pieces:
    """Wordpieces of a text."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    """Start and end of each wordpiece, in characters of the text."""
    words: list[int | None]
    """Number of the word to which each wordpiece belongs; None if it belongs to no word."""


@dataclass(frozen=True)
class TokenInput:
    """Token sequence for a model."""

    ids: Sequence[int]
    first_segment: int
    """Number of ids in the first segment (token type 0); the others have token type 1."""


class TextTokenizer:
    """Tokenizer of a ``tokenizer.json``, without the padding and truncation that the file sets."""

    def __init__(self, path: Path) -> None:
        """Load the tokenizer in the directory ``path``.

        Raises:
            ArtefactError: the directory or its ``tokenizer.json`` does not exist.
            DamagedArtefact: the file cannot be loaded.
        """
        self._file = path / "tokenizer.json"
        if not path.is_dir():
            raise ArtefactError(f"{path}: no such directory")
        if not self._file.is_file():
            raise ArtefactError(f"{path} has no tokenizer.json: a fast tokenizer is needed")
        try:
            self._tokenizer = Tokenizer.from_file(str(self._file))
        except Exception as error:  # tokenizers raises nothing more specific
            raise DamagedArtefact(
                f"{self._file} is not a tokenizer that can be loaded: {summarize_error(error)[:200]}"
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of ``tokenizer.json``, in hexadecimal digits."""
        return hashlib.sha256(self._file.read_bytes()).hexdigest()

    def tokenizes_like(self, other: "TextTokenizer") -> bool:
        """Return True if both tokenizers give any text the same ids, apart from [CLS] and [SEP]."""
        one, two = (json.loads(item._file.read_text(encoding="utf-8")) for item in (self, other))
        return all(one.get(name) == two.get(name) for name in ("normalizer", "pre_tokenizer", "model", "added_tokens"))

    @cached_property
    def special_ids(self) -> tuple[int, int]:
        """Ids of the tokens that begin a sequence and end a segment.

        Raises:
            ArtefactError: the tokenizer has no such tokens.
        """
        for names in (("[CLS]", "[SEP]"), ("<s>", "</s>")):
            first, last = map(self._find_id, names)
            if first is not None and last is not None:
                return first, last
        raise ArtefactError(
            f"{self._file} has neither [CLS] and [SEP] nor <s> and </s>: it is not the tokenizer of an encoder"
        )

    @cached_property
    def mask_id(self) -> int:
        """Id of the mask token.

        Raises:
            ArtefactError: the tokenizer has no mask token.
        """
        if (mask := self._find_id("[MASK]", "<mask>")) is None:
            raise ArtefactError("the tokenizer has neither [MASK] nor <mask>: pretraining needs one")
        return mask

    @cached_property
    def unknown_id(self) -> int | None:
        """Id of the token for text outside the vocabulary; None if the tokenizer has none."""
        return self._find_id("[UNK]", "<unk>")

    def _find_id(self, *names: str) -> int | None:
        numbers = map(self._tokenizer.token_to_id, names)
        return next((number for number in numbers if number is not None), None)

    @cached_property
    def ordinary_ids(self) -> list[int]:
        """Sorted ids of all wordpieces except special ones ([CLS], [unused3] …)."""
        special = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        return sorted(
            number
            for piece, number in self._tokenizer.get_vocab().items()
            if piece not in special and not (len(piece) > 2 and piece[0] in "[<" and piece[-1] in "]>")
        )

    def tokenize(self, text: str) -> Pieces:
        """Return the wordpieces of ``text``, without special tokens."""
        return _make_pieces(self._encode(text))

    def tokenize_batch(self, texts: list[str]) -> list[Pieces]:
        """Return the wordpieces of each text, using all cores."""
        encodings = self._tokenizer.encode_batch(list(map(replace_surrogates, texts)), add_special_tokens=False)
        return list(map(_make_pieces, encodings))

    def encode_text(self, text: str, max_tokens: int) -> TokenInput:
        """Return the ids of [CLS] text [SEP], cut to ``max_tokens`` ids including both.

        Raises:
            ArtefactError: as for ``special_ids``.
        """
        first, last = self.special_ids
        # The wordpieces of a text of megabytes would take gigabytes, although most are cut off.
        ids = [first, *self._encode(text[: max_tokens * _CHARACTERS_PER_PIECE]).ids[: max_tokens - 2], last]
        return TokenInput(ids, len(ids))

    def make_reader_prefix(self, question: list[int], title: list[int]) -> tuple[list[int], int]:
        """Return the ids with which a reader's input begins, before the passage.

        Args:
            question: ids of the question, cut to ``MAX_QUESTION``.
            title: ids of the title, cut to ``MAX_TITLE``; if empty, the title and its [SEP] are left out.

        Returns:
            Ids of [CLS] question [SEP] title [SEP], and their number up to and including the first [SEP].

        Raises:
            ArtefactError: as for ``special_ids``.
        """
        first, last = self.special_ids
        head = [first, *question[:MAX_QUESTION], last]
        tail = [*title[:MAX_TITLE], last] if title else []
        return head + tail, len(head)

    def _encode(self, text: str) -> Encoding:
        return self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)


def _make_pieces(encoding: Encoding) -> Pieces:
    return Pieces(encoding.ids, encoding.offsets, encoding.word_ids)
