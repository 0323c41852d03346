"""Read DPR's passage files (``psgs_w100.tsv``): id, text and title, separated by tabs."""

import csv
from collections.abc import Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES

_HEADER = ["id", "text", "title"]


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield each passage of the file as a document.

    Source: Karpukhin et al. 2020, section 4.1, and the repository facebookresearch/DPR.

    Raises:
        BadLine: in strict mode, the header is missing or a row is malformed.
        LimitError: as for ``InputFile.iter_lines``.
    """
    # The default limit of 128 KiB is too small for some passages. The new limit holds for the whole process.
    csv.field_size_limit(MAX_RECORD_BYTES)
    # With strict=False, a stray quote would swallow the passages after it.
    rows = csv.reader(_iter_lines(file), delimiter="\t", strict=True)
    has_header = False
    while True:
        first = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            file.reject(f"not tab-separated values: {error}", first)
            continue
        if not row:
            continue
        if not has_header:
            if row != _HEADER:
                file.reject("not in DPR's format: its first line must be id<TAB>text<TAB>title", first)
                return
            has_header = True
        elif len(row) != len(_HEADER):
            file.reject(f"{len(row)} fields instead of id, text and title", first)
        elif not row[0]:
            file.reject("a row without an id", first)
        else:
            yield first, Document(row[0], row[2], row[1], file.path)


def _iter_lines(file: InputFile) -> Iterator[str]:
    for number, line, is_replaced in file.iter_lines():
        if is_replaced:
            file.note_undecodable(number)
        yield line
