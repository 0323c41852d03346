"""Passages as DPR's ``psgs_w100.tsv`` has them: id, text, title, tab-separated, quoted as in csv."""

import csv
from collections.abc import Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument

_HEADER = ["id", "text", "title"]
_MAX_FIELD = 2**31 - 1


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The passages of the file in their order, each a document of its own.

    Raises BadLine on a missing header or a malformed row, unless bad input is skipped.
    Source: Karpukhin et al. 2020, section 4.1, and the repository facebookresearch/DPR.
    """
    csv.field_size_limit(_MAX_FIELD)  # the default, 128 KiB, is for the whole process: only ever wider
    # strict: a stray quote must not swallow the passages after it
    rows = csv.reader(_lines(source), delimiter="\t", strict=True)
    header = False
    while True:
        first = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            source.bad(f"not tab-separated values: {error}", first)
            continue
        if not row:
            continue
        if not header:
            if row != _HEADER:
                source.bad("not in DPR's format: its first line must be id<TAB>text<TAB>title", first)
                return
            header = True
        elif len(row) != len(_HEADER):
            source.bad(f"{len(row)} fields where id, text and title should be", first)
        elif not row[0]:
            source.bad("a row without an id", first)
        else:
            yield first, Document(row[0], row[2], row[1], source.path)


def _lines(source: InputFile) -> Iterator[str]:
    for number, line, replaced in source.lines():
        if replaced:
            source.replaced(number)
        yield line
