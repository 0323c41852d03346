"""Names in English text, found by their capitals: of people, places, organisations, works, nationalities.

A run of capitalised words is cut where a linking word or a person's title shows that it is more than one name, and is
dropped where it only opens a sentence. A linking word: ``of`` in University of Oxford.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ragqa.pretraining.tagger import words
from ragqa.pretraining.tagger.lexicon import Lexicon

Range = tuple[int, int]


def _capitals() -> str:
    """Every capital, as the inside of a character class; ``re`` knows none for them."""
    letters = map(chr, range(0x20000))  # there are none above
    return re.escape("".join(letter for letter in letters if letter.isupper() or letter.istitle()))


_UP = _capitals()
_IN = r"\w\u0300-\u036f"  # accents may be characters of their own
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
# The characters at the front only make it fast.
_RUN = re.compile(
    rf"""(?=[A-Z\x80-\U0010ffff])(?<![{_IN}]){_WORD}
    (?: (?:{_SPACE}|(?<=\.)(?=[^ ])) (?:(?:{_LINK}{_SPACE}){{0,3}}{_PREFIX}?{_WORD} | {_NUMBER})
      | ,{_SPACE}(?:{words.SUFFIXES})(?![{_IN}]) )*""",
    re.VERBOSE,
)
_TOKEN = re.compile(r"[^ \xa0,]+")
_BEFORE = re.compile(
    rf"(?<![{_IN}])(?:{_PREFIX}|(?:van|von|de|di|da|du|del|della|ibn|bin|ter|ten){_SPACE}(?:(?:der|den|de|la){_SPACE})?)\Z"
)
_ELEMENT = (
    "(?:A[cglrstu]|B[aeir]?|C[adelorsu]?|Fe?|Ga|H[efg]?|I[nr]?|K|L[ai]|M[gno]|N[aie]?|O|P[bdt]?|S[bcein]?|Ti|U|W|Xe|"
    "Z[nr])"
)
_FORMULA = re.compile(rf"(?=\w*[0-9])(?:{_ELEMENT}[0-9]*){{2,}}|{_ELEMENT}{{2,}}(?<=[a-z])")
_ROMAN = re.compile("[IVXLCDM]{4,}")
_BEFORE_OF = words.HEADS | words.INSTITUTIONS | words.ORDINARY
_ENDS = ".!?…:"
_LOOK = 14
_LONGEST = 8
"""Words of a title that are looked up."""
_MOST = 24
"""Words of a name, so that no text takes longer than another."""


class Token(NamedTuple):
    """A word of a run, and where it stands in the text."""

    start: int
    end: int
    text: str

    @property
    def bare(self) -> str:
        """The word in lower case without its full stop; ``US`` stays what it is."""
        return self.text if self.text in ("US", "WHO", "AM") else self.text.lower().rstrip(".")

    @property
    def is_link(self) -> bool:
        return self.text in _LINKS

    @property
    def is_number(self) -> bool:
        return self.text[0].isdigit()

    @property
    def is_office(self) -> bool:
        """Whether it is a person's title: Emperor, Dr."""
        return self.bare in words.OFFICES


Tokens = list[Token]


def find_names(text: str, lexicon: Lexicon) -> Iterator[Range]:
    """Start and end of each name in ``text``, in order and apart."""
    for match in _RUN.finditer(text):
        start, end = match.span()
        tokens = [Token(*found.span(), found.group()) for found in _TOKEN.finditer(text, start, end)]
        known = _known(tokens, text, lexicon)
        opens = _opens_sentence(text, start)
        first = _openers(tokens, known, lexicon) if opens else 0
        for segment in _segments(tokens[first:], known[first:], lexicon):
            alone = opens and segment[0] is tokens[0]
            if _is_name(segment, alone, lexicon):
                before = _BEFORE.search(text, max(0, start - _LOOK), start) if segment[0] is tokens[0] else None
                yield before.start() if before else segment[0].start, segment[-1].end


def _opens_sentence(text: str, start: int) -> bool:
    """Whether the character at ``start`` has a capital only because a sentence, or a quote, begins there."""
    before = text[max(0, start - _LOOK) : start]
    bare = before.rstrip(" \xa0\t\"'“‘«([*•–-")
    if not bare or bare[-1] == "\n":
        return True
    if bare[-1] not in _ENDS or len(bare) == len(before):
        return before[-1] in '"“«'
    last = bare.split()[-1].rstrip(".").lower() if bare[-1] == "." else ""
    return not (last in words.ABBREVIATIONS or len(last) == 1)


def _known(tokens: Tokens, text: str, lexicon: Lexicon) -> list[bool]:
    """Of each word, whether it and the one before it are in the same title."""
    known = [False] * len(tokens)
    for first in range(len(tokens) - 1):
        if known[first] or tokens[first].is_link:
            continue
        for last in range(min(len(tokens), first + _LONGEST) - 1, first, -1):
            phrase = text[tokens[first].start : tokens[last].end].replace("\xa0", " ")
            if not tokens[last].is_link and lexicon.is_title(phrase):
                start = first + 1 + (tokens[first].bare in words.SOVEREIGNS)
                known[start : last + 1] = [True] * (last + 1 - start)
                break
    return known


def _openers(tokens: Tokens, known: list[bool], lexicon: Lexicon) -> int:
    """How many words at the front only open the sentence, and the links after them."""
    at = 0
    while at < len(tokens) and _only_opens(tokens, at, known, lexicon):
        at += 1
        while at < len(tokens) and tokens[at].is_link:
            at += 1
    return at


def _only_opens(tokens: Tokens, at: int, known: list[bool], lexicon: Lexicon) -> bool:
    word, linked = tokens[at].bare, at + 1 < len(tokens) and tokens[at + 1].is_link
    if at + 1 < len(tokens) and known[at + 1] and not (linked and word in words.OPENERS):
        return False
    if word in words.OPENERS:
        return True
    return at == 0 and linked and word not in words.HEADS and lexicon.is_ordinary(word)


def _segments(tokens: Tokens, known: list[bool], lexicon: Lexicon) -> Iterator[Tokens]:
    """The run cut into names."""
    segment: Tokens = []
    links: Tokens = []
    for at, token in enumerate(tokens):
        if token.is_link:
            links.append(token)
        elif segment and segment[-1].text.endswith(".") and token.bare in words.OPENERS:  # at Washington, D.C. The
            yield segment
            segment, links = [], []
        elif segment and (known[at] or _joins(segment, links, token, tokens[at + 1 : at + 2], lexicon)):
            segment += [*links, token]
            links = []
        else:
            if segment:
                yield segment
            segment, links = [token], []
    if segment:
        yield segment


def _joins(segment: Tokens, links: Tokens, token: Token, after: Tokens, lexicon: Lexicon) -> bool:
    """Whether a word belongs to the same name as those before it."""
    if len(segment) >= _MOST:
        return False
    offices = all(word.is_office for word in segment)
    if not links:
        return _follows(segment[-1], token, after, offices)
    if segment[-1].is_number:
        return False
    linked = " ".join(link.text for link in links)
    if linked in ("of", "of the"):
        return segment[-1].bare in words.HOLDERS or (not offices and _is_of(segment, lexicon))
    if linked == "the":
        return token.bare in words.BYNAMES
    if linked in ("for", "for the", "and", "at"):
        return _institution(segment, linked)
    return all(link.text in words.PARTICLES or link.text in ("&", "upon") for link in links)


def _follows(last: Token, token: Token, after: Tokens, offices: bool) -> bool:
    """Whether two words that stand side by side are of one name."""
    if token.is_number:
        return last.bare not in words.REFERENCES
    if token.is_office and after and not after[0].is_link and not after[0].is_number:
        return after[0].bare in ("jr", "sr")
    return not offices


def _is_of(segment: Tokens, lexicon: Lexicon) -> bool:
    """Whether ``of`` goes on with a name: Margaret of Valois, Royal Society of London, but not Jane Doe of Harvard."""
    last = segment[-1]
    if len(segment) == 1:
        return not last.text.isupper()
    return any(word.is_link for word in segment) or last.bare in _BEFORE_OF or lexicon.is_ordinary(last.bare)


def _institution(segment: Tokens, linked: str) -> bool:
    """Whether the name of an institution goes on: Institute for …, Ministry of Health and …"""
    found = {word.bare for word in segment}
    if linked == "at":
        return "university" in found
    return bool(found & words.INSTITUTIONS) and (linked != "and" or bool(found & {"of", "for", "de"}))


def _is_name(segment: Tokens, opens: bool, lexicon: Lexicon) -> bool:
    """Whether what is left of a run names something."""
    first = segment[0]
    if first.is_number or all(token.is_office for token in segment):
        return False
    if len(segment) > 1:
        return not _is_shouted(segment)
    word = first.text.rstrip(".")
    if len(word) < 2 or word in words.NO_NAMES or _FORMULA.fullmatch(word) or _ROMAN.fullmatch(word):
        return False
    if first.bare in words.OPENERS or first.bare in words.REFERENCES:
        return False
    return not opens or _may_open(word, lexicon)


def _is_shouted(segment: Tokens) -> bool:
    """Whether it is a heading in capitals, and its capitals tell nothing."""
    return all(token.text.isupper() for token in segment) and any(token.bare in words.SMALL for token in segment)


def _may_open(word: str, lexicon: Lexicon) -> bool:
    """Whether a word that opens a sentence, and is followed by none with a capital, is a name all the same."""
    if word.lower() in words.ORDINARY or lexicon.is_ordinary(word):
        return False
    return not word[1:].islower() or lexicon.is_proper(word) or not word.endswith(words.ENDINGS)
