"""Titles of works in quotation marks, recognised by capitals or as titles of the corpus."""

import re
from collections.abc import Iterator

from ragqa.pretraining.tagger.lexicon import Lexicon
from ragqa.pretraining.tagger.words import OPENERS, SMALL

_QUOTED = re.compile(r"""(?<![\w"“”])["“](?=\S)([^"“”\n]{2,200})(?<=\S)["”](?!\w)""")
_WORD = re.compile(r"[^\s,:;.!?–—/()-]+")


def find_works(text: str, lexicon: Lexicon) -> Iterator[tuple[int, int]]:
    """Yield the first and last character (exclusive) of each quoted title in ``text``.

    Quotation marks are not part of a title. The titles are sorted and do not overlap.
    """
    for match in _QUOTED.finditer(text):
        quoted = match[1].rstrip(",.;:")
        if _is_title(_WORD.findall(quoted)) or (" " in quoted and lexicon.is_title(quoted)):
            yield match.start(1), match.start(1) + len(quoted)


def _is_title(words: list[str]) -> bool:
    """Return True if words have the capitals of a title.

    Only small words (``of``, ``the``) may be in lower case, and at least two of several words need a capital.
    """
    if not words or not (words[0][0].isupper() or words[0][0].isdigit()):
        return False
    if len(words) == 1:
        return len(words[0]) > 1 and words[0].lower() not in OPENERS
    capitals = sum(word[0].isupper() for word in words)
    return capitals > 1 and all(word in SMALL or not word[0].islower() for word in words)
