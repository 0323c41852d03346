r"""Search texts for patterns within a time limit, and skip texts that cannot have a match.

Answers of CuratedTREC are patterns, for example ``New\s+York|Long Island``. Every match contains "york" or
"long island". Only a text that contains one of these needed texts is searched. Needed texts are lower-case ASCII. For a
pattern without needed texts, every text is searched.

Patterns come from question files, and some take exponential time in Python's ``re``. Therefore the package ``regex``,
which has a time limit, searches for them. Syntax that ``regex`` reads differently from ``re`` is translated first.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from ragqa.errors import SlowPattern
from ragqa.text import to_nfd
from ragqa.types import Question

SEARCH_SECONDS = 1.0
"""Time limit in seconds for searching a text; patterns of CuratedTREC take microseconds."""
_FLAGS = re.IGNORECASE | re.UNICODE | re.MULTILINE
_MAX_TEXTS = 64
"""Maximum number of texts to list for a part of a pattern; ``[0-9][0-9]`` matches a hundred."""
_SAME_CASE_FOLD = str.maketrans({"ſ": "s", "ı": "i"})
"""Letters that ``re.IGNORECASE`` equates with ASCII letters, unlike ``str.lower``."""
_TO_TRANSLATE = re.compile(r"(?P<set>\[\^?\]?(?:\\.|[^]\\])*\])|\\N\{[^}]*\}|\\.|\{(?!\d*,?\d*\})", re.DOTALL)
"""Parts of patterns that ``regex`` can read differently: sets, escapes, and braces that are not repeats."""
_WORD_SET, _SPACE_SET = r"\p{L}\p{N}_", r"\s\x1c-\x1f"
_IN_SETS = {r"\w": _WORD_SET, r"\s": _SPACE_SET, "[": r"\["}
_OUTSIDE_SETS = {
    r"\w": f"[{_WORD_SET}]",
    r"\W": f"[^{_WORD_SET}]",
    r"\s": f"[{_SPACE_SET}]",
    r"\S": f"[^{_SPACE_SET}]",
    r"\b": f"(?:(?<=[{_WORD_SET}])(?![{_WORD_SET}])|(?<![{_WORD_SET}])(?=[{_WORD_SET}]))",
    r"\B": f"(?:(?<=[{_WORD_SET}])(?=[{_WORD_SET}])|(?<![{_WORD_SET}])(?![{_WORD_SET}]))",
    "{": r"\{",
}
"""Replacements for syntax that ``regex`` reads differently; its ``\\w``, for example, also matches accents."""
_SAME_I = str.maketrans({"ı": "i", "İ": "I"})

Texts = frozenset[str]
EMPTY = frozenset([""])


def fold_case(text: str) -> str:
    """Return a text (Unicode form NFD) in lower case, for the search of needed texts."""
    return text.lower().translate(_SAME_CASE_FOLD)


class Pattern:
    """Compiled pattern that ignores case; a search takes at most ``SEARCH_SECONDS``."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern in the syntax of Python's ``re``.

        Raises:
            ValueError, re.error, OverflowError, RecursionError: ``re`` or ``regex`` cannot compile the pattern.
        """
        import regex

        re.compile(pattern, _FLAGS)  # regex accepts more than re, but a pattern that re rejects must be invalid
        self.text = pattern
        # re.IGNORECASE equates the dotless i with i; regex.IGNORECASE does not.
        self._folds_i = "(?-i:" not in pattern
        try:
            flags = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
            self._compiled = regex.compile(_translate(self._fold_i(pattern)), flags)
        except regex.error as error:
            raise ValueError(str(error)) from error

    def search(self, text: str) -> Any:
        """Return the first match in a text, or None; raise SlowPattern at the time limit."""
        return self._run(self._compiled.search, text)

    def find_all(self, text: str) -> list[tuple[int, int]]:
        """Return the start and end (exclusive) of all matches in a text, in characters.

        Raises:
            SlowPattern: the search takes longer than ``SEARCH_SECONDS``.
        """
        return self._run(lambda *args, **limit: [m.span() for m in self._compiled.finditer(*args, **limit)], text)

    def match(self, text: str) -> Any:
        """Return the match at the start of a text, or None; raise SlowPattern at the time limit."""
        return self._run(self._compiled.match, text)

    def _run(self, find: Callable[..., Any], text: str) -> Any:
        try:
            return find(self._fold_i(text), timeout=SEARCH_SECONDS)
        except TimeoutError:
            raise SlowPattern(self.text, len(text), SEARCH_SECONDS) from None

    def _fold_i(self, text: str) -> str:
        return text if text.isascii() or not self._folds_i else text.translate(_SAME_I)


def _translate(pattern: str) -> str:
    def replace(part: re.Match[str]) -> str:
        if not part["set"]:
            return _OUTSIDE_SETS.get(part[0], part[0])
        return "[" + re.sub(r"\\.|\[", lambda m: _IN_SETS.get(m[0], m[0]), part[0][1:], flags=re.DOTALL)

    return _TO_TRANSLATE.sub(replace, pattern)


@lru_cache(4096)
def compile_pattern(pattern: str) -> Pattern | None:
    """Compile a gold answer as a pattern that ignores case; return None for an invalid pattern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about patterns whose meaning a later version could change
        try:
            return Pattern(pattern)
        except (ValueError, re.error, OverflowError, RecursionError):  # ValueError: flags exclude each other
            return None


@contextmanager
def name_slow_question(questions: Iterable[Question]) -> Iterator[None]:
    """Add the id of the pattern's question to a SlowPattern error that the block raises.

    Args:
        questions: questions whose answers are the patterns.

    Raises:
        SlowPattern: the search for a pattern took too long in the block.
    """
    try:
        yield
    except SlowPattern as error:
        for question in questions:
            if error.pattern in (*question.answers, *map(to_nfd, question.answers)):
                raise error.add_question(question.id) from None
        raise


@dataclass(frozen=True)
class Search:
    """Compiled pattern, with needed texts that make searches of many texts fast."""

    pattern: Pattern
    needed_texts: Texts | None
    """Lower-case ASCII texts; every match contains at least one of them. None if no such texts are known."""

    def matches(self, text: str, folded: str) -> bool:
        """Return True if ``text`` contains a match.

        Args:
            text: text in the Unicode form NFD.
            folded: ``fold_case(text)``, which the caller computes once for many patterns.

        Raises:
            SlowPattern: the search takes longer than ``SEARCH_SECONDS``.
        """
        if self.needed_texts is not None and not any(needed in folded for needed in self.needed_texts):
            return False
        return self.pattern.search(text) is not None


@lru_cache(4096)
def compile_search(pattern: str) -> Search | None:
    """Prepare the search for a pattern; return None for an invalid pattern."""
    compiled = compile_pattern(pattern)
    return None if compiled is None else Search(compiled, find_needed_texts(pattern))


def find_needed_texts(pattern: str) -> Texts | None:
    """Return the needed texts of a pattern: every match contains one of them; None if unknown."""
    try:
        parser = import_module("re._parser")  # not public, but the parser of re itself
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, needed = _analyse_sequence(parser.parse(pattern, _FLAGS))
            # A needed text that contains another one adds nothing to the search.
            return needed and frozenset(t for t in needed if not any(other in t for other in needed - {t}))
    except Exception:  # another version of Python can have another parser
        return None


def _analyse_sequence(parts: Iterable[tuple[Any, Any]]) -> tuple[Texts | None, Texts | None]:
    """Return all texts that parts of a pattern can match, and the needed texts of the parts.

    All texts are lower-case ASCII. Either result is None if it is unknown; the first is also None if it has more than
    ``_MAX_TEXTS`` texts.
    """
    run, best, is_whole = EMPTY, None, True
    for kind, value in parts:
        texts, needed = _analyse_part(str(kind), value)
        if texts is not None and len(run) * len(texts) <= _MAX_TEXTS:
            run = frozenset(before + text for before in run for text in texts)
        else:
            best, run, is_whole = _choose_rarest(best, run, needed), texts or EMPTY, False
    return run if is_whole else None, _choose_rarest(best, run)


def _choose_rarest(*choices: Texts | None) -> Texts | None:
    """Return the needed texts whose shortest text is longest; None if no choice is usable."""
    known = [texts for texts in choices if texts and "" not in texts]
    return max(known, key=lambda texts: (min(map(len, texts)), -len(texts)), default=None)


def _analyse_part(kind: str, value: Any) -> tuple[Texts | None, Texts | None]:
    match kind:
        case "LITERAL":
            return _lower_ascii([value]), None
        case "IN":
            return _list_class(value), None
        case "AT" | "ASSERT" | "ASSERT_NOT":  # these parts match no characters
            return EMPTY, None
        case "SUBPATTERN":
            return _analyse_sequence(value[-1])
        case "ATOMIC_GROUP":
            return _analyse_sequence(value)
        case "BRANCH":
            return _analyse_branches([_analyse_sequence(branch) for branch in value[1]])
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _analyse_repeat(*value)
    return None, None


def _analyse_branches(branches: list[tuple[Texts | None, Texts | None]]) -> tuple[Texts | None, Texts | None]:
    texts, needed = (_unite(sides) for sides in zip(*branches, strict=True))
    return texts if texts is not None and len(texts) <= _MAX_TEXTS else None, needed


def _unite(sides: Sequence[Texts | None]) -> Texts | None:
    known = [side for side in sides if side is not None]
    return frozenset[str]().union(*known) if len(known) == len(sides) else None


def _analyse_repeat(minimum: int, maximum: int, parts: Any) -> tuple[Texts | None, Texts | None]:
    texts, needed = _analyse_sequence(parts)
    if minimum == maximum == 1:
        return texts, needed
    if minimum:
        return None, needed
    return (texts | EMPTY if texts is not None and maximum == 1 else None), None


def _list_class(members: list[tuple[Any, Any]]) -> Texts | None:
    """Return the characters of a set ``[…]`` in lower case.

    The result is None if one is not ASCII, a range is too long, or the set is negated or names a category.
    """
    codes: list[int] = []
    for kind, value in members:
        match str(kind):
            case "LITERAL":
                codes.append(value)
            case "RANGE" if value[1] - value[0] < _MAX_TEXTS:
                codes += range(value[0], value[1] + 1)
            case _:
                return None
    return _lower_ascii(codes)


def _lower_ascii(codes: Iterable[int]) -> Texts | None:
    return frozenset(chr(code).lower() for code in codes) if all(code < 128 for code in codes) else None
