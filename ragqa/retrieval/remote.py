"""Search an index that another process serves, over HTTP: the client's half, and the protocol of both.

    GET  /healthz    what the collection is, and which of its shards are up
    POST /search     {"questions": ["…"], "k": 10}  ->  {"ragqa": 1, "missing": [], "found": [[HIT, …], …]}

A hit is ``{"id", "document", "title", "text", "path", "start", "end", "score"}``; its id holds within one answer
only, as updates of a shard move those of the next. Every answer bears the protocol's version under ``ragqa``; one
that is not 200 says why in a line under ``error``.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Lock
from typing import Any
from urllib.parse import urlsplit
from weakref import finalize

from ragqa.artefacts.paths import parse_url
from ragqa.errors import BadInput, Mismatch, RemoteError
from ragqa.retrieval.base import PartialHits, check_k
from ragqa.types import Hit, Passage

PROTOCOL = 1
"""Version of the protocol; a client refuses a newer one."""
HEALTH, SEARCH = "/healthz", "/search"
BATCH = 64
"""Questions of a request: more are sent in several."""
TIMEOUT = 60.0
"""Seconds in which a server must answer a request."""
_PASSAGE = tuple(field.name for field in fields(Passage))


@dataclass(frozen=True, kw_only=True)
class Part:
    """A shard of a collection."""

    name: str
    up: bool
    passages: int
    """As last known."""
    fingerprint: str | None
    """Of the index that stands there now; None where it is not up."""
    error: str | None = None
    """Why it is not up."""


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What is served: the shards of one collection, and how they are searched."""

    retriever: str
    fusion: str | None
    """None where nothing is fused."""
    kind: str | None
    """Of the dense part; several are named with commas between them."""
    encoder: str | None
    """Its fingerprint; None where none is needed."""
    fingerprint: str | None
    """Changes with any version of any shard; None while one is missing."""
    origin: str | None
    """The same, but updates do not change it."""
    corpus: str | None
    """Changes with the passages; None while a shard is missing."""
    passages: int
    sources: tuple[str, ...]
    """Files that the shards were made of."""
    shards: tuple[Part, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the shards that are not up."""
        return tuple(shard.name for shard in self.shards if not shard.up)

    def describe(self) -> dict[str, Any]:
        """For ``Pipeline.describe``; ``missing`` is there only where a shard is."""
        parts = ("retriever", "fusion", "kind", "encoder", "passages", "corpus", "sources")
        described = {"index": self.fingerprint, "shards": len(self.shards), **{p: getattr(self, p) for p in parts}}
        return {**described, "missing": self.missing} if self.missing else described

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "Collection":
        """What a server said; KeyError, TypeError or ValueError where it is something else."""
        told = {field.name: row[field.name] for field in fields(cls)}
        shards = tuple(Part(**{field.name: part[field.name] for field in fields(Part)}) for part in row["shards"])
        return cls(**{**told, "sources": tuple(map(str, row["sources"])), "shards": shards})


class RemoteRetriever:
    """Searches an index at a URL as ``PassageRetriever`` searches one in a directory; for many threads at once."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        """Search the server at ``url``, which is not asked yet, and has ``timeout`` seconds for a request.

        Raises:
            BadInput: that is no URL.
        """
        self.url = parse_url(url) or ""
        try:
            parts = urlsplit(self.url)
            self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        except ValueError as error:
            raise BadInput(f"{url} is not a URL: {error}") from error
        if not self._host:
            raise BadInput(f"{url} is not a URL: http://HOST:PORT is needed")
        self._path, self._timeout = parts.path, timeout
        self._idle: list[HTTPConnection] = []
        """Connections that are kept open for the next request."""
        self._lock = Lock()
        finalize(self, _close, self._idle)

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        """At most ``k`` hits for each question, best first; ``PartialHits`` where a shard did not answer.

        Raises:
            BadInput: ``k`` is less than 1 or more than the server allows, a question is empty.
            RemoteError: the server cannot be reached, does not answer in time, or has no shard left.
            Mismatch: it speaks a newer version of the protocol.
        """
        check_k(k)
        batches = (questions[at : at + BATCH] for at in range(0, len(questions), BATCH))
        return [hits for batch in batches for hits in self._found(batch, k)]

    def collection(self) -> Collection:
        """What is served there now; raises as ``search`` does."""
        row = self._ask("GET", HEALTH)
        try:
            return Collection.from_json(row)
        except (KeyError, TypeError, ValueError) as error:
            raise self._senseless(repr(error)) from error

    def _found(self, questions: list[str], k: int) -> Iterator[list[Hit]]:
        row = self._ask("POST", SEARCH, json.dumps({"questions": questions, "k": k}).encode())
        try:
            missing = tuple(map(str, row["missing"]))
            found = [[_hit(hit) for hit in hits] for hits in row["found"]]
        except (KeyError, TypeError, ValueError) as error:
            raise self._senseless(repr(error)) from error
        if len(found) != len(questions):
            raise self._senseless(f"{len(found)} answers to {len(questions)} questions")
        return (PartialHits(hits, missing) if missing else hits for hits in found)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """What the server answers, if it is ragqa's, and well."""
        try:
            status, data = self._exchange(method, self._path + path, body)
        except TimeoutError as error:
            raise RemoteError(f"{self.url} did not answer within {self._timeout:g} seconds") from error
        except HTTPException as error:
            raise self._senseless(repr(error)) from error
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise RemoteError(f"{self.url} cannot be reached ({why}): is an index served there?") from error
        try:
            row: dict[str, Any] = json.loads(data)
            protocol = int(row["ragqa"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RemoteError(f"{self.url} is not an index served by ragqa: it answers {status} to {path}") from error
        if protocol > PROTOCOL:
            raise Mismatch(f"{self.url} speaks version {protocol} of the protocol, not {PROTOCOL}: update ragqa")
        if status != 200:
            kind = BadInput if status == 400 else RemoteError
            raise kind(f"{self.url}: {row.get('error') or f'status {status}'}")
        return row

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Status and body of the answer."""
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            with suppress(ConnectionError):  # the server may close what is idle, a search may be asked twice
                return self._over(idle, method, path, body)
        assert self._host is not None
        kind = HTTPSConnection if self._secure else HTTPConnection
        return self._over(kind(self._host, self._port, timeout=self._timeout), method, path, body)

    def _over(self, connection: HTTPConnection, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            response: HTTPResponse = connection.getresponse()
            data = response.read()
        except BaseException:
            connection.close()
            raise
        if not response.will_close:
            with self._lock:
                self._idle.append(connection)
        return response.status, data

    def _senseless(self, why: str) -> RemoteError:
        return RemoteError(f"{self.url} does not answer as an index served by ragqa: {why}")


def as_row(hit: Hit) -> dict[str, Any]:
    """A hit as the protocol has it."""
    return {**{name: getattr(hit.passage, name) for name in _PASSAGE}, "score": hit.score}


def _hit(row: dict[str, Any]) -> Hit:
    return Hit(Passage(**{name: row[name] for name in _PASSAGE}), float(row["score"]))


def _close(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()
