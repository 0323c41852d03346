"""Names of people, places, organisations, works and nationalities, found by their capitals.

``find_names`` finds runs of capitalised words with the linking words between them (``of`` in University of Oxford). It
splits a run where a linking word or a person's title shows that there are two names. It drops words that have a capital
only because they open a sentence.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ragqa.pretraining.tagger import words
from ragqa.pretraining.tagger.dates import Range
from ragqa.pretraining.tagger.lexicon import Lexicon


def _list_capitals() -> str:
    """Return all capital letters for a character class, since ``re`` has no class for them."""
    letters = map(chr, range(0x20000))  # Unicode has no capitals above
    return re.escape("".join(letter for letter in letters if letter.isupper() or letter.istitle()))


_UP = _list_capitals()
_IN = r"\w\u0300-\u036f"  # \w does not include combining accents
_SPACE = "[ \xa0]"
_CAPITALISED = rf"[{_UP}][{_IN}]*(?:['’](?!s(?![{_IN}]))(?=[^\W\d_]{{2}})[{_IN}]+)*"
_JOINED = rf"""(?:
    [-–‐‑](?: [{_UP}0-9][{_IN}]* | (?:[a-z]{{1,5}}[-–‐‑])+[{_UP}][{_IN}]*
            | (?!era|led|run|bit|man|like)[a-z]{{2,3}}(?![{_IN}-]) )
  | &[{_UP}][{_IN}]* )*"""
_DOTTED = rf"(?:[{_UP}]\.){{2,}}(?:[{_UP}](?![{_IN}]))?"
_ABBREVIATED = r"(?:St|Mt|Ste|Ft|Dr|Mr|Mrs|Ms|Prof|Gen|Col|Lt|Rev|Gov|Sen|Hon|Jr|Sr|Inc|Ltd|Corp|Bros)\."
_WORD = rf"(?:{_DOTTED}|[{_UP}]\.(?=\s?[{_UP}])|{_ABBREVIATED}|{_CAPITALISED}{_JOINED})"
_PREFIX = "(?:(?:al|el|as|ad|an|ar|ash|at|az|bin|ibn|ben)[-–]|[dl]['’])"
_LINKS = words.PARTICLES | {"of", "the", "and", "for", "in", "on", "at", "upon", "to", "&"}
_LINK = rf"(?:{'|'.join(sorted(_LINKS))})(?![\w'’.-])"
_NUMBER = rf"[0-9]{{1,4}}(?:[-.:][0-9]+)*[a-z]?(?![{_IN}%°]|[,.:/–][0-9]|-[a-z])"
# The lookahead for the first character does not change the matches; it makes the search faster.
_RUN = re.compile(
    rf"""(?=[A-Z\x80-\U0010ffff])(?<![{_IN}]){_WORD}
    (?: (?:{_SPACE}|(?<=\.)(?=[^ ])) (?:(?:{_LINK}{_SPACE}){{0,3}}{_PREFIX}?{_WORD} | {_NUMBER})
      | ,{_SPACE}(?:{words.SUFFIXES})(?![{_IN}]) )*""",
    re.VERBOSE,
)
_TOKEN = re.compile(r"[^ \xa0,]+")
_PREFIX_BEFORE = re.compile(
    rf"(?<![{_IN}])(?:{_PREFIX}|(?:van|von|de|di|da|du|del|della|ibn|bin|ter|ten){_SPACE}(?:(?:der|den|de|la){_SPACE})?)\Z"
)
_ELEMENT = (
    "(?:A[cglrstu]|B[aeir]?|C[adelorsu]?|Fe?|Ga|H[efg]?|I[nr]?|K|L[ai]|M[gno]|N[aie]?|O|P[bdt]?|S[bcein]?|Ti|U|W|Xe|"
    "Z[nr])"
)
_FORMULA = re.compile(rf"(?=\w*[0-9])(?:{_ELEMENT}[0-9]*){{2,}}|{_ELEMENT}{{2,}}(?<=[a-z])")
_ROMAN = re.compile("[IVXLCDM]{4,}")
_BEFORE_OF = words.HEADS | words.INSTITUTIONS | words.ORDINARY
_SENTENCE_ENDS = ".!?…:"
_CONTEXT = 14
"""Number of characters before a run that help to decide if the run opens a sentence."""
_LONGEST_TITLE = 8
"""Maximum number of words in a title to look up."""
_LONGEST_NAME = 24
"""Maximum number of words in a name; the limit keeps the running time linear."""


class _Token(NamedTuple):
    """Word in a run of capitalised words, with its first and last character (exclusive)."""

    start: int
    end: int
    text: str

    @property
    def bare(self) -> str:
        """Word in lower case without its full stop; acronyms that look like words stay unchanged."""
        return self.text if self.text in ("US", "WHO", "AM") else self.text.lower().rstrip(".")

    @property
    def is_link(self) -> bool:
        return self.text in _LINKS

    @property
    def is_number(self) -> bool:
        return self.text[0].isdigit()

    @property
    def is_office(self) -> bool:
        return self.bare in words.OFFICES


_Tokens = list[_Token]


def find_names(text: str, lexicon: Lexicon) -> Iterator[Range]:
    """Yield the first and last character (exclusive) of each name, sorted and without overlaps."""
    for match in _RUN.finditer(text):
        start, end = match.span()
        tokens = [_Token(*word.span(), word.group()) for word in _TOKEN.finditer(text, start, end)]
        in_title = _mark_titles(tokens, text, lexicon)
        opens = _opens_sentence(text, start)
        first = _count_openers(tokens, in_title, lexicon) if opens else 0
        for segment in _split_run(tokens[first:], in_title[first:], lexicon):
            is_first = segment[0] is tokens[0]
            if _is_name(segment, opens and is_first, lexicon):
                before = _PREFIX_BEFORE.search(text, max(0, start - _CONTEXT), start) if is_first else None
                yield before.start() if before else segment[0].start, segment[-1].end


def _opens_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - _CONTEXT) : start]
    bare = before.rstrip(" \xa0\t\"'“‘«([*•–-")
    if not bare or bare[-1] == "\n":
        return True
    if bare[-1] not in _SENTENCE_ENDS or len(bare) == len(before):
        return before[-1] in '"“«'
    last = bare.split()[-1].rstrip(".").lower() if bare[-1] == "." else ""
    return not (last in words.ABBREVIATIONS or len(last) == 1)


def _mark_titles(tokens: _Tokens, text: str, lexicon: Lexicon) -> list[bool]:
    """Return True for each word that is in the same document title as the word before it."""
    in_title = [False] * len(tokens)
    for first in range(len(tokens) - 1):
        if in_title[first] or tokens[first].is_link:
            continue
        for last in range(min(len(tokens), first + _LONGEST_TITLE) - 1, first, -1):
            phrase = text[tokens[first].start : tokens[last].end].replace("\xa0", " ")
            if not tokens[last].is_link and lexicon.is_title(phrase):
                start = first + 1 + (tokens[first].bare in words.SOVEREIGNS)
                in_title[start : last + 1] = [True] * (last + 1 - start)
                break
    return in_title


def _count_openers(tokens: _Tokens, in_title: list[bool], lexicon: Lexicon) -> int:
    """Count the first words that open the sentence and belong to no name, and links after them."""
    count = 0
    while count < len(tokens) and _only_opens(tokens, count, in_title, lexicon):
        count += 1
        while count < len(tokens) and tokens[count].is_link:
            count += 1
    return count


def _only_opens(tokens: _Tokens, position: int, in_title: list[bool], lexicon: Lexicon) -> bool:
    after = position + 1
    word, is_linked = tokens[position].bare, after < len(tokens) and tokens[after].is_link
    if after < len(tokens) and in_title[after] and not (is_linked and word in words.OPENERS):
        return False
    if word in words.OPENERS:
        return True
    return position == 0 and is_linked and word not in words.HEADS and lexicon.is_ordinary(word)


def _split_run(tokens: _Tokens, in_title: list[bool], lexicon: Lexicon) -> Iterator[_Tokens]:
    segment: _Tokens = []
    links: _Tokens = []
    for position, token in enumerate(tokens):
        if token.is_link:
            links.append(token)
            continue
        after = tokens[position + 1 : position + 2]
        opens = segment and segment[-1].text.endswith(".") and token.bare in words.OPENERS  # Washington, D.C. The
        if segment and not opens and (in_title[position] or _continues(segment, links, token, after, lexicon)):
            segment += [*links, token]
        else:
            if segment:
                yield segment
            segment = [] if opens else [token]
        links = []
    if segment:
        yield segment


def _continues(segment: _Tokens, links: _Tokens, token: _Token, after: _Tokens, lexicon: Lexicon) -> bool:
    """Return True if a word belongs to the same name as the segment before it."""
    if len(segment) >= _LONGEST_NAME:
        return False
    only_offices = all(word.is_office for word in segment)
    if not links:
        return _continues_without_link(segment[-1], token, after, only_offices)
    if segment[-1].is_number:
        return False
    linked = " ".join(link.text for link in links)
    if linked in ("of", "of the"):
        return segment[-1].bare in words.HOLDERS or (not only_offices and _continues_after_of(segment, lexicon))
    if linked == "the":
        return token.bare in words.BYNAMES
    if linked in ("for", "for the", "and", "at"):
        return _is_institution(segment, linked)
    return all(link.text in words.PARTICLES or link.text in ("&", "upon") for link in links)


def _continues_without_link(last: _Token, token: _Token, after: _Tokens, only_offices: bool) -> bool:
    if token.is_number:
        return last.bare not in words.REFERENCES
    if token.is_office and after and not after[0].is_link and not after[0].is_number:
        return after[0].bare in ("jr", "sr")
    return not only_offices


def _continues_after_of(segment: _Tokens, lexicon: Lexicon) -> bool:
    """Return True if ``of`` continues a name: Royal Society of London, not Jane Doe of Harvard."""
    last = segment[-1]
    if len(segment) == 1:
        return not last.text.isupper()
    return any(word.is_link for word in segment) or last.bare in _BEFORE_OF or lexicon.is_ordinary(last.bare)


def _is_institution(segment: _Tokens, linked: str) -> bool:
    """Return True if a link continues an institution's name: Ministry of Health and Transport."""
    bare = {word.bare for word in segment}
    if linked == "at":
        return "university" in bare
    return bool(bare & words.INSTITUTIONS) and (linked != "and" or bool(bare & {"of", "for", "de"}))


def _is_name(segment: _Tokens, opens_sentence: bool, lexicon: Lexicon) -> bool:
    first = segment[0]
    if first.is_number or all(token.is_office for token in segment):
        return False
    if len(segment) > 1:
        is_heading = all(token.text.isupper() for token in segment) and any(t.bare in words.SMALL for t in segment)
        return not is_heading
    word = first.text.rstrip(".")
    if len(word) < 2 or word in words.NO_NAMES or _FORMULA.fullmatch(word) or _ROMAN.fullmatch(word):
        return False
    if first.bare in words.OPENERS or first.bare in words.REFERENCES:
        return False
    if not opens_sentence:
        return True
    if word.lower() in words.ORDINARY or lexicon.is_ordinary(word):
        return False
    return not word[1:].islower() or lexicon.is_proper(word) or not word.endswith(words.ENDINGS)
