"""Read front matter: the YAML fields at the start of a Markdown file."""

import re
from contextlib import suppress
from datetime import date
from email.utils import parsedate_to_datetime
from typing import Any

_BLOCK = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MAX_CHARACTERS = 20_000
"""Number of characters of a text within which front matter must end."""


def read_front_matter(text: str) -> tuple[int, dict[str, Any]]:
    """Read the title, tags and date in the front matter of a text.

    A field of the wrong type, such as a list for the title, counts as empty. A block that is not a YAML mapping, or
    that has YAML aliases, is not front matter.

    Returns:
        Index of the first character after the front matter, and the fields ``title``, ``tags`` (tuple of strings) and
        ``date`` (YYYY-MM-DD); 0 and an empty dictionary without front matter.
    """
    match = _BLOCK.match(text[:_MAX_CHARACTERS])
    if not match:
        return 0, {}
    import yaml

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(match[1])):
            return 0, {}  # a short text with aliases can expand to a long one
        values = yaml.safe_load(match[1])
    except (yaml.YAMLError, RecursionError, ValueError):
        return 0, {}
    if not isinstance(values, dict):
        return 0, {}
    tags = values.get("tags") or []
    tags = re.split(r"[,\s]+", tags) if isinstance(tags, str) else tags
    return match.end(), {
        "title": str(values["title"]).strip() if isinstance(values.get("title"), str | int | float) else "",
        "tags": tuple(str(tag).strip() for tag in tags if str(tag).strip()) if isinstance(tags, list) else (),
        "date": parse_date(str(values.get("date") or "")),
    }


def parse_date(text: str) -> str:
    """Return the date in a text as YYYY-MM-DD; an empty string if there is none.

    The text can begin with an ISO date, or be the date of a mail header.
    """
    with suppress(ValueError):
        return date.fromisoformat(text.strip()[:10]).isoformat()
    try:
        return parsedate_to_datetime(text).date().isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""
