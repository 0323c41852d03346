"""Read packages, the zip archives that hold an Office file, OpenDocument file or e-book."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import PurePosixPath
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ragqa.corpus.formats.containers.tar_archives import make_member_path
from ragqa.corpus.formats.limits import FREE_BYTES, MAX_RATIO
from ragqa.corpus.formats.office.content import ENCRYPTED, UnreadableFile

MAX_MEMBERS = 20_000
"""Maximum number of members of a package; a presentation with a thousand pictures has a tenth of it."""
_ENCRYPTED = 0x1


class Package:
    """Opened package, whose expanded size is checked before a member is read.

    Args:
        data: bytes of the file.

    Raises:
        UnreadableFile: the package is damaged or encrypted, expands too much, or has too many members.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise UnreadableFile("damaged or cut short") from error
        members = self._zip.infolist()
        self.names = {member.filename for member in members}
        """Names of the members."""
        if len(members) > MAX_MEMBERS:
            raise UnreadableFile(f"it has more than {MAX_MEMBERS:,} members, as only a hostile file does")
        if sum(member.file_size for member in members) > FREE_BYTES + MAX_RATIO * len(data):
            raise UnreadableFile(f"it expands to more than {MAX_RATIO} times its size, as only a hostile file does")
        if any(member.flag_bits & _ENCRYPTED for member in members):
            raise UnreadableFile(ENCRYPTED)

    def read(self, name: str) -> bytes:
        """Return the bytes of a member; empty bytes if it does not exist.

        Raises:
            UnreadableFile: the member is damaged.
        """
        if name not in self.names:
            return b""
        try:
            with self._zip.open(name) as member:
                return member.read(self._zip.getinfo(name).file_size)  # at most the size that was checked
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
            raise UnreadableFile(f"its part {name} is damaged") from error
        except Exception as error:
            if type(error).__module__ in ("zlib", "lzma", "_lzma"):
                raise UnreadableFile(f"its part {name} is damaged") from error
            raise

    def parse(self, name: str) -> Element:
        """Return the root element of an XML member; an empty element if the member does not exist.

        The parser (expat) refuses entities that expand a lot, and does not load external entities.

        Raises:
            UnreadableFile: the member is damaged.
        """
        data = self.read(name)
        if not data:
            return Element("missing")
        try:
            return ElementTree.fromstring(data)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise UnreadableFile(f"its part {name} is damaged") from error

    def read_relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the relations of a part of an Office file to other parts.

        Args:
            name: name of the part; empty for the whole file.

        Returns:
            Kind of each relation and name of the member to which it leads, by the id of the relation.

        Raises:
            UnreadableFile: the member with the relations is damaged.
        """
        path = PurePosixPath(name)
        relations = {}
        for element in self.parse(f"{path.parent}/_rels/{path.name}.rels".removeprefix("./")):
            target = make_member_path(str(path.parent / element.get("Target", "")))
            relations[element.get("Id", "")] = element.get("Type", "").rpartition("/")[2], target
        return relations


def get_name(element: Element) -> str:
    """Return the name of an element without its namespace, which differs between files."""
    return str(element.tag).rpartition("}")[2]


def get_value(element: Element | None, name: str) -> str:
    """Return an attribute of an element in any namespace; ``""`` if either is missing."""
    if element is not None:
        for key, value in element.attrib.items():
            if key.rpartition("}")[2] == name:
                return value
    return ""


def get_relation_id(element: Element) -> str:
    """Return the attribute ``r:id`` of an element, the id of a relation; ``""`` without it.

    An attribute ``id`` without a namespace is ignored.
    """
    return next((value for name, value in element.attrib.items() if name.endswith("}id")), "")


def find_child(element: Element | None, *path: str) -> Element | None:
    """Return the first element at a path of names below an element; None if there is none.

    Args:
        element: element at which the path starts; None gives None.
        path: names of the elements, each a child of the one before.
    """
    for name in path:
        if element is not None:
            element = next((child for child in element if get_name(child) == name), None)
    return element


def get_children(element: Element | None) -> list[Element]:
    """Return the children of an element; an empty list for None."""
    return [] if element is None else list(element)


def iter_named(element: Element, name: str) -> Iterator[Element]:
    """Yield the element and its descendants, if they have the given name."""
    return (part for part in element.iter() if get_name(part) == name)


def read_field(root: Element, name: str) -> str:
    """Return the text of the first element with the given name; empty if there is none."""
    return next((part.text or "" for part in iter_named(root, name)), "").strip()
