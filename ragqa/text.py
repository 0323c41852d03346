"""What texts are compared by: normalised answers, where they are merged and scored, and DPR's tokens."""

import re
import string
import unicodedata
from functools import cache
from typing import Any, Literal

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str, *, unicode: Literal["NFD"] | None = None) -> str:
    """Lower-case, drop ASCII punctuation, then articles, then surplus white space.

    The order matters and is SQuAD's (Rajpurkar et al. 2016, official script). ``unicode="NFD"``
    decomposes first, as ORQA and NQ-open do; SQuAD and DPR do not.
    """
    if unicode is not None:
        text = unicodedata.normalize(unicode, text)
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def words(text: str) -> list[str]:
    """Lower-cased tokens of the NFD form: runs of letters, digits and marks, or one other visible character.

    They are those of DPR's tokenizer (Karpukhin et al. 2020), by which a passage holds an answer.
    """
    return [token.lower() for token in _tokens().findall(unicodedata.normalize("NFD", text))]


@cache
def _tokens() -> Any:
    import regex  # Python's own re knows no Unicode categories

    return regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", regex.UNICODE)
