"""Numbers in English text, found by pattern: in digits, in words, in Roman numerals.

The unit does not belong to a number, but ``million`` does. ``one`` alone is more often a pronoun, and ``first`` and
``second`` are numbers only where something determines them: the second floor.
"""

import re
from collections.abc import Iterator

Range = tuple[int, int]

_SCALE = r"(?:\s(?:hundred|thousand|million|billion|trillion)\b)"
_DIGITS = r"(?:[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)"
_UNIT = r"(?:km|kg|mm|cm|nm|m|ft|GB|MB|KB|kHz|MHz|GHz|Hz|kV|V|kW|MW|W|mg|g|bit|s|x)\b"
_ONES = "[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|[Ss]ix|[Ss]even|[Ee]ight|[Nn]ine|[Zz]ero"
_TEENS = "[Tt]en|[Ee]leven|[Tt]welve|[Tt]hirteen|[Ff]ourteen|[Ff]ifteen|[Ss]ixteen|[Ss]eventeen|[Ee]ighteen|[Nn]ineteen"
_TENS = "[Tt]wenty|[Tt]hirty|[Ff]orty|[Ff]ifty|[Ss]ixty|[Ss]eventy|[Ee]ighty|[Nn]inety"
_WORD = rf"(?:(?:{_TENS})(?:-(?:one|{_ONES}))?|{_TEENS}|{_ONES}|[Dd]ozen)\b"
_PARTS = r"(?:halves|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?)\b"
_LATER = (
    "third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|sixteenth|"
    "seventeenth|eighteenth|nineteenth|twentieth|thirtieth|fortieth|fiftieth|hundredth"
)

_IN_DIGITS = re.compile(
    rf"""(?<![\w.])(?<!\w[-–,:/]) (?:(?<![\w)\]])[-−])? {_DIGITS} (?:[-–—/:]{_DIGITS})*
    (?: (?:st|nd|rd|th)\b | (?={_UNIT}) | {_SCALE}{{0,2}}(?!\w) )""",
    re.VERBOSE,
)
# The letters at the front only make it fast.
_IN_WORDS = re.compile(
    rf"""(?=[oOtTfFsSeEnNzZdD])(?<![\w-])(?:
    (?:[Oo]ne|{_WORD})[\s-]{_PARTS} | (?:(?:[Oo]ne|{_WORD}){_SCALE}(?:\s(?:and\s)?{_WORD})? | {_WORD}){_SCALE}*
  | (?<=number\s)one\b )""",
    re.VERBOSE,
)
_ORDINAL = re.compile(rf"(?=[fFstTenh])(?<![\w-])(?:(?:{_TENS})-(?:first|second|{_LATER})|first|second|{_LATER})\b")
_ROMAN = re.compile(
    r"(?<!\w)(?=[IVXLCDM]{3})M{0,4}(?:CM|CD|D?C{0,4})(?:XC|XL|L?X{0,4})(?:IX|IV|V?I{0,4})(?!\w)",
)
_DETERMINER = re.compile(
    r"""(?:\b(?:the|an?|its|his|her|their|our|my|this|that|whose|and|or|very|only|one's|The|A|Its|His|Her|Their|Our|
    My)|['’]s)\s$""",
    re.VERBOSE,
)
_LOOK = 8


def find_numbers(text: str) -> Iterator[Range]:
    """Start and end of each number in ``text``, in order and apart."""
    found = [match.span() for match in _IN_DIGITS.finditer(text)]
    found += [match.span() for match in _ROMAN.finditer(text)]
    found += [match.span() for match in _IN_WORDS.finditer(text)]
    found += [match.span() for match in _ORDINAL.finditer(text) if _determined(text, match)]
    end = 0
    for start, stop in sorted(found, key=lambda span: (span[0], -span[1])):
        if start >= end:
            yield start, stop
            end = stop


def _determined(text: str, match: re.Match[str]) -> bool:
    """Whether ``first`` or ``second`` is an adjective; other ordinals always are."""
    if match.group() not in ("first", "second"):
        return True
    return bool(_DETERMINER.search(text, max(0, match.start() - _LOOK), match.start()))
