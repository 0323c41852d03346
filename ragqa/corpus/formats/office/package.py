"""Packages: the ZIP archives that Office and OpenDocument files and e-books are."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import PurePosixPath
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ragqa.corpus.formats.limits import FREE_BYTES, MAX_RATIO
from ragqa.corpus.formats.office.content import ENCRYPTED, UnreadableFile

MAX_MEMBERS = 20_000
"""Number of members of a package: ten times those of a presentation with a thousand pictures."""
_ENCRYPTED = 0x1


class Package:
    """Opened package, checked before anything is expanded.

    Raises:
        UnreadableFile: it is damaged, encrypted, or expands too much.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise UnreadableFile("damaged or cut short") from error
        members = self._zip.infolist()
        self.names = {member.filename for member in members}
        if len(members) > MAX_MEMBERS:
            raise UnreadableFile(f"it has more than {MAX_MEMBERS:,} members, as only a hostile file does")
        if sum(member.file_size for member in members) > FREE_BYTES + MAX_RATIO * len(data):
            raise UnreadableFile(f"it expands to more than {MAX_RATIO} times its size, as only a hostile file does")
        if any(member.flag_bits & _ENCRYPTED for member in members):
            raise UnreadableFile(ENCRYPTED)

    def read(self, name: str) -> bytes:
        """Return a member; empty if there is none."""
        if name not in self.names:
            return b""
        try:
            with self._zip.open(name) as member:
                size = self._zip.getinfo(name).file_size
                return member.read(size)  # no more than what was checked
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
            raise UnreadableFile(f"its part {name} is damaged") from error
        except Exception as error:
            if type(error).__module__ in ("zlib", "lzma", "_lzma"):
                raise UnreadableFile(f"its part {name} is damaged") from error
            raise

    def parse(self, name: str) -> Element:
        """Return the root of an XML member; an element without content if there is none.

        expat, which parses it, refuses entities that expand a lot, and loads none from elsewhere.
        """
        data = self.read(name)
        if not data:
            return Element("missing")
        try:
            return ElementTree.fromstring(data)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise UnreadableFile(f"its part {name} is damaged") from error

    def read_relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the kind and the name of each part to which a part of an Office file refers, by its id."""
        path = PurePosixPath(name)
        relations = {}
        for element in self.parse(f"{path.parent}/_rels/{path.name}.rels".removeprefix("./")):
            target = element.get("Target", "")
            full = target.lstrip("/") if target.startswith("/") else _join(path.parent, target)
            relations[element.get("Id", "")] = element.get("Type", "").rpartition("/")[2], full
        return relations


def get_name(element: Element) -> str:
    """Return the name of an element without its namespace; the strict and the usual kind of Office have two."""
    return str(element.tag).rpartition("}")[2]


def get_value(element: Element | None, name: str) -> str:
    """Return an attribute, whatever its namespace; empty if there is none."""
    if element is not None:
        for key, value in element.attrib.items():
            if key.rpartition("}")[2] == name:
                return value
    return ""


def get_relation_id(element: Element) -> str:
    """Return the ``r:id`` of an element, which names a part; the element can also have an ``id``."""
    return next((value for name, value in element.attrib.items() if name.endswith("}id")), "")


def find_child(element: Element | None, *path: str) -> Element | None:
    """Return the first element at a path of names below an element."""
    for name in path:
        if element is not None:
            element = next((child for child in element if get_name(child) == name), None)
    return element


def get_children(element: Element | None) -> list[Element]:
    """Return the elements directly below an element; none if there is no element."""
    return [] if element is None else list(element)


def iter_named(element: Element, name: str) -> Iterator[Element]:
    """Yield all elements with a name below an element."""
    return (part for part in element.iter() if get_name(part) == name)


def read_field(root: Element, name: str) -> str:
    """Return the text of the first element with a name; empty if there is none."""
    return next((part.text or "" for part in iter_named(root, name)), "").strip()


def _join(folder: PurePosixPath, target: str) -> str:
    parts = list[str]()
    for part in (*folder.parts, *PurePosixPath(target).parts):
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ".."):
            parts.append(part)
    return "/".join(parts)
