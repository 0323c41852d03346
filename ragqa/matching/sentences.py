"""Find the sentences of a text."""

import re
from collections.abc import Iterator
from itertools import chain

_OPENING = "\"'“‘«([¿¡"
_CLOSING = "\"'”’»)]"
_STOPS = (".", "!", "?", "…")
# White space that can follow a sentence. Possessive repeats (``++``) do not backtrack, so the time is linear.
_GAP = re.compile(rf"(?<=[.!?…{re.escape(_CLOSING)}])\s++(?=\S)|\n[^\S\n]*+\n")
_CONTEXT = 40
"""Number of characters before white space that are read to decide whether it ends a sentence."""
# Abbreviations that never end a sentence, and below them abbreviations that do not end one before a number.
_BEFORE_ANY = re.compile(
    r"""(?: (?: [^\W\d_]\. )+ [^\W\d_] | mr | mrs | ms | mme | mlle | messrs | dr | drs | prof | st | sts | ste |
    rev | hon | fr | sr | sra | gen | col | maj | capt | cpt | lt | cmdr | adm | sgt | cpl | pvt | gov | sen |
    rep | pres | vs | v | cf | viz | eg | ie | esp | incl | al | op | trans | eds? | dept | univ | assn | bros |
    mts? | ft ) \.""",
    re.IGNORECASE | re.VERBOSE,
)
_BEFORE_NUMBER = re.compile(
    r"""(?: nos? | nr | vols? | pp? | figs? | eqs? | ch | sec | art | c | ca | approx | est | jan | feb | mar | apr |
    jun | jul | aug | sept? | oct | nov | dec | mon | tue | wed | thu | fri | sat | sun ) \.""",
    re.IGNORECASE | re.VERBOSE,
)


def find_sentences(text: str, first: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield the place and the number of words of each sentence.

    White space ends a sentence under three conditions: it follows ``.``, ``!``, ``?`` or ``…``, perhaps with closing
    quotes or brackets; an opening mark, a digit or a letter that is not in lower case follows; the last word is not an
    initial or a common abbreviation. A blank line always ends a sentence.

    Args:
        text: text to divide.
        first: index of the character at which the first sentence begins.

    Yields:
        Start and end (exclusive) of a sentence in the text, in characters, and its number of words.
    """
    gaps = (gap.span() for gap in _GAP.finditer(text, first) if _is_sentence_end(text, *gap.span()))
    start = first
    for end, after in chain(gaps, [(len(text), len(text))]):
        sentence = text[start:end]
        if length := len(sentence.split()):
            yield end - len(sentence.lstrip()), start + len(sentence.rstrip()), length
        start = after


def _is_sentence_end(text: str, start: int, end: int) -> bool:
    if text.count("\n", start, end) > 1:
        return True
    before, after = text[max(0, start - _CONTEXT) : start].rstrip(_CLOSING), text[end]
    if not before.endswith(_STOPS) or not (after in _OPENING or (after.isalnum() and not after.islower())):
        return False
    last = before.split()[-1].lstrip(_OPENING)
    is_initial = len(last) == 2 and last[0].isupper()
    return not (is_initial or _BEFORE_ANY.fullmatch(last) or (after.isdigit() and _BEFORE_NUMBER.fullmatch(last)))
