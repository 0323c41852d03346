"""Read PDF with pypdfium2: paragraphs, headings and tables of the pages.

A PDF has only characters at positions. Headings are recognized by large or bold type, paragraphs by gaps between lines,
and the cells of tables by gaps within lines.
"""

import ctypes
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

from ragqa.corpus.formats.office.content import ENCRYPTED, Content, TextBuilder, UnreadableFile, is_bold_heading
from ragqa.corpus.formats.office.layout import (
    HEADING_RATIO,
    Line,
    Page,
    TextRun,
    assign_columns,
    drop_running_heads,
    is_table,
    order_columns,
)
from ragqa.corpus.formats.office.ocr import MAX_PIXELS, TextRecognizer

_MAX_LEVEL = 6
_CELL_GAP = 1.6
"""Minimum gap between the cells of a table, as a multiple of the font size; gaps between words reach 1."""
_PARAGRAPH_GAP = 1.3
"""Minimum distance between paragraphs, as a multiple of the usual line distance or, if larger, of the font size."""
_MAX_WORDS_OF_CELL = 12
_BOLD_WEIGHT = 600
_HYPHEN = "\ufffe"
"""Character that PDFium puts in place of a hyphen at the end of a line."""
_SECTION_NUMBER = re.compile(r"(?:\d{1,2}(?:\.\d{1,2})*\.?|[A-Z]\.) +[A-Z]")
"""Pattern of a section number and the first letter of a heading; a year has more digits."""
_BROKEN_WORD = re.compile(rf"(\w*){_HYPHEN}\s*(\w*)")
_LEADERS = re.compile(r"(?:\. ?){5}")
"""Pattern of the dots in a line of a table of contents."""
_LAST_HYPHEN = re.compile(r"(?<=[^\W\d])-$")
_SCAN_DPI, _POINTS = 200, 72
"""Dots per inch of the image of a scanned page, and points per inch."""
_SCAN_SIZE, _SCAN_LEADING = 5.99, 9.0
"""Font size and line distance of recognized text, in points; the odd size tells it from other text."""
_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")
_UNFINISHED = re.compile(r"[^.!?:;…][\"'”’»)\]]*$")


def read_pages(data: bytes, recognizer: TextRecognizer | None = None) -> Content:
    """Return the content of a PDF; damaged pages of a readable file are empty.

    Args:
        data: bytes of the file.
        recognizer: text recognition for scanned pages; None to leave them empty.

    Raises:
        UnreadableFile: the file is damaged or encrypted.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)  # PDFium tries the empty password
    except pypdfium2.PdfiumError as error:
        raise UnreadableFile(ENCRYPTED if "assword" in str(error) else "damaged, or not a PDF") from error
    pages, scans = list[Page](), _Scans(recognizer)
    for number in range(len(document)):
        try:
            page = document[number]
        except pypdfium2.PdfiumError:  # a damaged page of a good file
            pages.append(Page((), 1.0))
            continue
        text_page = page.get_textpage()
        lines = tuple(_read_lines(text_page))
        pages.append(Page(lines, page.get_height()) if lines else scans.read(page))
        text_page.close()
        page.close()
    metadata = document.get_metadata_dict()
    date = _DATE.match(metadata.get("ModDate", "")) or _DATE.match(metadata.get("CreationDate", ""))
    content = build_content(pages, metadata.get("Title", ""), "-".join(date.groups()) if date else "")
    return replace(content, note=scans.describe_unread(len(pages)))


def build_content(pages: Sequence[Page], title: str = "", date: str = "") -> Content:
    """Return the headings, paragraphs and tables of pages, without running heads.

    Args:
        pages: pages in order.
        title: title in the metadata of the file.
        date: date in the metadata, YYYY-MM-DD.
    """
    builder = _PageBuilder(pages)
    builder.add_pages()
    return builder.text.finish(title, date)


def make_page(text: str) -> Page:
    """Return a page with the lines of a recognized text; an empty line becomes a larger gap."""
    rows, lines, place = text.strip().split("\n"), list[Line](), 0.0
    for row in rows:
        if content := _LAST_HYPHEN.sub(_HYPHEN, row.strip()):
            place -= _SCAN_LEADING
            lines.append(Line((TextRun(content, 0.0, 0.0),), place, place, _SCAN_SIZE, is_bold=False))
        else:
            place -= 2 * _SCAN_LEADING
    height = _SCAN_LEADING - place
    return Page(tuple(replace(line, top=line.top + height, bottom=line.top + height) for line in lines), height)


class _Scans:
    """Recognition of the PDF pages without text; it counts the pages that stay unread."""

    def __init__(self, recognizer: TextRecognizer | None) -> None:
        self._recognizer = recognizer
        self._unread, self._problem = 0, "(scanned?): --ocr reads them"

    def read(self, page: Any) -> Page:
        """Return a page with the recognized text of its images.

        The page is empty if it has no images, if there is no recognizer, or if the recognition fails.
        """
        from pypdfium2 import raw

        if next(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE]), None) is not None:
            try:
                if self._recognizer:
                    image, dpi = _render(page)
                    return make_page(self._recognizer.recognize(image, dpi=dpi))
            except UnreadableFile as error:
                self._problem = f"was read: {error}"
            self._unread += 1
        return Page((), 1.0)

    def describe_unread(self, count: int) -> str:
        """Return a note on the unread pages among ``count`` pages; empty if there are none."""
        return f"no text on {self._unread:,} of {count:,} pages {self._problem}" if self._unread else ""


def _render(page: Any) -> tuple[bytes, int]:
    """Return a grey image of a page as the bytes of a PGM file, and its dots per inch."""
    width, height = page.get_size()
    scale = min(_SCAN_DPI / _POINTS, math.sqrt(MAX_PIXELS / max(1.0, width * height)))
    bitmap = page.render(scale=scale, grayscale=True)
    rows, line = memoryview(bitmap.buffer).cast("B"), bitmap.stride
    pixels = b"".join(rows[start : start + bitmap.width] for start in range(0, bitmap.height * line, line))
    image = b"P5 %d %d 255\n" % (bitmap.width, bitmap.height) + pixels
    bitmap.close()
    return image, round(scale * _POINTS)


def _read_lines(page: Any) -> Iterator[Line]:
    from pypdfium2 import raw

    position = 0
    numbers = [ctypes.c_double() for _ in range(4)]

    def find_edges(offset: int) -> tuple[float, float]:
        index = raw.FPDFText_GetCharIndexFromTextIndex(page.raw, offset)
        raw.FPDFText_GetCharBox(page.raw, index, *numbers)
        return numbers[0].value, numbers[1].value

    def find_height(offset: int) -> float:
        index = raw.FPDFText_GetCharIndexFromTextIndex(page.raw, offset)
        raw.FPDFText_GetCharOrigin(page.raw, index, *numbers[:2])
        return numbers[1].value

    for text in page.get_text_range().replace("\f", " ").split("\n"):
        start, position = position, position + len(text) + 1
        content = text.strip()
        if not content:
            continue
        start += text.index(content[0])
        index = raw.FPDFText_GetCharIndexFromTextIndex(page.raw, start)
        size = raw.FPDFText_GetFontSize(page.raw, index)
        is_bold = raw.FPDFText_GetFontWeight(page.raw, index) >= _BOLD_WEIGHT
        edges = {place: find_edges(start + place) for place in _find_word_edges(content)}
        cells = tuple(_split_cells(content, edges, size))
        yield Line(cells, find_height(start), find_height(start + len(content) - 1), size, is_bold)


def _find_word_edges(text: str) -> list[int]:
    """Return the indices of the first and last characters of all words of a line."""
    spaces = [place for place, character in enumerate(text) if character == " "]
    return sorted({0, len(text) - 1, *(place - 1 for place in spaces), *(place + 1 for place in spaces)})


def _split_cells(text: str, edges: dict[int, tuple[float, float]], size: float) -> Iterator[TextRun]:
    start = 0
    for place, character in enumerate(text):
        if character == " " and _HYPHEN not in text:
            left, right = edges[place - 1], edges[place + 1]
            if right[0] - left[1] > _CELL_GAP * size and text[start:place].strip():
                yield TextRun(text[start:place].strip(), edges[start][0], left[1])
                start = place + 1
    yield TextRun(text[start:].strip(), edges.get(start, edges[0])[0], edges[len(text) - 1][1])


class _PageBuilder:
    """Builder of the text of all pages."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self.text = TextBuilder("page")
        sizes, gaps = Counter[float](), Counter[float]()
        for line in (line for page in pages for line in page.lines):
            if line.size != _SCAN_SIZE:  # else larger text would count as headings in a PDF of many scans
                sizes[_round(line.size)] += len(line.text)
        self._size = max(sizes, key=sizes.__getitem__, default=_SCAN_SIZE)
        self._pages = [order_columns(page.lines) for page in drop_running_heads(pages, self._size)]
        for page in self._pages:
            gaps.update(_round(last.bottom - line.top) for last, line in pairwise(page) if last.bottom > line.top)
        self._leading = max(gaps, key=gaps.__getitem__, default=0.0)
        larger = sorted((size for size in sizes if size > self._size * HEADING_RATIO), reverse=True)
        self._levels = {size: min(level, _MAX_LEVEL) for level, size in enumerate(larger, 1)}
        # A hyphen at the end of a line stays in a word that has it elsewhere, too.
        self._compounds = set(re.findall(r"\w+-\w+", " ".join(line.text for page in self._pages for line in page)))
        self._paragraph = ""

    def add_pages(self) -> None:
        for number, page in enumerate(self._pages):
            if number:
                self._end_page(page)
            self._add_page(page)
        self._end_paragraph()

    def _end_page(self, following: Sequence[Line]) -> None:
        """End a page; a sentence that continues on the next page stays in one paragraph."""
        goes_on = following and _UNFINISHED.search(self._paragraph) and not self._find_level(following[0])
        if goes_on and len(following[0].cells) == 1:
            self._paragraph += "\f"
        else:
            self._end_paragraph()
            self.text.end_page()

    def _add_page(self, lines: Sequence[Line]) -> None:
        last: Line | None = None
        for (level, is_row), run in groupby(lines, lambda line: (self._find_level(line), _is_row(line))):
            block = list(run)
            if level:
                self._end_paragraph()
                self._add_headings(level, block)
            elif is_row and is_table(block):
                self._end_paragraph()
                self.text.add_table(assign_columns(block[0], block[1:]))
            else:
                for line in block:
                    if last and self._begins_paragraph(last, line):
                        self._end_paragraph()
                    is_start = not self._paragraph or self._paragraph.endswith("\f")
                    self._paragraph += line.text if is_start else f"\n{line.text}"
                    last = line
                continue
            last = None

    def _add_headings(self, level: int, lines: Sequence[Line]) -> None:
        """Add the headings in successive lines of one level.

        Close lines form one heading, but a line that begins with a section number begins a new heading.
        """
        text = ""
        for number, line in enumerate(lines):
            is_far = number and lines[number - 1].bottom - line.top > 2 * line.size
            if number and (is_far or _SECTION_NUMBER.match(line.text)):
                self.text.add_heading(level, self._join_words(text))
                text = ""
            text = f"{text} {line.text}"
        self.text.add_heading(level, self._join_words(text))

    def _find_level(self, line: Line) -> int:
        """Return the level of a heading; 0 for other lines."""
        if len(line.cells) > 2 or _LEADERS.search(line.text) or sum(map(str.isalpha, line.text)) < 3:
            return 0
        if level := self._levels.get(_round(line.size)):
            return level
        is_heading = line.is_bold and _round(line.size) >= self._size and is_bold_heading(line.text)
        return _MAX_LEVEL + 1 if is_heading and len(line.cells) == 1 else 0

    def _begins_paragraph(self, last: Line, line: Line) -> bool:
        if line.size == _SCAN_SIZE and line.text[:1].islower() and _UNFINISHED.search(last.text):
            return False  # Tesseract also ends paragraphs at short lines within a sentence
        distance = last.bottom - line.top
        return distance > _PARAGRAPH_GAP * max(self._leading, line.size) or _round(last.size) != _round(line.size)

    def _end_paragraph(self) -> None:
        if self._paragraph:
            self.text.add_paragraph(self._join_words(self._paragraph))
            self._paragraph = ""

    def _join_words(self, text: str) -> str:
        """Join the words that a line end divides; drop the hyphen unless it belongs to a compound."""

        def join(match: re.Match[str]) -> str:
            compound = f"{match[1]}-{match[2]}"
            is_compound = compound in self._compounds or not match[2][:1].islower()
            return compound if is_compound else match[1] + match[2]

        return _BROKEN_WORD.sub(join, text)


def _is_row(line: Line) -> bool:
    return len(line.cells) > 1 and all(len(cell.text.split()) <= _MAX_WORDS_OF_CELL for cell in line.cells)


def _round(size: float) -> float:
    return round(size * 2) / 2
