"""Normalise answers, split texts into DPR's tokens, and format numbers for messages."""

import re
import string
import unicodedata
from functools import cache
from typing import Any, Literal

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_FUNCTION_WORDS = (
    "a about after all also am an and any are as at be been before but by called can could did do does each first "
    "for from had has have he her hers him his how i if in into is it its kind last made make many me more most "
    "much my name named no nor not of on only or other our over she should so some than that the their theirs "
    "them then there these they this those to under up us used was we were what when where which while who whom "
    "whose why will with would you your"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Frequent English words, which say little about the subject of a question."""
_SEPARATOR = "\x1f"
"""Separator of joined tokens: a control character, which no token contains."""


def to_nfd(text: str) -> str:
    """Return the Unicode form NFD of a text, which separates letters from their accents.

    A valid pattern can be invalid in this form, for example if it escapes an accented letter.
    """
    return unicodedata.normalize("NFD", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """Return a text with U+FFFD for each lone surrogate, which UTF-8 cannot encode."""
    return _SURROGATE.sub("\ufffd", text)


def format_confidence(confidence: float) -> str:
    """Return a confidence with two decimals, rounded from the four decimals of the JSON output."""
    return f"{round(confidence, 4):.2f}"


def describe_low_confidence(confidence: float, threshold: float) -> str:
    """Return the reason for declining an answer whose confidence is below the threshold."""
    low, limit = format_confidence(confidence), format_confidence(threshold)
    if low == limit:
        low, limit = f"{confidence:.4f}", f"{threshold:.4f}"
    return f"the best has confidence {low}, below {limit}"


def format_count(count: float, nouns: str) -> str:
    """Return a number with its noun, such as ``1 passage`` or ``2,000 passages``.

    Args:
        count: whole number.
        nouns: plural noun; for a count of 1, the final s is left out.
    """
    return f"{count:,.0f} {nouns.removesuffix('s') if count == 1 else nouns}"


def normalize_answer(text: str, *, unicode: Literal["NFD"] | None = None) -> str:
    """Return an answer in lower case without punctuation, articles and extra white space.

    Only ASCII punctuation and English articles are removed. Source: SQuAD (Rajpurkar et al. 2016, official script).

    Args:
        text: text of the answer.
        unicode: Unicode form to which the text is converted first: ``NFD`` as in ORQA and NQ-open, or None for an
            unchanged form as in SQuAD and DPR.
    """
    if unicode is not None:
        text = unicodedata.normalize(unicode, text)
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def is_latin(text: str) -> bool:
    """Return True if at least half of the letters in a text are Latin, or if it has no letters."""
    letters = [char for char in text if char.isalpha()]
    other = [char for char in letters if not char.isascii() and "LATIN" not in unicodedata.name(char, "")]
    return 2 * len(other) <= len(letters)


def split_words(text: str) -> list[str]:
    """Return the lower-case tokens of a text in the Unicode form NFD, by the rule of DPR.

    A token is a run of letters, numbers and marks, or another character that is neither a separator nor a control
    character. Source: ``SimpleTokenizer`` in the repository facebookresearch/DPR.
    """
    return [token.lower() for token in _token_pattern().findall(to_nfd(text))]


def join_tokens(tokens: list[str]) -> str:
    """Join tokens with separators, so that a substring search finds only whole tokens."""
    return _SEPARATOR + _SEPARATOR.join(tokens) + _SEPARATOR


def locate_answer(text: str, answer: str) -> tuple[int, int] | None:
    """Return the place of the first occurrence of an answer in a text.

    The tokens of ``split_words`` are compared, so case, Unicode form and white space do not matter.

    Returns:
        Start and end (exclusive) of the occurrence, in characters; None if there is none, or if the answer has no
        tokens.
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
