"""Client of an index that is served over HTTP, and the protocol.

    GET  /healthz    the collection and the state of its shards (see ``ServedCollection``)
    POST /search     {"questions": ["…"], "k": 10}  ->  {"ragqa": 1, "missing": [], "found": [[HIT, …], …]}

A hit is ``{"id", "document", "title", "text", "path", "start", "end", "score"}``. The id is valid within the hits of
one question only, since an update of a shard changes the ids of the shards after it. Every response has the version of
the protocol under ``ragqa``. A response with a status other than 200 has a message under ``error``.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import finalize

from ragqa.artefacts.paths import parse_url
from ragqa.errors import BadInput, Mismatch, RemoteError
from ragqa.retrieval.base import PartialHits, check_k
from ragqa.types import Hit, Passage

PROTOCOL = 1
"""Version of the protocol; a client refuses newer versions."""
HEALTH, SEARCH = "/healthz", "/search"
BATCH = 64
"""Maximum number of questions in a request; more questions take several requests."""
TIMEOUT = 60.0
"""Time limit of a request in seconds."""
_PASSAGE_FIELDS = tuple(field.name for field in fields(Passage))
_Row = TypeVar("_Row")


@dataclass(frozen=True, kw_only=True)
class ServedShard:
    """Shard of a served collection."""

    name: str
    up: bool
    passages: int
    """Number of passages when the shard last answered."""
    fingerprint: str | None
    """Fingerprint of the shard's index; None if the shard is not up."""
    error: str | None = None
    """Reason why the shard is not up."""


@dataclass(frozen=True, kw_only=True)
class ServedCollection:
    """Collection of shards that a server searches."""

    retriever: str
    fusion: str | None
    """Fusion of a hybrid retriever; None for other retrievers."""
    kind: str | None
    """Kind of the vector index; several kinds are separated by commas."""
    encoder: str | None
    """Fingerprint of the encoder; None for a retriever without one."""
    fingerprint: str | None
    """Digest of the versions of all shards; None while a shard is missing."""
    origin: str | None
    """Digest that updates do not change; None while a shard is missing."""
    corpus: str | None
    """Digest of the passages; None while a shard is missing."""
    passages: int
    sources: tuple[str, ...]
    """Names of the files from which the shards were built."""
    shards: tuple[ServedShard, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the shards that are not up."""
        return tuple(shard.name for shard in self.shards if not shard.up)

    def describe(self) -> dict[str, Any]:
        """Return the entries for ``Pipeline.describe``; ``missing`` only if shards are missing."""
        names = ("retriever", "fusion", "kind", "encoder", "passages", "corpus", "sources")
        facts = {"index": self.fingerprint, "shards": len(self.shards), **{name: getattr(self, name) for name in names}}
        return {**facts, "missing": self.missing} if self.missing else facts

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "ServedCollection":
        """Read the collection from a server's response.

        Raises:
            KeyError, TypeError, ValueError: the response does not follow the protocol.
        """
        shards = tuple(_from_row(ServedShard, shard) for shard in row["shards"])
        return _from_row(cls, {**row, "sources": tuple(map(str, row["sources"])), "shards": shards})


class RemoteRetriever:
    """Retriever over an index at a URL; many threads can use it at once."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        """Prepare to search the server at ``url``; this sends no request.

        Args:
            url: address of the server, ``http://HOST:PORT``.
            timeout: time limit of a request in seconds.

        Raises:
            BadInput: ``url`` is not a URL.
        """
        self.url = parse_url(url) or ""
        try:
            parts = urlsplit(self.url)
            host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise BadInput(f"{url} is not a URL: {error}") from error
        if not host:
            raise BadInput(f"{url} is not a URL: http://HOST:PORT is needed")
        self._secure, self._host, self._path, self._timeout = parts.scheme == "https", host, parts.path, timeout
        self._idle: list[HTTPConnection] = []
        """Open connections that no request is using."""
        finalize(self, _close_all, self._idle)

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question; ``PartialHits`` if a shard is missing.

        Raises:
            BadInput: ``k`` is less than 1 or more than the server allows, or a question is empty.
            RemoteError: the server cannot be reached, does not answer in time, or all its shards are missing.
            Mismatch: the server uses a newer version of the protocol.
        """
        check_k(k)
        batches = (questions[start : start + BATCH] for start in range(0, len(questions), BATCH))
        return [hits for batch in batches for hits in self._search_batch(batch, k)]

    def fetch_collection(self) -> ServedCollection:
        """Return the collection that the server serves now; raises the same errors as ``search``."""
        row = self._request("GET", HEALTH)
        try:
            return ServedCollection.from_json(row)
        except (KeyError, TypeError, ValueError) as error:
            raise self._make_error(repr(error)) from error

    def _search_batch(self, questions: list[str], k: int) -> Iterator[list[Hit]]:
        row = self._request("POST", SEARCH, json.dumps({"questions": questions, "k": k}).encode())
        try:
            missing = tuple(map(str, row["missing"]))
            results = [
                [Hit(Passage(**{name: hit[name] for name in _PASSAGE_FIELDS}), float(hit["score"])) for hit in hits]
                for hits in row["found"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise self._make_error(repr(error)) from error
        if len(results) != len(questions):
            raise self._make_error(f"{len(results)} answers to {len(questions)} questions")
        return (PartialHits(hits, missing) if missing else hits for hits in results)

    def _request(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Send a request and return the response; raise the errors of ``search`` if it fails."""
        try:
            status, data = self._exchange(method, self._path + path, body)
        except TimeoutError as error:
            raise RemoteError(f"{self.url} did not answer within {self._timeout:g} seconds") from error
        except HTTPException as error:
            raise self._make_error(repr(error)) from error
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise RemoteError(f"{self.url} cannot be reached ({why}): is an index served there?") from error
        try:
            row: dict[str, Any] = json.loads(data)
            protocol = int(row["ragqa"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RemoteError(f"{self.url} is not an index served by ragqa: it answers {status} to {path}") from error
        if protocol > PROTOCOL:
            raise Mismatch(f"{self.url} uses version {protocol} of the protocol, not {PROTOCOL}: update ragqa")
        if status != 200:
            error_class = BadInput if status == 400 else RemoteError
            raise error_class(f"{self.url}: {row.get('error') or f'status {status}'}")
        return row

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Send a request and return status and body of the response."""
        # The server can have closed an idle connection. To repeat a search does no harm.
        with suppress(IndexError, ConnectionError):
            return self._exchange_over(self._idle.pop(), method, path, body)
        connect = HTTPSConnection if self._secure else HTTPConnection
        return self._exchange_over(connect(self._host, self._port, timeout=self._timeout), method, path, body)

    def _exchange_over(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            response: HTTPResponse = connection.getresponse()
            data = response.read()
        except BaseException:
            connection.close()
            raise
        if not response.will_close:
            self._idle.append(connection)
        return response.status, data

    def _make_error(self, why: str) -> RemoteError:
        return RemoteError(f"{self.url} does not answer as an index served by ragqa: {why}")


def hit_to_row(hit: Hit) -> dict[str, Any]:
    """Return a hit as the JSON object of the protocol."""
    return {**{name: getattr(hit.passage, name) for name in _PASSAGE_FIELDS}, "score": hit.score}


def _from_row(row_class: type[_Row], row: dict[str, Any]) -> _Row:
    """Make a dataclass of a row's values; unknown entries are ignored."""
    return row_class(**{field.name: row[field.name] for field in fields(row_class)})  # type: ignore[arg-type]


def _close_all(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()
