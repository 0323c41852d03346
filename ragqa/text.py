"""Normalisation of answers: one rule, used where answers are merged and where they are scored."""

import re
import string
import unicodedata
from typing import Literal

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
