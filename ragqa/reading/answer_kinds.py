"""Check that an answer is of the kind that the question asks for, such as a date.

The rules reject only answers that are certainly of another kind, such as a height for "how fast".
"""

import re
from collections.abc import Callable

from ragqa.text import normalize_answer

_NUMBER = re.compile(
    r"\d|\b(?:no|none|zero|once|twice|half|quarter|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundreds?|thousands?"
    r"|millions?|billions?|dozens?|several|few|many|single|pair|couple|an? [a-z]+)\b",
    re.IGNORECASE,
)
_TIME_UNIT = re.compile(
    r"\b(?:second|minute|hour|day|night|week|weekend|month|year|decade|centur(?:y|ies)|fortnight|term|season)s?\b|\bh\b|\bmin\b",
    re.IGNORECASE,
)
_LENGTH_UNIT = re.compile(
    r"\b(?:[mck]?m|met(?:re|er)|kilomet(?:re|er)|centimet(?:re|er)|millimet(?:re|er)|mile|foot|feet|ft|inch|inche|yard"
    r"|fathom|league)s?\b",
    re.IGNORECASE,
)
_SPEED = re.compile(
    r"/\s*(?:h|s|min)\b|\b(?:km/?h|kph|mph|knots?|mach|m/s|per (?:second|minute|hour|day)|an hour"
    r"|a (?:second|minute|day)|speed|baud|hz|[mgk]bit)\b",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\d|\b(?:january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun"
    r"|jul|aug|sept?|oct|nov|dec|mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?|spring|summer"
    r"|autumn|fall|winter|centur(?:y|ies)|decades?|ago|today|tomorrow|yesterday|noon|midnight|mornings?|evenings?"
    r"|afternoons?|nights?|overnight|days?|weeks?|weekends?|months?|years?|lunch\w*|breakfast|dinner|christmas|easter"
    r"|after|before|during|until|since|when|while|once|ends?|beginning|ages?|eras?|times?|wars?|dawn|dusk|sunset"
    r"|sunrise|daily|monthly|weekly|yearly|always|never|forever|immediately|now|soon)\b",
    re.IGNORECASE,
)
_FREQUENCY = re.compile(r"\b(?:every|each|per|\w+ly)\b", re.IGNORECASE)
_NOTHING = re.compile(r"\b(?:free|nothing|little)\b", re.IGNORECASE)
_ONLY_NUMBER = re.compile(r"[^A-Za-z]*\d[^A-Za-z]*(?:(?:million|billion|percent|per cent|BC|AD|am|pm|km|m|kg)\W*)?")
_SYMBOL = re.compile(r".{1,4}|\S*[A-Z0-9]\S*[A-Z0-9]\S*")


def _is_speed(text: str) -> bool:
    return bool(_NUMBER.search(text)) and (
        bool(_SPEED.search(text)) or not (_LENGTH_UNIT.search(text) or _TIME_UNIT.search(text))
    )


def _is_extent(text: str) -> bool:
    return bool(_NUMBER.search(text)) and not _SPEED.search(text) and not _TIME_UNIT.search(text)


def _is_distance(text: str) -> bool:
    """Return True for a number that is not a speed; "two hours by train" is a distance."""
    return bool(_NUMBER.search(text)) and not _SPEED.search(text)


def _is_duration_or_length(text: str) -> bool:
    return bool(_NUMBER.search(text) or _DATE.search(text))


def _is_frequency(text: str) -> bool:
    return bool(_NUMBER.search(text) or _DATE.search(text) or _FREQUENCY.search(text))


def _is_amount(text: str) -> bool:
    return bool(_NUMBER.search(text) or _NOTHING.search(text))


_KINDS: tuple[tuple[re.Pattern[str], Callable[[str], object]], ...] = (
    (re.compile(r"how (?:fast|quick)\b|(?:what|which) (?:top |maximum |average )?speed\b"), _is_speed),
    (re.compile(r"how (?:high|tall|deep|wide|thick)\b"), _is_extent),
    (re.compile(r"how far\b"), _is_distance),
    (re.compile(r"how long\b"), _is_duration_or_length),
    (re.compile(r"how often\b"), _is_frequency),
    (re.compile(r"how much\b"), _is_amount),
    (re.compile(r"how (?:many|old|heavy|large|big|hot|cold)\b"), _NUMBER.search),
    (
        re.compile(r"(?:what|which) (?:year|date|day|month|century|decade)\b|since when\b|until when\b|when\b"),
        _DATE.search,
    ),
    (re.compile(r"who(?:m|se)?\b|where\b"), lambda text: not _ONLY_NUMBER.fullmatch(text)),
)
_ASKING = re.compile(
    r"^\W*(?:(?:and|so|but|well)\s+)?(?:(?:in|at|on|by|from|to|for|of|with|since|until|under|after|about)\s+)?(?:the\s+)?"
)
_SYMBOL_QUESTION = re.compile(r"\b(?:symbol|abbreviation|acronym) (?:of|for)\b")
_CHOICE = re.compile(
    r" or |\bcolou?r\b|\bbetween\b|^\W*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would)\b"
)


def make_kind_check(question: str) -> Callable[[str], bool]:
    """Return a function that checks whether an answer fits the question.

    An answer does not fit if it is of another kind than the question asks for, or if it only repeats words of the
    question. It may repeat words if the question offers a choice ("or", "between"), asks for a colour, or asks for yes
    or no.

    Args:
        question: text of the question.

    Returns:
        Function from the text of an answer to False if it certainly does not fit, else True.
    """
    lower = question.lower().strip()
    start = _ASKING.sub("", lower, count=1)
    fits: Callable[[str], object] = lambda text: True  # noqa: E731
    if _SYMBOL_QUESTION.search(lower):
        fits = _SYMBOL.fullmatch
    else:
        fits = next((check for pattern, check in _KINDS if pattern.match(start)), fits)
    words = set(normalize_answer(question).split())
    is_choice = bool(_CHOICE.search(lower))

    def check(text: str) -> bool:
        if not fits(text):
            return False
        return is_choice or not set(normalize_answer(text).split()) <= words

    return check
