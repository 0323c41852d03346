"""Client and protocol of an index that is served over HTTP.

    GET  /healthz    the collection and the state of its shards (see ``ServedCollection``)
    POST /search     {"questions": ["…"], "k": 10}  ->  {"ragqa": 2, "missing": [], "found": [[HIT, …], …]}

A hit has the fields of ``Passage`` and a score (see ``hit_to_row``). The id of a passage is valid within the hits of
one question only, since an update of a shard changes the ids of the shards after it. Every response has the version of
the protocol under ``ragqa``. A response with another status than 200 also has a message under ``error``.
"""

import json
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from http.client import HTTPException
from time import monotonic
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlsplit
from weakref import finalize

from ragqa.artefacts.paths import parse_url
from ragqa.bounded_http import BoundedConnection, TooLarge
from ragqa.errors import BadInput, Mismatch, RemoteError
from ragqa.retrieval.base import PartialHits, check_k
from ragqa.retrieval.filters import PassageFilter
from ragqa.types import Hit, Passage

PROTOCOL = 2
"""Version of the protocol; a client refuses newer versions.

Increase it if older clients would misread a response, for example because a hit has other fields.
"""
HEALTH, SEARCH = "/healthz", "/search"
"""Paths of the requests, for the client and for ``index.serve``."""
BATCH = 64
"""Maximum number of questions in a request; more questions take several requests."""
BATCH_PASSAGES = 16_000
"""Maximum of the number of questions times k in a request of more than one question."""
TIMEOUT = 60.0
"""Default time limit of a whole request in seconds."""
_BYTES, _BYTES_PER_PASSAGE, _MOST_BYTES = 16 << 20, 16 << 10, 1 << 29
"""Maximum size of a response in bytes: a constant and a size per requested passage, up to a total.

A passage of 100 words takes about a kilobyte as JSON.
"""
_LARGEST_ID, _LARGEST_SCORE = 2**63 - 1, sys.float_info.max
_PASSAGE_FIELDS = tuple(field.name for field in fields(Passage))
_Row = TypeVar("_Row")


@dataclass(frozen=True, kw_only=True)
class ServedShard:
    """Shard of a served collection."""

    name: str
    up: bool
    """True if the server can search the shard now."""
    passages: int
    """Number of passages at the shard's last response."""
    fingerprint: str | None
    """Fingerprint of the shard's index; None if the shard is not up."""
    error: str | None = None
    """Reason why the shard is not up; None if the shard is up or the reason is unknown."""


@dataclass(frozen=True, kw_only=True)
class ServedCollection:
    """Collection of shards that a server searches."""

    retriever: str
    fusion: str | None
    """Fusion of a hybrid retriever; None for other retrievers."""
    kind: str | None
    """Kinds of the vector indexes, separated by commas; None without vectors."""
    encoder: str | None
    """Fingerprint of the encoder; None for a retriever without one."""
    fingerprint: str | None
    """Digest of the versions of all shards; None while a shard is missing."""
    origin: str | None
    """Digest of the indexes as first built, which updates do not change; None while a shard is missing."""
    corpus: str | None
    """Digest of the passages; None while a shard is missing."""
    passages: int
    sources: tuple[str, ...]
    """Names of the folders and files from which the shards were built."""
    shards: tuple[ServedShard, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the shards that are not up."""
        return tuple(shard.name for shard in self.shards if not shard.up)

    def describe(self) -> dict[str, Any]:
        """Return the entries about the index for ``Pipeline.describe``.

        The entry ``missing`` exists only if shards are missing.
        """
        names = ("retriever", "fusion", "kind", "encoder", "passages", "corpus", "sources")
        facts = {"index": self.fingerprint, "shards": len(self.shards), **{name: getattr(self, name) for name in names}}
        return {**facts, "missing": self.missing} if self.missing else facts

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "ServedCollection":
        """Make a collection from the JSON object of a server's response.

        Raises:
            KeyError, TypeError, ValueError: the response does not follow the protocol.
        """
        shards = tuple(_from_row(ServedShard, shard) for shard in _check(list, row["shards"]))
        sources = tuple(_check(str, source) for source in _check(list, row["sources"]))
        return _from_row(cls, {**row, "sources": sources, "shards": shards})


class RemoteRetriever:
    """Retriever over an index at a URL; many threads can use one object."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        """Prepare to search the server at ``url``, without sending a request.

        Args:
            url: address of the server, for example ``http://HOST:PORT``.
            timeout: time limit of a request in seconds.

        Raises:
            BadInput: ``url`` is not an HTTP or HTTPS URL.
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
        self._idle: list[BoundedConnection] = []
        """Open connections that no request is using."""
        finalize(self, _close_all, self._idle)

    def search(self, questions: list[str], k: int, filter: PassageFilter | None = None) -> list[list[Hit]]:
        """Return at most ``k`` hits for each question, best first.

        The hits are ``PartialHits`` if a shard is missing.

        Args:
            questions: texts of the questions.
            k: maximum number of hits of a question.
            filter: must be empty or None, because a server cannot filter.

        Raises:
            BadInput: ``k`` is less than 1, the server refuses ``k`` or a question, or a filter is given.
            RemoteError: the server cannot be reached, does not answer in time or by the protocol, or has no shards up.
            Mismatch: the server uses a newer version of the protocol.
        """
        check_k(k)
        if filter:
            raise BadInput(f"{self.url} cannot be filtered by path, tag or date: search a directory of the index")
        size = max(1, min(BATCH, BATCH_PASSAGES // k))
        batches = (questions[start : start + size] for start in range(0, len(questions), size))
        return [hits for batch in batches for hits in self._search_batch(batch, k)]

    def fetch_collection(self) -> ServedCollection:
        """Return the collection that the server serves now.

        Raises:
            BadInput: the server refuses the request.
            RemoteError, Mismatch: as for ``search``.
        """
        row = self._request("GET", HEALTH, max_bytes=_BYTES)
        try:
            return ServedCollection.from_json(row)
        except (KeyError, TypeError, ValueError) as error:
            raise self._make_error(repr(error)) from error

    def _search_batch(self, questions: list[str], k: int) -> list[list[Hit]]:
        body = json.dumps({"questions": questions, "k": k}).encode()
        max_bytes = min(_BYTES + len(questions) * k * _BYTES_PER_PASSAGE, _MOST_BYTES)
        row = self._request("POST", SEARCH, body, max_bytes=max_bytes)
        try:
            missing = tuple(_check(str, name) for name in _check(list, row["missing"]))
            results = [_read_hits(hits, k) for hits in _check(list, row["found"])]
        except (KeyError, TypeError, ValueError) as error:
            raise self._make_error(repr(error)) from error
        if len(results) != len(questions):
            raise self._make_error(f"{len(results)} answers to {len(questions)} questions")
        return [PartialHits(hits, missing) for hits in results] if missing else results

    def _request(self, method: str, path: str, body: bytes | None = None, *, max_bytes: int) -> dict[str, Any]:
        try:
            status, data = self._exchange(method, self._path + path, body, max_bytes)
        except TimeoutError as error:
            raise RemoteError(f"{self.url} did not answer within {self._timeout:g} seconds") from error
        except TooLarge as error:
            raise self._make_error(f"its response has more than {max_bytes >> 20} MB") from error
        except HTTPException as error:
            raise self._make_error(repr(error)) from error
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise RemoteError(f"{self.url} cannot be reached ({why}): is an index served there?") from error
        try:
            row = _check(dict, json.loads(data, parse_constant=_refuse_constant))
            protocol = _check(int, row["ragqa"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            redirected = " and ragqa follows no redirection" if 300 <= status < 400 else ""
            problem = f"is not an index served by ragqa: it answers {status} to {path}{redirected}"
            raise RemoteError(f"{self.url} {problem}") from error
        if protocol > PROTOCOL:
            raise Mismatch(f"{self.url} uses version {protocol} of the protocol, not {PROTOCOL}: update ragqa")
        if status != 200:
            error_class = BadInput if status == 400 else RemoteError
            message = " ".join(str(row.get("error") or f"status {status}").split())
            raise error_class(f"{self.url}: {_shorten(message)}")
        return row

    def _exchange(self, method: str, path: str, body: bytes | None, max_bytes: int) -> tuple[int, bytes]:
        deadline = monotonic() + self._timeout

        def exchange_over(connection: BoundedConnection) -> tuple[int, bytes]:
            status, data, is_open = connection.exchange(method, path, body, deadline=deadline, max_bytes=max_bytes)
            if is_open:
                self._idle.append(connection)
            return status, data

        # The server may have closed an idle connection; then the request is repeated, which changes nothing there.
        with suppress(IndexError, ConnectionError):
            return exchange_over(self._idle.pop())
        return exchange_over(BoundedConnection(self._host, self._port, self._secure))

    def _make_error(self, why: str) -> RemoteError:
        return RemoteError(f"{self.url} does not answer as an index served by ragqa: {_shorten(why)}")


def hit_to_row(hit: Hit) -> dict[str, Any]:
    """Return a hit as the JSON object of the protocol."""
    return {**{name: getattr(hit.passage, name) for name in _PASSAGE_FIELDS}, "score": hit.score}


def _shorten(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:500]}…"


def _read_hits(rows: Any, k: int) -> list[Hit]:
    """Read the hits of a question; raise KeyError, TypeError or ValueError if they are wrong."""
    if len(_check(list, rows)) > k:
        raise ValueError(f"{len(rows)} passages, where {k} were asked for")
    hits = [_read_hit(_check(dict, row)) for row in rows]
    if len({hit.passage.id for hit in hits}) < len(hits):
        raise ValueError("a passage comes twice")
    return hits


def _read_hit(row: dict[str, Any]) -> Hit:
    passage, score = _from_row(Passage, row), row["score"]
    if type(score) not in (int, float) or not -_LARGEST_SCORE <= score <= _LARGEST_SCORE:
        raise ValueError(f"score {score!r:.80} is not a finite number")
    if passage.id > _LARGEST_ID or not passage.start <= passage.end <= _LARGEST_ID:
        raise ValueError(f"numbers of passage {passage.id!r:.80} are out of range")
    if passage.end - passage.start != len(passage.text):
        raise ValueError(f"start and end of passage {passage.id} do not fit its text")
    return Hit(passage, float(score))


def _from_row(row_class: type[_Row], row: Any) -> _Row:
    """Make a dataclass of a row's values and check their types; unknown entries are ignored."""
    types, values = _get_types(row_class), _check(dict, row)  # type: ignore[arg-type]
    return row_class(**{name: _check_field(kind, values[name], name) for name, kind in types.items()})


def _check_field(kind: Any, value: Any, name: str) -> Any:
    if type(value) is tuple:  # the caller has checked its members
        return value
    if kind == tuple[str, ...]:
        return tuple(_check(str, text, name) for text in _check(list, value, name))
    return _check(kind, value, name)


@cache
def _get_types(row_class: type[Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields; cached, because each hit needs them."""
    return get_type_hints(row_class)


def _check(kind: Any, value: Any, name: str = "a value") -> Any:
    """Return a value of JSON if it has the type ``kind``, is not negative and is valid Unicode."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} is {value!r:.80}")
    if isinstance(value, str):
        value.encode()  # fails for half of a surrogate pair, which could not be printed or searched later
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} is {value!r:.80}")
    return value


def _refuse_constant(name: str) -> None:
    """Refuse NaN and infinities, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


def _close_all(connections: list[BoundedConnection]) -> None:
    for connection in connections:
        connection.close()
