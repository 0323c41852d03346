"""Normal forms of texts: normalised answers, DPR's tokens, and valid Unicode."""

import re
import string
import unicodedata
from functools import cache
from typing import Any, Literal

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SEPARATOR = "\x1f"
"""Separator of tokens: a control character, which no token contains."""


def to_nfd(text: str) -> str:
    """Return Unicode's canonical decomposition, which separates letters from their accents.

    Some patterns become invalid, for example with an escaped accent: CuratedTREC has a few.
    """
    return unicodedata.normalize("NFD", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def normalize_answer(text: str, *, unicode: Literal["NFD"] | None = None) -> str:
    """Lower-case a text and drop ASCII punctuation, then articles, then surplus white space.

    The order matters and is SQuAD's (Rajpurkar et al. 2016, official script). ``unicode="NFD"``
    decomposes first, as ORQA and NQ-open do; SQuAD and DPR do not.
    """
    if unicode is not None:
        text = unicodedata.normalize(unicode, text)
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def split_words(text: str) -> list[str]:
    """Return lower-case tokens: runs of letters, digits and marks, or one other visible sign.

    This is DPR's tokenizer (Karpukhin et al. 2020) on the NFD form; it decides whether a passage holds an answer.
    """
    return [token.lower() for token in _token_pattern().findall(to_nfd(text))]


def join_tokens(tokens: list[str]) -> str:
    """Join tokens to a text that contains the joined tokens of each answer in it."""
    return _SEPARATOR + _SEPARATOR.join(tokens) + _SEPARATOR


def locate_answer(text: str, answer: str) -> tuple[int, int] | None:
    """Return start and end of the first place where ``text`` holds ``answer``, or None.

    Places are compared by ``split_words``, as in ``metrics.has_answer``: case, the form of accents and what stands
    between tokens do not matter.
    """
    tokens = split_words(answer)
    if not tokens:
        return None
    spans = [(match.start(), match.end()) for match in _token_pattern().finditer(text)]
    text_tokens = [to_nfd(text[start:end]).lower() for start, end in spans]
    for first in range(len(text_tokens) - len(tokens) + 1):
        if text_tokens[first : first + len(tokens)] == tokens:
            return spans[first][0], spans[first + len(tokens) - 1][1]
    return None


@cache
def _token_pattern() -> Any:
    import regex  # Python's own re has no Unicode categories

    return regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", regex.UNICODE)
