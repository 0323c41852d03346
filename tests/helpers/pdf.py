"""Helper for tests that read PDF: a writer of small files."""

from collections.abc import Sequence

Text = tuple[float, float, float, str]
"""Text of a page: its left and lower edge and the size of its font in points, and the text."""


def make_pdf(pages: Sequence[str | Sequence[Text]], title: str = "", *, copies: int = 1) -> bytes:
    """Return a minimal PDF with a line or several texts on each page; ``copies`` of a page share its content."""
    count = len(pages) * copies
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    objects.append(f"<< /Type /Pages /Kids [{' '.join(f'{4 + n} 0 R' for n in range(count))}] /Count {count} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number in range(count):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {4 + count + number // copies} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>"
        )
    for page in pages:
        texts = [(72, 700, 12, page)] if isinstance(page, str) else page
        content = "\n".join(f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET" for x, y, size, text in texts)
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    out, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n{trailer}\n"
    return (out + f"startxref\n{start}\n%%EOF\n").encode()
