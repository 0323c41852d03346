"""Read JSON lines with one document each, ``{"id": …, "title": …, "text": …}``."""

import json
from collections.abc import Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the document of each line with its line number.

    Without a field ``title``, the title is empty; without ``id``, the id is ``FILE:LINE``. Fields other than ``id``,
    ``title`` and ``text`` are ignored.

    Raises:
        BadLine: in strict mode, a line is not a document.
        LimitError: as for ``InputFile.iter_lines``.
    """
    for number, line, is_replaced in file.iter_lines():
        if line.isspace():
            continue
        try:
            document = _parse_line(line, file.path, number)
        except ValueError as error:
            file.reject(str(error), number)
            continue
        if is_replaced:
            file.note_undecodable(number)
        yield number, document


def _parse_line(line: str, path: str, number: int) -> Document:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object with the fields id, title and text")
    title = "" if record.get("title") is None else _get_string(record, "title")
    return Document(_get_id(record) or f"{path}:{number}", title, _get_string(record, "text"), path)


def _get_id(record: dict[str, object]) -> str:
    """Return the field ``id`` as text; an empty string if it is missing."""
    value = record.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "" if value is None else _get_string(record, "id")


def _get_string(record: dict[str, object], field: str) -> str:
    if field not in record:
        raise ValueError(f"no field '{field}'")
    value = record[field]
    if not isinstance(value, str):
        raise ValueError(f"the field '{field}' is not a string but {type(value).__name__}")
    return value
