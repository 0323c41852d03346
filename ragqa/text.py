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


def occurrence(text: str, answer: str) -> tuple[int, int] | None:
    """First and last character of the first place where ``text`` holds ``answer``, by the rule of ``words``.

    As ``metrics.has_answer`` sees it: case, accents' form and what is between the tokens aside. None where it does not.
    """
    tokens = words(answer)
    if not tokens:
        return None
    found = [(match.start(), match.end()) for match in _tokens().finditer(text)]
    said = [unicodedata.normalize("NFD", text[start:end]).lower() for start, end in found]
    for first in range(len(said) - len(tokens) + 1):
        if said[first : first + len(tokens)] == tokens:
            return found[first][0], found[first + len(tokens) - 1][1]
    return None


@cache
def _tokens() -> Any:
    import regex  # Python's own re knows no Unicode categories

    return regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", regex.UNICODE)
