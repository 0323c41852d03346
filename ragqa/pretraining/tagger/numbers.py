"""Numbers in English text, found by regular expressions: digits, words and Roman numerals.

A number includes words such as ``million``, but not its unit. ``one`` alone is no number, since it is more often a
pronoun, except in "number one". ``first`` and ``second`` are numbers only after a word such as ``the`` or ``very``.
"""

import re
from collections.abc import Iterator

from ragqa.pretraining.tagger.dates import Range, drop_overlaps

_SCALE = r"(?:\s(?:hundred|thousand|million|billion|trillion)\b)"
_DIGITS = r"(?:[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)"
_UNIT = r"(?:km|kg|mm|cm|nm|m|ft|GB|MB|KB|kHz|MHz|GHz|Hz|kV|V|kW|MW|W|mg|g|bit|s|x)\b"
_ONES = "[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|[Ss]ix|[Ss]even|[Ee]ight|[Nn]ine|[Zz]ero"
_TEENS = "[Tt]en|[Ee]leven|[Tt]welve|[Tt]hirteen|[Ff]ourteen|[Ff]ifteen|[Ss]ixteen|[Ss]eventeen|[Ee]ighteen|[Nn]ineteen"
_TENS = "[Tt]wenty|[Tt]hirty|[Ff]orty|[Ff]ifty|[Ss]ixty|[Ss]eventy|[Ee]ighty|[Nn]inety"
_WORD = rf"(?:(?:{_TENS})(?:-(?:one|{_ONES}))?|{_TEENS}|{_ONES}|[Dd]ozen)\b"
_PARTS = r"(?:halves|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?)\b"
_HIGHER_ORDINALS = (
    "third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|sixteenth|"
    "seventeenth|eighteenth|nineteenth|twentieth|thirtieth|fortieth|fiftieth|hundredth"
)

_IN_DIGITS = re.compile(
    rf"""(?<![\w.])(?<!\w[-–,:/]) (?:(?<![\w)\]])[-−])? {_DIGITS} (?:[-–—/:]{_DIGITS})*
    (?: (?:st|nd|rd|th)\b | (?={_UNIT}) | {_SCALE}{{0,2}}(?!\w) )""",
    re.VERBOSE,
)
# The lookahead for the first letter does not change the matches; it makes the search faster.
_IN_WORDS = re.compile(
    rf"""(?=[oOtTfFsSeEnNzZdD])(?<![\w-])(?:
    (?:[Oo]ne|{_WORD})[\s-]{_PARTS} | (?:(?:[Oo]ne|{_WORD}){_SCALE}(?:\s(?:and\s)?{_WORD})? | {_WORD}){_SCALE}*
  | (?<=number\s)one\b )""",
    re.VERBOSE,
)
_ORDINAL = re.compile(
    rf"(?=[fFstTenh])(?<![\w-])(?:(?:{_TENS})-(?:first|second|{_HIGHER_ORDINALS})|first|second|{_HIGHER_ORDINALS})\b"
)
_ROMAN = re.compile(
    r"(?<!\w)(?=[IVXLCDM]{3})M{0,4}(?:CM|CD|D?C{0,4})(?:XC|XL|L?X{0,4})(?:IX|IV|V?I{0,4})(?!\w)",
)
_DETERMINER = re.compile(
    r"""(?:\b(?:the|an?|its|his|her|their|our|my|this|that|whose|and|or|very|only|one's|The|A|Its|His|Her|Their|Our|
    My)|['’]s)\s$""",
    re.VERBOSE,
)
_CONTEXT = 8
"""Number of characters before an ordinal in which to look for a determiner."""


def find_numbers(text: str) -> Iterator[Range]:
    """Yield the first and last character (exclusive) of each number, sorted, without overlaps."""
    spans = [match.span() for match in _IN_DIGITS.finditer(text)]
    spans += [match.span() for match in _ROMAN.finditer(text)]
    spans += [match.span() for match in _IN_WORDS.finditer(text)]
    spans += [match.span() for match in _ORDINAL.finditer(text) if _is_adjective(text, match)]
    yield from drop_overlaps(spans)


def _is_adjective(text: str, match: re.Match[str]) -> bool:
    """Return True if an ordinal is an adjective; only ``first`` and ``second`` can be adverbs."""
    is_unambiguous = match.group() not in ("first", "second")
    return is_unambiguous or bool(_DETERMINER.search(text, max(0, match.start() - _CONTEXT), match.start()))
