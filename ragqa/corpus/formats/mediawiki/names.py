"""Disambiguation templates of Wikipedias, and prefixes of links that show no text."""

import re
import tomllib
from pathlib import Path

_NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
_DISAMBIGUATION_TEMPLATES = frozenset(_NAMES["disambiguation_templates"])
_TEMPLATE = re.compile(r"\{\{\s*+(?:template:\s*+)?([^{}|<>\[\]]{2,60}?)\s*+(?=[|}])", re.IGNORECASE)
_TITLE = re.compile(r"\(disambiguation(?: page)?\)\s*\Z", re.IGNORECASE)

# Every wiki accepts these English names; the header of a dump has the names in the wiki's language. MediaWiki shows a
# link to a Wikipedia in another language beside the page, not in its text.
INVISIBLE_PREFIXES = frozenset(("file", "image", "category", *_NAMES["languages"].split()))
"""Normalised prefixes of links that show no text where they stand."""


def normalize_prefix(name: str) -> str:
    """Return the name of a namespace, or the prefix of a link, in a form for comparison.

    The form is case-folded, and has spaces in place of underscores.
    """
    return name.strip(" _").replace("_", " ").casefold()


def is_disambiguation(title: str, wikitext: str) -> bool:
    """Return True if a page is a disambiguation, which only lists the meanings of its title.

    Its title ends in ``(disambiguation)``, or its text has ``__DISAMBIG__`` or a template of disambiguations. The rule
    for titles comes from DrQA (Chen et al. 2017), whose Wikipedia corpus later systems use.

    Args:
        title: title of the page.
        wikitext: text of the page.
    """
    if _TITLE.search(title) or "__DISAMBIG__" in wikitext:
        return True
    return any(normalize_prefix(match[1]) in _DISAMBIGUATION_TEMPLATES for match in _TEMPLATE.finditer(wikitext))
