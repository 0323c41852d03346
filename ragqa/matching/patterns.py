"""What must stand in a text for a regular expression to be found there: a cheap look before the dear one.

Answers of CuratedTREC are patterns such as ``New\\s+York|Long Island``. Whatever that matches holds "york" or
"long island"; a text without either need not be searched. Only letters and other signs of ASCII are looked for, in any
case; a pattern that promises none of them is always searched.
"""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

_MANY = 64
"""Texts that a stretch of a pattern may be, before it is taken apart: ``[0-9]{4}`` is ten thousand."""
_LIKE = str.maketrans({"ſ": "s", "ı": "i"})
"""What ``re`` takes for a letter of ASCII where case does not matter, and ``str.lower`` leaves as it is."""

Texts = frozenset[str]
NOTHING = frozenset([""])


def folded(text: str) -> str:
    """A text in Unicode's decomposed form (``metrics.nfd``), as what is ``needed`` is looked for in it."""
    return text.lower().translate(_LIKE)


@lru_cache(4096)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """A regular-expression answer as it is matched: in any case, by lines; None where it is no valid pattern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of patterns that a later Python may read otherwise
        try:
            return re.compile(pattern, re.IGNORECASE | re.UNICODE | re.MULTILINE)
        except (ValueError, re.error, OverflowError, RecursionError):  # ValueError: flags that exclude each other
            return None


@dataclass(frozen=True)
class Search:
    """A pattern that is looked for in many texts."""

    pattern: re.Pattern[str]
    needed: Texts | None
    """One of them stands in every text, ``folded``, where the pattern is found; None where nothing is known."""

    def finds(self, text: str, low: str) -> bool:
        """Whether the pattern is in ``text``, which is ``low`` when it is folded."""
        if self.needed is not None and not any(each in low for each in self.needed):
            return False
        return self.pattern.search(text) is not None


@lru_cache(4096)
def search(pattern: str) -> Search | None:
    """The search for a pattern; None where it is no valid one."""
    found = compiled(pattern)
    return None if found is None else Search(found, needed(found))


def needed(pattern: re.Pattern[str]) -> Texts | None:
    """Texts one of which stands in all that a pattern matches, in lower case; None where nothing is known."""
    try:
        parser = import_module("re._parser")  # Python's own, of no public name: what it says of a pattern is so
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _shortest(_sequence(parser.parse(pattern.pattern, pattern.flags))[1])
    except Exception:  # another Python may have another one: then every text is searched
        return None


def _shortest(texts: Texts | None) -> Texts | None:
    """Without those that hold another one."""
    if texts is None:
        return None
    kept: list[str] = []
    for text in sorted(texts, key=len):
        if not any(each in text for each in kept):
            kept.append(text)
    return frozenset(kept)


def _sequence(parts: Iterable[tuple[Any, Any]]) -> tuple[Texts | None, Texts | None]:
    """Of parts one after the other: all texts that they may be, if they are few, and what is needed."""
    run, best, whole = NOTHING, None, True
    for kind, value in parts:
        texts, must = _part(str(kind), value)
        if texts is not None and len(run) * len(texts) <= _MANY:
            run = frozenset(before + text for before in run for text in texts)
        else:
            best, run, whole = _rarest(best, run, must), texts or NOTHING, False
    return run if whole else None, _rarest(best, run)


def _rarest(*choices: Texts | None) -> Texts | None:
    """That whose shortest text is longest; None where none has any in every text."""
    known = [texts for texts in choices if texts and "" not in texts]
    return max(known, key=lambda texts: (min(map(len, texts)), -len(texts)), default=None)


def _part(kind: str, value: Any) -> tuple[Texts | None, Texts | None]:
    match kind:
        case "LITERAL":
            return _characters([value]), None
        case "IN":
            return _class(value), None
        case "AT" | "ASSERT" | "ASSERT_NOT":  # take up no room
            return NOTHING, None
        case "SUBPATTERN":
            return _sequence(value[-1])
        case "ATOMIC_GROUP":
            return _sequence(value)
        case "BRANCH":
            return _either([_sequence(each) for each in value[1]])
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _repeated(*value)
    return None, None


def _either(branches: list[tuple[Texts | None, Texts | None]]) -> tuple[Texts | None, Texts | None]:
    texts, must = (_union(sides) for sides in zip(*branches, strict=True))
    return texts if texts is not None and len(texts) <= _MANY else None, must


def _union(sides: Iterable[Texts | None]) -> Texts | None:
    """All of them; None where one is unknown."""
    found: set[str] = set()
    for side in sides:
        if side is None:
            return None
        found |= side
    return frozenset(found)


def _repeated(least: int, most: int, parts: Any) -> tuple[Texts | None, Texts | None]:
    texts, must = _sequence(parts)
    if least == most == 1:
        return texts, must
    if least:
        return None, must
    return (texts | NOTHING if texts is not None and most == 1 else None), None


def _class(members: list[tuple[Any, Any]]) -> Texts | None:
    """Of ``[…]``: its characters, if they are few and all of them are named."""
    codes: list[int] = []
    for kind, value in members:
        match str(kind):
            case "LITERAL":
                codes.append(value)
            case "RANGE" if value[1] - value[0] < _MANY:
                codes += range(value[0], value[1] + 1)
            case _:
                return None
    return _characters(codes)


def _characters(codes: Iterable[int]) -> Texts | None:
    return frozenset(chr(code).lower() for code in codes) if all(code < 128 for code in codes) else None
