"""Disambiguation templates of Wikipedias, and prefixes of links without visible text."""

import re
import tomllib
from pathlib import Path

_NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
_DISAMBIGUATION_TEMPLATES = frozenset(_NAMES["disambiguation_templates"])
_TEMPLATE = re.compile(r"\{\{\s*+(?:template:\s*+)?([^{}|<>\[\]]{2,60}?)\s*+(?=[|}])", re.IGNORECASE)
_TITLE = re.compile(r"\(disambiguation(?: page)?\)\s*\Z", re.IGNORECASE)

# Every wiki accepts these English names; the head of a dump has the names in the wiki's language. MediaWiki shows links
# to Wikipedias in other languages beside the page, not in its text.
INVISIBLE_PREFIXES = frozenset(("file", "image", "category", *_NAMES["languages"].split()))
"""Normalised prefixes of links that show no text where they stand in a page."""


def normalize_prefix(name: str) -> str:
    """Return a namespace or link prefix case-folded, stripped, and with spaces for underscores."""
    return name.strip(" _").replace("_", " ").casefold()


def is_disambiguation(title: str, wikitext: str) -> bool:
    """Return True if a page is a disambiguation, which only lists the meanings of its title.

    The title ends in ``(disambiguation)``, or the text has ``__DISAMBIG__`` or a disambiguation template. Source of the
    rule for titles: DrQA (Chen et al. 2017), whose Wikipedia corpus later systems use.

    Args:
        title: title of the page.
        wikitext: text of the page.
    """
    if _TITLE.search(title) or "__DISAMBIG__" in wikitext:
        return True
    return any(normalize_prefix(match[1]) in _DISAMBIGUATION_TEMPLATES for match in _TEMPLATE.finditer(wikitext))
