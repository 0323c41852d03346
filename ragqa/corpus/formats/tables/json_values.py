"""Read JSON: each object becomes a record, under headings from the fields around it.

``{"boats": [{"name": "Tern", "built": 1936}]}`` gives the record ``name: Tern; built: 1936`` under the heading boats.
"""

import json
from collections.abc import Iterator
from typing import Any

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.outline import Outline
from ragqa.corpus.formats.records import format_record
from ragqa.corpus.formats.text import plain

_MAX_CHARACTERS = 32_000_000
"""Maximum length of a JSON file in characters; a longer one is read as plain text, because parsing needs memory."""
_MAX_LEVELS = 50
"""Maximum depth of values that are divided into records; a deeper value becomes one record of JSON."""
_NAMES = ("name", "title", "label", "id")
"""Fields that can name an object in its heading, in order of preference."""
_MAX_INLINE = 200
"""Maximum length in characters of a list of strings inside a record; each item of a longer list becomes a record."""


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document of records, numbered from 1 in each list.

    A file with one JSON value per line is read as a list. Any other file that is not JSON, and a file that is too long
    or too deeply nested, is read as plain text.

    Raises:
        LimitError: as for ``InputFile.read_bytes``.
    """
    text = file.read_text()
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError("too long")
        value = _parse(text)
    except (ValueError, RecursionError):
        yield 0, plain.make_document(text, file)
        return
    records = _Records()
    records.add(value, 2)
    text = "".join(records.lines)
    yield 0, Document(file.path, file.make_title(), text, file.path, records.outline.finish(text), "item")


def _parse(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
        return [json.loads(line, strict=False) for line in text.split("\n") if line.strip()]  # a value per line


class _Records:
    """Builder of the records of a value, one per line, and of their outline."""

    def __init__(self) -> None:
        self.lines, self.outline = list[str](), Outline()
        self._position = 0

    def add(self, value: Any, level: int, number: int = 1) -> None:
        """Add the records of a value.

        Args:
            value: JSON value.
            level: level of headings in the value, from 2, because a heading of level 1 could become the title.
            number: position of the value in the nearest list, from 1.
        """
        if level > _MAX_LEVELS:
            self._add_records([json.dumps(value, ensure_ascii=False)], number)
        elif isinstance(value, dict):
            flat = {name: text for name, item in value.items() if (text := _format_value(item)) is not None}
            self._add_records([_format_fields(flat)], number)
            for name, item in value.items():
                if name not in flat:
                    self._add_below(name, item, level, number)
        elif isinstance(value, list):
            self._add_list(value, level)
        else:
            self._add_records([" ".join((_format_value(value) or "").split())], number)

    def _add_list(self, items: list[Any], level: int) -> None:
        """Add the items of a list: each as one record, or else as records below a heading."""
        records, first = list[str](), 1
        for number, item in enumerate(items, 1):
            flat = _flatten(item)
            if flat is not None:
                records.append(flat)
                continue
            self._add_records(records, first)
            records, first = [], number + 1
            self._add_below(_find_name(item) or str(number), item, level, number)
        self._add_records(records, first)

    def _add_below(self, heading: str, value: Any, level: int, number: int) -> None:
        self.outline.add_heading(level, heading, self._position, self._position)
        self.add(value, level + 1, number)
        self.outline.add_heading(level, "", self._position, self._position)  # ends the scope of the heading

    def _add_records(self, records: list[str], number: int) -> None:
        if not any(records):
            return
        start = self._position
        for record in records:
            self.lines.append(f"{record}\n")
            self._position += len(record) + 1
        self.outline.add_records(start, self._position, number=number)


def _format_value(value: Any) -> str | None:
    """Return a scalar or a list of scalars as text; None for other values and for long lists.

    A list is long if it contains a string, and its text has more than ``_MAX_INLINE`` characters.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if any(isinstance(item, list | dict) for item in value):
            return None
        text = ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value)
        has_texts = any(isinstance(item, str) for item in value)
        return None if has_texts and len(text) > _MAX_INLINE else text
    return None if isinstance(value, dict) else "" if value is None else json.dumps(value)


def _format_fields(fields: dict[str, str]) -> str:
    return format_record([*fields], [*fields.values()])


def _flatten(item: Any) -> str | None:
    """Return a list item as one record; None if it is nested too deeply or has a long list."""
    if not isinstance(item, dict):
        text = _format_value(item)
        return None if text is None else " ".join(text.split())
    fields: dict[str, str] = {}
    for name, value in item.items():
        inner = {f"{name} {key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
        for key, part in inner.items():
            text = _format_value(part)
            if text is None:
                return None
            fields[key] = text
    return _format_fields(fields)


def _find_name(item: Any) -> str:
    """Return the first of an object's ``_NAMES`` that is a string or whole number; else ``""``."""
    fields = item if isinstance(item, dict) else {}
    return next((str(fields[key]) for key in _NAMES if isinstance(fields.get(key), str | int)), "")
