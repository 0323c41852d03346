"""Exact match of ORQA, REALM and NQ-open (Lee et al. 2019), written from the rule; no script was copied.

Unicode NFD comes first, then SQuAD's normalisation. CuratedTREC's answers are patterns, which must
match the prediction as it stands, from its first character but not to its last; a pattern that does
not compile matches nothing.
"""

import re
import unicodedata
from collections.abc import Sequence

from tests.oracles import squad


def normalise(text: str) -> str:
    return squad.normalise(unicodedata.normalize("NFD", text))


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    return any(normalise(prediction) == normalise(answer) for answer in answers)


def pattern_match(prediction: str, patterns: Sequence[str]) -> bool:
    """Return True if a pattern matches at the start: the leftmost match then starts at 0."""
    found = (_first_place(pattern, prediction) for pattern in patterns)
    return any(place == 0 for place in found)


def _first_place(pattern: str, text: str) -> int | None:
    try:
        found = re.search(pattern, text, re.IGNORECASE | re.UNICODE | re.MULTILINE)
    except re.error:
        return None
    return found.start() if found else None
