"""Read XML dumps of Wikipedia (``…-pages-articles.xml``) page by page.

Source of the format: https://www.mediawiki.org/wiki/Help:Export. A ``<siteinfo>`` precedes the pages, each of which has
a title, a namespace, an id and one or more revisions.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from xml.parsers import expat

from ragqa.corpus.formats.base import READ_ERRORS, CorpusReport, Document, InputFile, NumberedDocument, describe_error
from ragqa.corpus.formats.limits import check_size
from ragqa.corpus.formats.mediawiki.names import INVISIBLE_PREFIXES, is_disambiguation, normalize_prefix
from ragqa.corpus.formats.mediawiki.text import extract_plain_text

_CHUNK_BYTES = 1 << 16
_MAX_DEPTH = 8
"""Maximum number of nested elements whose names are stored; the format has five."""
_MAX_PAGE_CHARACTERS = 20_000_000
"""Maximum length of a page in characters: ten times the limit of MediaWiki."""
_MAX_TOKEN_BYTES = 1 << 20
"""Maximum size of a tag or comment, because expat reads it again from its start with every chunk."""
_ARTICLES, _FILES, _CATEGORIES = "0", "6", "14"
# In dumps from before 2010, only the text shows that a page is a redirect.
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)
_NAMESPACE = ("siteinfo", "namespaces", "namespace")
_FIELDS = {
    ("page", "title"): "title",
    ("page", "ns"): "namespace",
    ("page", "id"): "id",
    ("page", "revision", "model"): "model",
    ("page", "revision", "text"): "text",
}


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the articles of the dump; count redirects, disambiguations and other pages.

    Raises:
        MissingExtra: in strict mode, mwparserfromhell is not installed.
        BadLine: in strict mode, a page has no id, is too long or cannot be parsed, or the XML is broken or unreadable.
    """
    try:
        import mwparserfromhell  # noqa: F401
    except ImportError as error:
        file.reject_without_extra("wiki", error)
        return
    parser = _DumpParser()
    for page in _iter_pages(file, parser):
        if not page.id:
            file.reject("a page without an id", page.line)
        elif page.is_too_long:
            file.reject(f"{page} is longer than {_MAX_PAGE_CHARACTERS:,} characters", page.line)
        elif _is_article(page, parser, file.problems.report):
            try:
                text = extract_plain_text(page.text, parser.invisible_prefixes)
            except Exception as error:  # mwparserfromhell raises all kinds of errors on odd markup
                file.reject(f"the wikitext of {page} cannot be parsed: {error or type(error).__name__}", page.line)
                continue
            yield page.line, Document(page.id, page.title, text, file.path)


@dataclass
class _WikiPage:
    """Page of a dump, with the text of its last revision."""

    line: int
    """Number of the line on which the page starts."""
    title: str = ""
    id: str = ""
    namespace: str = ""
    is_redirect: bool = False
    model: str = "wikitext"
    text: str = ""
    is_too_long: bool = False

    def __str__(self) -> str:
        return f"the page {self.title!r} (id {self.id})"


class _DumpParser:
    """XML parser (expat) that collects finished pages until ``take_pages`` returns them."""

    def __init__(self) -> None:
        self.expat = expat.ParserCreate()
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self._namespaces: dict[str, str] = {}
        self._path: list[str] = []
        self._depth = 0
        self._namespace_key = ""
        self._pieces: list[str] = []
        self._characters = 0
        self._page = _WikiPage(0)
        self._finished_pages: list[_WikiPage] = []

    def take_pages(self) -> list[_WikiPage]:
        pages, self._finished_pages = self._finished_pages, []
        return pages

    @cached_property
    def invisible_prefixes(self) -> frozenset[str]:
        """Normalised prefixes of links without visible text, in English and in the wiki's language."""
        return INVISIBLE_PREFIXES | {self._namespaces[key] for key in (_FILES, _CATEGORIES) if key in self._namespaces}

    def find_namespace(self, page: _WikiPage) -> str:
        """Return the key of a page's namespace; dumps from before 2012 have it only in the title."""
        if page.namespace:
            return page.namespace
        prefix = normalize_prefix(page.title.partition(":")[0]) if ":" in page.title else ""
        return self._namespace_keys.get(prefix, _ARTICLES) if prefix else _ARTICLES

    @cached_property
    def _namespace_keys(self) -> dict[str, str]:
        """Keys of the namespaces by normalised name; all namespaces precede the first page."""
        return {name: key for key, name in reversed(self._namespaces.items())}

    def describe_place(self) -> str:
        if "page" in self._path:
            return f"in {self._page}"
        return f"after {self._page}" if self._page.line else "before the first page"

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:  # a path of thousands of elements would be copied for each element
            return
        self._path.append(name)
        path = tuple(self._path[1:])
        if path == ("page",):
            self._page = _WikiPage(self.expat.CurrentLineNumber)
        elif path == ("page", "redirect"):
            self._page.is_redirect = True
        elif path == _NAMESPACE:
            self._namespace_key = attributes.get("key", "")
        # Only the texts of articles are needed; skipping other texts saves time.
        is_needed = name != "text" or self._page.namespace in ("", _ARTICLES)
        if path == _NAMESPACE or (path in _FIELDS and is_needed):
            self._characters = 0
            self.expat.CharacterDataHandler = self._collect

    def _collect(self, data: str) -> None:
        self._characters += len(data)
        if self._characters <= _MAX_PAGE_CHARACTERS:
            self._pieces.append(data)
        else:
            self._page.is_too_long = True

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._depth >= _MAX_DEPTH:
            return
        path = tuple(self._path[1:])
        self._path.pop()
        self.expat.CharacterDataHandler = None
        if path == ("page",):
            self._finished_pages.append(self._page)
        elif path == _NAMESPACE:
            self._namespaces[self._namespace_key] = normalize_prefix("".join(self._pieces))
        elif path in _FIELDS:
            setattr(self._page, _FIELDS[path], "".join(self._pieces))
        self._pieces = []


def _iter_pages(file: InputFile, parser: _DumpParser) -> Iterator[_WikiPage]:
    """Yield the pages of a file; if reading fails, reject the file at the current line."""
    problem, read = "the XML is broken", 0
    try:
        while data := file.stream.read(_CHUNK_BYTES):
            parser.expat.Parse(data)
            yield from parser.take_pages()
            read += len(data)
            check_size(read - parser.expat.CurrentByteIndex, _MAX_TOKEN_BYTES, "a tag or comment")
        problem = "the XML ends too early"
        parser.expat.Parse(b"", True)
    except expat.ExpatError as error:
        yield from parser.take_pages()
        file.reject(f"{problem}, {parser.describe_place()}: {expat.ErrorString(error.code)}", error.lineno)
    except READ_ERRORS as error:
        problem = f"cannot be read further, {parser.describe_place()}: {describe_error(error)}"
        file.reject(problem, parser.expat.CurrentLineNumber)


def _is_article(page: _WikiPage, parser: _DumpParser, report: CorpusReport) -> bool:
    if parser.find_namespace(page) != _ARTICLES or page.model != "wikitext":
        report.other_pages += 1
    elif page.is_redirect or _REDIRECT.match(page.text):
        report.redirects += 1
    elif is_disambiguation(page.title, page.text):
        report.disambiguations += 1
    else:
        return True
    return False
