"""Wikipedia's XML dumps (``…-pages-articles.xml``): the articles, page by page, as the file streams by.

The format is MediaWiki's, https://www.mediawiki.org/wiki/Help:Export: a ``<siteinfo>``, then the pages, each with
its title, namespace, id and one revision or several.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from xml.parsers import expat

from ragqa.corpus.formats.base import UNREADABLE, CorpusReport, Document, InputFile, NumberedDocument, reason_of
from ragqa.corpus.formats.mediawiki.names import UNSEEN, is_disambiguation, prefix_of
from ragqa.corpus.formats.mediawiki.text import plain_text
from ragqa.errors import MissingExtra

BEGINNING = re.compile(rb"(?:<\?xml[^>]*>\s*)?<mediawiki[\s>]")
"""How such a file begins, after a byte order mark and white space."""
_CHUNK = 1 << 16
_ARTICLES, _FILES, _CATEGORIES = "0", "6", "14"
# Dumps from before 2010 do not mark redirects otherwise.
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)
_NAMESPACE = ("siteinfo", "namespaces", "namespace")
_FIELDS = {
    ("page", "title"): "title",
    ("page", "ns"): "namespace",
    ("page", "id"): "id",
    ("page", "revision", "model"): "model",
    ("page", "revision", "text"): "text",
}


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The articles of the dump in their order; other namespaces, redirects and disambiguations are only counted.

    Raises BadLine on a page that cannot be parsed and where the XML is broken or ends too early, and MissingExtra
    where mwparserfromhell is not installed, unless bad input is skipped.
    """
    if not _can_parse(source):
        return
    export = _Export()
    for page in _pages(source, export):
        if not page.id:
            source.bad("a page without an id", page.line)
        elif _is_article(page, export, source.intake.report):
            text = _text(page, export, source)
            if text is not None:
                yield page.line, Document(page.id, page.title, text, source.path)


@dataclass
class _Page:
    """What the file says of a page; of several revisions, the last one."""

    line: int
    title: str = ""
    id: str = ""
    namespace: str = ""
    redirect: bool = False
    model: str = "wikitext"
    text: str = ""

    def __str__(self) -> str:
        return f"the page {self.title!r} (id {self.id})"


class _Export:
    """Makes pages of what expat reports; holds those that nobody has taken yet, and no other part of the file."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self._namespaces: dict[str, str] = {}
        self._path: list[str] = []
        self._key = ""
        self._pieces: list[str] = []
        self._page = _Page(0)
        self._done: list[_Page] = []

    def taken(self) -> Iterator[_Page]:
        """The pages that ended since the last call."""
        done, self._done = self._done, []
        yield from done

    @cached_property
    def unseen(self) -> frozenset[str]:
        """Prefixes of links that show nothing where they stand, as this wiki calls them too."""
        return UNSEEN | {self._namespaces[key] for key in (_FILES, _CATEGORIES) if key in self._namespaces}

    def namespace_of(self, page: _Page) -> str:
        """The key of a page's namespace; dumps from before 2012 have it in the title only."""
        if page.namespace:
            return page.namespace
        prefix = prefix_of(page.title.partition(":")[0]) if ":" in page.title else ""
        return next((key for key, name in self._namespaces.items() if name and name == prefix), _ARTICLES)

    def whereabouts(self) -> str:
        """Where in the file the parser is, in words."""
        if "page" in self._path:
            return f"in {self._page}"
        return f"after {self._page}" if self._page.line else "before the first page"

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        path = tuple(self._path[1:])
        if path == ("page",):
            self._page = _Page(self.parser.CurrentLineNumber)
        elif path == ("page", "redirect"):
            self._page.redirect = True
        elif path == _NAMESPACE:
            self._key = attributes.get("key", "")
        if path == _NAMESPACE or (path in _FIELDS and self._wanted(name)):
            self.parser.CharacterDataHandler = self._pieces.append

    def _wanted(self, name: str) -> bool:
        """Most pages of a dump are not articles: their text is passed over."""
        return name != "text" or self._page.namespace in ("", _ARTICLES)

    def _end(self, name: str) -> None:
        path = tuple(self._path[1:])
        self._path.pop()
        self.parser.CharacterDataHandler = None
        if path == ("page",):
            self._done.append(self._page)
        elif path == _NAMESPACE:
            self._namespaces[self._key] = prefix_of("".join(self._pieces))
        elif path in _FIELDS:
            setattr(self._page, _FIELDS[path], "".join(self._pieces))
        self._pieces = []


def _can_parse(source: InputFile) -> bool:
    try:
        import mwparserfromhell  # noqa: F401
    except ImportError as error:
        missing = MissingExtra(f"reading {source.path}", "wiki")
        if not source.intake.skip_bad:
            raise missing from error
        source.bad(str(missing))
        return False
    return True


def _pages(source: InputFile, export: _Export) -> Iterator[_Page]:
    """The pages of the file; where no more can be read of it, says so and ends."""
    broken = "the XML is broken"
    try:
        while data := source.stream.read(_CHUNK):
            export.parser.Parse(data)
            yield from export.taken()
        broken = "the XML ends too early"
        export.parser.Parse(b"", True)
    except expat.ExpatError as error:
        yield from export.taken()
        source.bad(f"{broken}, {export.whereabouts()}: {expat.ErrorString(error.code)}", error.lineno)
    except UNREADABLE as error:
        problem = f"cannot be read further, {export.whereabouts()}: {reason_of(error)}"
        source.bad(problem, export.parser.CurrentLineNumber)


def _is_article(page: _Page, export: _Export, report: CorpusReport) -> bool:
    if export.namespace_of(page) != _ARTICLES or page.model != "wikitext":
        report.other_pages += 1
    elif page.redirect or _REDIRECT.match(page.text):
        report.redirects += 1
    elif is_disambiguation(page.title, page.text):
        report.disambiguations += 1
    else:
        return True
    return False


def _text(page: _Page, export: _Export, source: InputFile) -> str | None:
    try:
        return plain_text(page.text, export.unseen)
    except Exception as error:  # on some markup the parser stumbles in ways of its own
        source.bad(f"the wikitext of {page} cannot be parsed: {error or type(error).__name__}", page.line)
        return None
