"""Helpers for tests that read office files and e-books: writers of small ones."""

from collections.abc import Mapping, Sequence
from datetime import date
from xml.sax.saxutils import escape, quoteattr

from tests.helpers.documents import make_zip

_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_KINDS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns"
CORE = (
    '<c:coreProperties xmlns:c="c" xmlns:d="d" xmlns:t="t"><d:title>{title}</d:title>'
    "<t:modified>2024-03-01T10:00:00Z</t:modified></c:coreProperties>"
)
TABLE = [["Item", "Price"], ["Lamp", "12"], ["Rope", "7"]]


def make_relations(**targets: str) -> str:
    """Return the relations of a part: kind and target of each; its id is the kind."""
    entries = (f'<Relationship Id="{kind}" Type="{_KINDS}/{kind}" Target="{to}"/>' for kind, to in targets.items())
    return f'<Relationships xmlns="{_RELATIONS}">{"".join(entries)}</Relationships>'


def make_word(body: str, *, title: str = "", notes: str = "", header: str = "") -> bytes:
    """Return a Word file whose body is XML; see ``make_paragraph`` and ``make_word_table``."""
    styles = "".join(f'<w:style w:styleId="H{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2))
    styles += '<w:style w:styleId="T"><w:name w:val="Title"/></w:style>'

    def wrap(name: str, content: str) -> str:
        return f'<w:{name} xmlns:w="{_WORD}">{content}</w:{name}>'

    return make_zip(
        {
            "_rels/.rels": make_relations(officeDocument="word/document.xml"),
            "word/_rels/document.xml.rels": make_relations(
                styles="styles.xml", footnotes="footnotes.xml", header="header1.xml"
            ),
            "word/document.xml": wrap("document", f"<w:body>{body}</w:body>"),
            "word/styles.xml": wrap("styles", f"<w:latentStyles/>{styles}"),
            "word/footnotes.xml": wrap("footnotes", f'<w:footnote w:id="1">{make_paragraph(notes)}</w:footnote>'),
            "word/header1.xml": wrap("hdr", make_paragraph(header)),
            "docProps/core.xml": CORE.format(title=title),
        }
    )


def make_paragraph(text: str, style: str = "", more: str = "", *, is_bold: bool = False) -> str:
    """Return a paragraph of a Word file."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    bold = "<w:rPr><w:b/></w:rPr>" if is_bold else ""
    return f"<w:p>{properties}<w:r>{bold}<w:t>{escape(text)}</w:t></w:r>{more}</w:p>"


def make_word_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of a Word file."""
    cells = ("".join(f"<w:tc>{make_paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def make_slides(slides: Sequence[tuple[str, Sequence[str]]], *, title: str = "", notes: str = "") -> bytes:
    """Return a PowerPoint file with slides of a title and paragraphs; ``notes`` are those of each slide."""
    names = 'xmlns:p="p" xmlns:a="a" xmlns:r="r"'

    def make_shape(kind: str, texts: Sequence[str]) -> str:
        holder = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>' if kind else ""
        lines = "".join(f"<a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p>" for text in texts)
        return f"<p:sp>{holder}<p:txBody>{lines}</p:txBody></p:sp>"

    # The last slide of the list is in the first part: the order is that of the list.
    count = len(slides)
    ids = "".join(f'<p:sldId id="{256 + n}" r:id="s{count - n}"/>' for n in range(count))
    targets = {f"s{count - n}": f"slides/slide{count - n}.xml" for n in range(count)}
    members = {
        "ppt/presentation.xml": f"<p:presentation {names}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": make_relations(**targets),
        "docProps/core.xml": CORE.format(title=title),
        "ppt/notesSlides/n.xml": f"<p:notes {names}>{make_shape('body', [notes])}</p:notes>",
    }
    for number, (heading, texts) in enumerate(slides):
        shapes = make_shape("", texts) + (make_shape("title", [heading]) if heading else "")
        members[f"ppt/slides/slide{count - number}.xml"] = f"<p:sld {names}>{shapes}</p:sld>"
        members[f"ppt/slides/_rels/slide{count - number}.xml.rels"] = make_relations(notesSlide="../notesSlides/n.xml")
    return make_zip(members)


def make_open_document(kind: str, body: str, *, title: str = "", manifest: str = "<m/>") -> bytes:
    """Return an OpenDocument file of a kind: ``text``, ``presentation`` or ``spreadsheet``."""
    parts = ("office", "text", "table", "draw", "presentation", "style")
    names = " ".join(f'xmlns:{part}="{_OPEN_DOCUMENT}:{part}:1.0"' for part in parts)
    content = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    return make_zip(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": manifest,
            "content.xml": f"<office:document-content {names}>{content}</office:document-content>",
            "meta.xml": f'<m xmlns:d="d"><d:title>{title}</d:title><d:date>2024-03-01T10:00:00</d:date></m>',
        }
    )


def make_open_table(rows: Sequence[Sequence[str]], name: str = "") -> str:
    """Return a table of an OpenDocument file; whole numbers are percentages."""

    def make_cell(text: str) -> str:
        kind = f'percentage" office:value="{int(text) / 100}' if text.isdecimal() else "string"
        return f'<table:table-cell office:value-type="{kind}"><text:p>{escape(text)}</text:p></table:table-cell>'

    cells = ("".join(map(make_cell, row)) for row in rows)
    lines = "".join(f"<table:table-row>{row}</table:table-row>" for row in cells)
    return f'<table:table table:name="{name}">{lines}</table:table>'


def make_workbook(sheets: Mapping[str, str], formats: Sequence[str] = ()) -> bytes:
    """Return an Excel file with sheets whose rows are XML; style 1 of a cell is a date, those from 2 ``formats``."""
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    list_ = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="s{n}" xmlns:r="{_KINDS}"/>' for n, name in enumerate(sheets)
    )
    entries = "".join(
        f'<Relationship Id="s{n}" Type="{_KINDS}/worksheet" Target="worksheets/{n}.xml"/>' for n in range(len(sheets))
    )
    entries += f'<Relationship Id="t" Type="{_KINDS}/styles" Target="styles.xml"/>'
    codes = "".join(
        f'<numFmt numFmtId="{number}" formatCode={quoteattr(code)}/>' for number, code in enumerate(formats, 164)
    )
    more = "".join(f'<xf numFmtId="{number}"/>' for number in range(164, 164 + len(formats)))
    styles = f'<numFmts>{codes}</numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/>{more}</cellXfs>'
    return make_zip(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": make_relations(officeDocument="xl/workbook.xml"),
            "xl/workbook.xml": f"<workbook {space}><sheets>{list_}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{entries}</Relationships>',
            "xl/styles.xml": f"<styleSheet {space}>{styles}</styleSheet>",
            **{
                f"xl/worksheets/{number}.xml": f"<worksheet {space}><sheetData>{rows}</sheetData></worksheet>"
                for number, rows in enumerate(sheets.values())
            },
        }
    )


def make_row(number: int, *values: str | float | date) -> str:
    """Return a row of an Excel file; an empty string is no cell."""

    def make_cell(place: str, value: str | float | date) -> str:
        if isinstance(value, str):
            return f'<c r="{place}" t="inlineStr"><is><t>{escape(value)}</t></is></c>' if value else ""
        if isinstance(value, date):
            return f'<c r="{place}" s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
        return f'<c r="{place}"><v>{value}</v></c>'

    cells = (make_cell(f"{chr(65 + column)}{number}", value) for column, value in enumerate(values))
    return f'<row r="{number}">{"".join(cells)}</row>'


def make_book(chapters: Mapping[str, str], title: str = "A Book") -> bytes:
    """Return an e-book (EPUB) with chapters of HTML."""
    items = "".join(f'<item id="{n}" href="{n}.xhtml" media-type="application/xhtml+xml"/>' for n in chapters)
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    root = '<rootfile full-path="b.opf" media-type="application/oebps-package+xml"/>'
    return make_zip(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
            f"<rootfiles>{root}</rootfiles></container>",
            "b.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/'
            f'dc/elements/1.1/"><dc:title>{title}</dc:title></metadata><manifest>{items}</manifest>'
            f"<spine>{spine}</spine></package>",
            **{
                f"{name}.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>'
                for name, body in chapters.items()
            },
        }
    )
