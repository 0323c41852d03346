"""JSON lines: one document a line, ``{"id": …, "title": …, "text": …}``."""

import json
from collections.abc import Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The documents of the file in their order; the title may be missing, other fields are ignored.

    Raises BadLine on a line that is not such a record, unless bad input is skipped.
    """
    for number, line, replaced in source.lines():
        if line.isspace():
            continue
        try:
            document = _document(line, source.path)
        except ValueError as error:
            source.bad(str(error), number)
            continue
        if replaced:
            source.replaced(number)
        yield number, document


def _document(line: str, path: str) -> Document:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object with the fields id, title and text")
    return Document(_id(record), _string(record, "title", missing=""), _string(record, "text"), path)


def _id(record: dict[str, object]) -> str:
    """The field id, which may be a whole number: many exports have it so."""
    value = record.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not _string(record, "id"):
        raise ValueError("the field 'id' is empty")
    return str(value)


def _string(record: dict[str, object], field: str, missing: str | None = None) -> str:
    value = record.get(field)
    if value is None and missing is not None:
        return missing
    if field not in record:
        raise ValueError(f"no field '{field}'")
    if not isinstance(value, str):
        raise ValueError(f"the field '{field}' is not a string but {type(value).__name__}")
    return value
