"""Dates in English text, found by regular expressions.

Absolute dates are days, weekdays, months, years, decades, centuries and millennia. Relative dates are expressions such
as "the next day", "two years later" and "today".
"""

import re
from collections.abc import Iterator

Range = tuple[int, int]
"""First and last character (exclusive) of a span."""

_DASH = "[-–—]"
_FULL = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
_MONTH = rf"(?:{_FULL}|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?\b"
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th|d)?\b"
_ERA = r"(?:\s?(?:BCE?\b|CE\b|AD\b|B\.C\.E\.|B\.C\.|A\.D\.|C\.E\.))"
_BARE = "(?:1[0-9]{3}|20[0-9]{2})"
_YEAR = rf"(?:[1-9][0-9]{{0,3}}{_ERA}|{_BARE}\b)"
_ORDINALS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth|"
    "fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth|twenty-first"
)
_ORDINAL = rf"(?:[0-9]{{1,2}}(?:st|nd|rd|th)|{_ORDINALS})\b"
_PART = r"""(?:
    (?:[Ee]arly|[Ll]ate|[Mm]id|[Ll]ater)[\s-]
  | (?:[Ss]pring|[Ss]ummer|[Aa]utumn|[Ff]all|[Ww]inter)\s(?:of\s)?
  | (?:first|second|third|fourth|last|latter|early|later|middle|final)\s(?:half|quarter|third|part|decades?|years)\sof\s
        (?:the\s)?(?:year\s)?
  )?"""

_ABSOLUTE = re.compile(
    rf"""(?<!\w)(?<![0-9][.,]) {_PART} (?:
    (?:{_WEEKDAY},?\s)? {_DAY}(?:\s?{_DASH}\s?{_DAY})?\s(?:day\s)?(?:of\s)?{_MONTH}(?:,?\s{_YEAR})?  # 4 July 1776
  | (?:{_WEEKDAY},?\s)? {_MONTH}\s{_DAY}(?!%|[,.][0-9]|\s(?:million|percent))(?:\s?{_DASH}\s?(?:{_MONTH}\s)?{_DAY})?
        (?:,?\s{_YEAR})?                                                            # July 4, 1776
  | {_MONTH}(?:{_DASH}{_MONTH})?(?:\sof)?,?\s(?:{_YEAR}|[1-9][0-9]{{2}}\b)           # July 1776
  | {_ORDINAL}\s{_WEEKDAY}\s(?:of|in)\s{_FULL}                                      # third Monday of November
  | {_FULL}(?:{_DASH}{_FULL})?
  | {_WEEKDAY}
  | {_ORDINAL}[\s-](?:centur(?:y|ies)|millenni(?:um|a))\b{_ERA}?                    # 19th century
  | {_ORDINAL}(?=\s(?:and|or|to|until)\s(?:the\s)?(?:(?:early|late|mid|later)[\s-])?{_ORDINAL}[\s-]centur)
  | (?:[0-9]{{0,3}}0|['’][1-9]0)['’]?s\b{_ERA}?                                     # 1990s
  | (?:AD|A\.D\.)\s[1-9][0-9]{{0,3}}\b
  | [1-9][0-9]{{0,3}}(?:{_DASH}[1-9][0-9]{{0,3}})?{_ERA}                            # 44 BC
  | {_BARE}-[01][0-9]-[0-3][0-9]\b                                                  # 1776-07-04
  | {_BARE}(?:{_DASH}(?:{_BARE}|[0-9]{{2}}))?(?![\w%°]|[.,:/][0-9])                 # 1776, 1914–18
    )""",
    re.VERBOSE,
)
_COUNT = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty"
_PERIOD = r"(?:days?|weeks?|months?|years?|decades?|centur(?:y|ies))\b"
_RELATIVE = re.compile(
    rf"""
    \b(?:[Tt]oday|[Yy]esterday|[Tt]omorrow)\b
  | \b(?:last|next|following|previous|same|that)\s(?:day|week|month|year|decade|century|weekend|summer|winter)\b
  | \b(?:last|past|next)\s(?:few|several|{_COUNT})\s{_PERIOD}(?!\sof\b)
  | \b(?i:an?|one|{_COUNT}|several|few|[0-9]{{1,4}})\s{_PERIOD}\s(?:later|earlier|ago|before|after(?=[.,]))\b
  | (?<=[Yy]ear\s)[1-9][0-9]{{0,3}}\b(?!\.[0-9])                                    # the year 390
  | (?<=\b[Ii]n\s)[1-9][0-9]{{2}}\b(?=[,.;)]?(?:\s(?:and|when|by|after|to|until|he|she|it|they|the|with|under)\b|$))
  | (?<=\()[1-9][0-9]{{2}}{_DASH}[1-9][0-9]{{2,3}}(?=\))                            # (817–824)
    """,
    re.VERBOSE | re.MULTILINE,
)
_BARE_YEAR = re.compile(_BARE)
_NO_PLURALS = "was|is|has|as|its|his|this|series|thus|plus|does|census|across"
_COUNTED_NOUN = re.compile(
    rf"""\s(?:(?!(?:{_NO_PLURALS})\b)[a-z]+(?:[^su\W]s|people|children|men|women)|km|kg|mm|cm|m|ft|feet|mi|percent|
    million|billion)\b""",
    re.VERBOSE,
)
_BEFORE_YEAR = re.compile(
    r"""(?:\b(?:[Ii]n|[Ss]ince|[Uu]ntil|[Bb]y|[Ff]rom|[Dd]uring|of|[Tt]he|an?|his|her|its|their|[Aa]fter|[Bb]efore|
    [Bb]etween|to|year)\s|\()$""",
    re.VERBOSE,
)
_BEFORE_NUMBER = re.compile(
    r"(?:[$€£¥]\s?|\b(?:pp?\.|nos?\.|nearly|over|some|almost|than|least|only|page|pages|Nearly|Over|Some)\s)$"
)
_BEFORE_MAY = re.compile(
    r"\b(?:[Ii]n|[Ss]ince|[Uu]ntil|[Dd]uring|of|[Bb]y|[Ff]rom|to|[Bb]etween|and|[Ee]ach|[Ee]very|last|next|this)\s$"
)
_CONTEXT = 16
"""Number of characters before a match that help to decide if the match is a date."""


def find_dates(text: str) -> Iterator[Range]:
    """Yield the first and last character (exclusive) of each date, sorted and without overlaps."""
    spans = [match.span() for match in _ABSOLUTE.finditer(text) if _is_date(text, match)]
    spans += [match.span() for match in _RELATIVE.finditer(text)]
    yield from drop_overlaps(spans)


def drop_overlaps(spans: list[Range]) -> Iterator[Range]:
    """Yield spans in the order of their starts, without spans that overlap a yielded span.

    If spans have the same start, the longest is yielded.
    """
    end = 0
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= end:
            yield start, stop
            end = stop


def _is_date(text: str, match: re.Match[str]) -> bool:
    """Return True if the context allows a date: not for 1200 people or August Strindberg."""
    word, (start, end) = match.group(), match.span()
    before = text[max(0, start - _CONTEXT) : start]
    is_first_name = text[end : end + 1].isspace() and text[end + 1 : end + 2].isupper()  # August Strindberg
    if _BARE_YEAR.fullmatch(word):
        if _BEFORE_NUMBER.search(before):
            return False
        return not _COUNTED_NOUN.match(text, end) or bool(_BEFORE_YEAR.search(before))
    if word in ("May", "March"):
        return not is_first_name and bool(_BEFORE_MAY.search(before))
    return word not in ("April", "June", "August") or not is_first_name
