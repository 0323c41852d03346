"""Filters of passages by the path, tags and date of their documents."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.retrieval.base import Rows

_DAYS = re.compile(r"(\d{1,5})d")
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")
_WILDCARD = re.compile(r"(\*\*/|\*\*|\*|\?)")
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_MATCH_SECONDS = 0.5
"""Time limit in seconds for matching a pattern with a path, which usually takes microseconds."""
_MAX_TAGS = 5
"""Maximum number of tags that a message names."""

Tests = Mapping[str, Callable[[str], bool]]
"""Tests of the values in columns of the passage store, by column name."""


@dataclass(frozen=True)
class PassageFilter:
    """Conditions that a document must fulfil to be searched.

    An empty filter allows all documents.

    Raises:
        BadInput: ``paths`` or ``tags`` is not a list of texts or has an empty text, or ``since`` has another form.
    """

    paths: tuple[str, ...] = ()
    """Patterns of files and folders, one of which must match: ``work/*.pdf``, ``**/2024``, ``report.md``.

    ``*`` and ``?`` do not match ``/``; ``**`` does. A pattern that begins with ``/``, or whose first part is ``.``,
    ``..`` or ``~``, is matched from the root of the file system. Other patterns can begin at each part of a path, from
    the name of the indexed folder on. The pattern of a folder or of an archive also matches all files in it.
    """
    tags: tuple[str, ...] = ()
    """Tags, all of which the document must have; upper and lower case are equal."""
    since: str = ""
    """Earliest date of a document: YYYY, YYYY-MM or YYYY-MM-DD; ``7d`` becomes the date seven days ago.

    Documents without a date do not match.
    """

    def __post_init__(self) -> None:
        for name in ("paths", "tags"):
            values = getattr(self, name)
            if isinstance(values, str) or not all(isinstance(value, str) for value in values):
                raise BadInput(f"{name} = {values!r:.80}: a list of texts is needed")
            if not all(map(str.strip, values)):
                raise BadInput(f"{name}: an empty text matches nothing, leave it out")
            object.__setattr__(self, name, tuple(values))
        object.__setattr__(self, "paths", tuple(map(_make_absolute, self.paths)))
        object.__setattr__(self, "since", _parse_since(self.since))

    def __bool__(self) -> bool:
        return bool(self.paths or self.tags or self.since)

    def find_rows(self, passages: PassageStore, folders: Iterable[str]) -> Rows:
        """Return the sorted rows of the live passages that the filter allows.

        Args:
            passages: passages of an index.
            folders: indexed folders and files; a path is matched from the name of its folder on.

        Raises:
            BadInput: a pattern takes too long to match.
        """
        return passages.find_matching_rows(self._make_tests(tuple(folders)))

    def explain_empty(self, passages: PassageStore, folders: Iterable[str]) -> str:
        """Return the reason why the filter allows no passage.

        Arguments and errors: as for ``find_rows``.
        """
        known = {tag.casefold(): tag for tags in passages.list_values("tags") for tag in tags.split("\n") if tag}
        for tag in self.tags:
            if tag.casefold() not in known:
                near = get_close_matches(tag.casefold(), known, _MAX_TAGS) or sorted(known)[:_MAX_TAGS]
                listed = f" (there are: {', '.join(known[name] for name in near)})" if near else " (none has tags)"
                return f"no document matches the filter: none has the tag '{tag}'{listed}"
        parts = {
            f"none is in {' or '.join(self.paths)}": replace(self, tags=(), since=""),
            f"none has all the tags {', '.join(self.tags)}": replace(self, paths=(), since=""),
            f"none is of {self.since} or later": replace(self, paths=(), tags=()),
        }
        folders = tuple(folders)
        reasons = [reason for reason, part in parts.items() if part and not len(part.find_rows(passages, folders))]
        return f"no document matches the filter: {'; '.join(reasons) or 'none fulfils all its conditions'}"

    def _make_tests(self, folders: tuple[str, ...]) -> Tests:
        tests: dict[str, Callable[[str], bool]] = {}
        if self.paths:
            patterns = [(path, *_compile(path)) for path in self.paths]
            parents = [f"{os.path.dirname(folder).rstrip('/')}/" for folder in folders]

            def is_in_paths(path: str) -> bool:
                parent = max((each for each in parents if path.startswith(each)), key=len, default="")
                return any(
                    _matches(pattern, path, 0 if is_whole else len(parent), name)
                    for name, pattern, is_whole in patterns
                )

            tests["path"] = is_in_paths
        if self.tags:
            wanted = {tag.casefold() for tag in self.tags}
            tests["tags"] = lambda tags: wanted <= set(tags.casefold().split("\n"))
        if self.since:
            tests["date"] = lambda day: day >= self.since
        return {name: cache(test) for name, test in tests.items()}


def _matches(pattern: Any, path: str, start: int, name: str) -> bool:
    """Test a pattern on a path from ``start`` on; raise BadInput if the test takes too long."""
    try:
        # With many wildcards, a path such as aaaa…a takes exponential time. ``concurrent`` lets other threads run.
        return pattern.fullmatch(path, start, timeout=_MATCH_SECONDS, concurrent=True) is not None
    except TimeoutError:
        raise BadInput(f"the pattern {name[:80]!r} takes too long: use fewer * and ?") from None


def _compile(pattern: str) -> tuple[Any, bool]:
    """Return a pattern as a regular expression, and True if it must match a path from the root."""
    import regex  # unlike re, it has a time limit

    parts = _WILDCARD.split(pattern.rstrip("/"))
    expression = "".join(_WILDCARDS.get(part, re.escape(part)) for part in parts)
    is_whole = pattern.startswith("/")
    # The pattern of a folder or an archive also matches all files in it.
    return regex.compile(f"{'' if is_whole else '(?:.*/)?'}{expression}(?:/.*)?", regex.DOTALL), is_whole


def _make_absolute(pattern: str) -> str:
    if pattern in (".", "..", "~") or pattern.startswith(("./", "../", "~/")):
        return os.path.abspath(os.path.expanduser(pattern))
    return pattern


def _parse_since(text: str) -> str:
    if not text:
        return ""
    try:
        if days := _DAYS.fullmatch(text):
            return (date.today() - timedelta(int(days[1]))).isoformat()
        if _DATE.fullmatch(text):
            date.fromisoformat(text + "-01-01"[len(text) - 4 :] if len(text) < 10 else text)  # add month and day
            return text
    except (ValueError, OverflowError):
        pass
    raise BadInput(f"since {text!r:.80}: a date such as 2024-01-31, or a number of days such as 7d, is needed")
