"""Client of a language model on a server with OpenAI's ``POST /chat/completions``.

Ollama, llama.cpp, vLLM, LM Studio and others have this API. A request goes to the named host only: redirections are
refused, and proxies are not used. No error message contains the key in ``RAGQA_CHAT_KEY``.
"""

import json
import os
import re
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from threading import Lock
from time import monotonic, sleep, time
from typing import Any
from urllib.parse import urlsplit

from ragqa.artefacts.paths import is_loopback_url
from ragqa.bounded_http import BoundedConnection, TooLarge, read_body
from ragqa.errors import BadInput, RemoteError
from ragqa.reading.chat.language_model import COMPLETE, ContextOverflow, estimate_tokens
from ragqa.text import replace_surrogates

KEY = "RAGQA_CHAT_KEY"
"""Environment variable with the API key: ``KEY`` for any host, or ``HOST=KEY`` for one host, separated by commas."""
TIMEOUT = 600.0
"""Default time limit of a reply in seconds; a laptop can need minutes to read a long prompt."""
CONNECT_TIMEOUT, PROBE_TIMEOUT = 10.0, 10.0
"""Time limits in seconds for opening a connection, and for a request for the server's properties."""
RETRIES = 3
"""Maximum number of times that a request is repeated after the status 429, 500, 502, 503 or 504."""
MAX_WAIT = 60.0
"""Maximum time in seconds that ragqa waits before it repeats a request; a longer ``Retry-After`` is an error."""
_RETRIED = (429, 500, 502, 503, 504)
_MAX_BYTES = 4 << 20
_MAX_LINE = 1 << 20
_OLLAMA_CONTEXT = 4096
"""Ollama's default context length in tokens; Ollama cuts a longer prompt without an error."""
_PAIR = re.compile(r"([\w.-]+\.[\w-]+|localhost|\[[\da-f:]+\])(:\d+)?=(?!=*$)(.+)", re.IGNORECASE)
_TOO_LONG = re.compile(r"context[_ ]?(?:length|size|window)|exceed_context|too many tokens|prompt is too long", re.I)


class ChatServer:
    """Language model on a server."""

    def __init__(self, url: str, model: str = "", *, timeout: float = TIMEOUT) -> None:
        """Check the address and the key of a server, without sending a request.

        Args:
            url: address of the API, for example ``http://localhost:11434/v1``.
            model: name of the model; empty for the only model of the server.
            timeout: time limit of a reply in seconds.

        Raises:
            BadInput: the URL is malformed or contains a user name or a query, a key would be sent over plain http to
                another machine, or the key contains characters that no key has.
        """
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise BadInput(f"{url} is not a URL: {error}") from error
        if not self._host or parts.username is not None or parts.query:
            raise BadInput(
                f"chat:{parts.scheme}://…: http://HOST:PORT/v1#MODEL is needed, without a name or a key in it"
            )
        self.url, self._model, self._timeout = url, model, timeout
        self._is_https, self._path = parts.scheme == "https", parts.path.rstrip("/")
        self._root = self._path.removesuffix("/v1")
        self._key = _choose_key(os.environ.get(KEY, ""), self._host, self._port)
        if self._key and not self._is_https and not is_loopback_url(url):
            raise BadInput(f"{url}: {KEY} would be sent unencrypted; use https, or unset {KEY}")
        self._headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._context: int | None = None
        self._options: dict[str, Any] = {"temperature": 0}
        self._limit_name = "max_tokens"
        self._described = False
        self._describing = Lock()
        """Lock for the first requests, since all threads need the context length and the name of the model."""
        self._can_tokenize, self._is_reached = True, False

    @property
    def name(self) -> str:
        """Name of the model and its host."""
        return f"{self._model or 'the model'} at {self._host}"

    @property
    def identity(self) -> str:
        """URL and name of the model."""
        return f"{self.url}#{self._model}"

    def find_context(self) -> int | None:
        """Return the context length in tokens that the server reports, or None.

        vLLM, llama.cpp and Ollama report it. If Ollama has not loaded the model yet, this is Ollama's default length.
        The server is asked until it has answered once.

        Raises:
            BadInput: the server has several models or none, and none is named.
        """
        with self._describing:
            if not self._described:
                self._describe()
                self._described = self._is_reached
            return self._context

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens that the server counts (llama.cpp, vLLM), or an estimate."""
        if self._can_tokenize and self._context is not None:
            row = self._probe("POST", f"{self._root}/tokenize", {"content": text, "prompt": text, "model": self._model})
            tokens = row.get("tokens")
            if isinstance(tokens, list):
                return len(tokens)
            self._can_tokenize = False
        return estimate_tokens(text)

    def write(self, messages: list[dict[str, str]], max_tokens: int) -> Generator[str, None, str]:
        """Yield the reply to messages in pieces; return the server's reason why it ended.

        The arguments are as for ``LanguageModel.write``.

        Raises:
            BadInput: as for ``find_context``.
            ContextOverflow: the server says that the messages are too long.
            RemoteError: the server cannot be reached, refuses the request, or violates the protocol.
        """
        with self._report_errors():
            self.find_context()
            waits, is_stream = 0, True
            while True:
                body = {"model": self._model, "messages": messages, self._limit_name: max_tokens, "stream": is_stream}
                body |= self._options
                connection = self._connect()
                try:
                    with self._send(connection, body) as response:
                        if response.status == 200:
                            if (end := (yield from self._read_reply(response))) is not None:
                                return end
                            if not is_stream:
                                raise RemoteError(f"{self.url} sends no reply: its list of choices is empty")
                            is_stream = False  # llama-cpp-python names an error only outside of a stream
                            continue
                        failure = _read_failure(response)
                finally:
                    connection.close()
                if self._adapt(failure, body):
                    continue
                wait = 2.0**waits if failure.wait is None else failure.wait
                if failure.status not in _RETRIED or waits == RETRIES or wait > MAX_WAIT:
                    raise self._make_refusal(failure)
                waits += 1
                sleep(wait)

    def _send(self, connection: BoundedConnection, body: dict[str, Any]) -> AbstractContextManager[HTTPResponse]:
        data, deadline = json.dumps(body).encode(), monotonic() + self._timeout
        path = f"{self._path}/chat/completions"
        return connection.request("POST", path, data, self._headers, deadline=deadline, max_bytes=_MAX_BYTES)

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise RemoteError(f"{self.url} did not answer within {self._timeout:g} seconds") from error
        except TooLarge as error:
            raise RemoteError(f"{self.url} sends more than {_MAX_BYTES >> 20} MB for one reply") from error
        except HTTPException as error:
            raise RemoteError(f"{self.url} does not speak HTTP as it should: {self._clean(repr(error))}") from error
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise RemoteError(f"{self.url} cannot be reached ({why}): is a server running there?") from error

    def _read_reply(self, response: HTTPResponse) -> Generator[str, None, str | None]:
        """Yield the pieces of a reply; return why it ended, or None if it has no choice."""
        reason, is_empty = COMPLETE, True
        is_stream = "application/json" not in (response.getheader("Content-Type") or "")
        for row in self._iter_events(response) if is_stream else [self._parse(read_body(response, _MAX_BYTES))]:
            if error := row.get("error"):
                raise self._make_refusal(_Failure(200, _get_message(error)))
            choices = row.get("choices")
            if not isinstance(choices, list):
                raise RemoteError(f"{self.url} does not speak the chat protocol: its reply has no choices")
            if not choices or not isinstance(choices[0], dict):
                continue  # an event without a choice, such as the number of tokens used
            is_empty = False
            part = choices[0].get("delta" if is_stream else "message")
            text = part.get("content") if isinstance(part, dict) else None
            if isinstance(text, str) and text:
                yield replace_surrogates(text)
            reason = choices[0].get("finish_reason") or reason
        return None if is_empty else str(reason)

    def _iter_events(self, response: HTTPResponse) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects of server-sent events until ``[DONE]`` or the end of the response."""
        size = 0
        while line := response.readline(_MAX_LINE):
            size += len(line)
            if size > _MAX_BYTES or len(line) == _MAX_LINE:
                raise TooLarge("the response is too large")
            name, _, value = line.strip().partition(b":")
            if name == b"data":
                if value.strip() == b"[DONE]":
                    return
                yield self._parse(value)
            elif line.strip() and name not in (b"", b"event", b"id", b"retry"):  # b"" is a comment
                yield self._parse(line)  # an error outside of the stream

    def _parse(self, data: bytes) -> dict[str, Any]:
        try:
            row = json.loads(data)
            if not isinstance(row, dict):
                raise TypeError
        except (ValueError, TypeError, RecursionError) as error:
            start = data[:80].decode("utf-8", "replace").strip()
            raise RemoteError(
                f"{self.url} does not answer with JSON: {self._clean(start)!r}; is it the API?"
            ) from error
        return row

    def _adapt(self, failure: "_Failure", body: dict[str, Any]) -> bool:
        """Change a setting that the model refuses; return True if the request is worth repeating.

        The setting in ``body`` counts, because another thread may have changed it since the request.
        """
        if failure.status not in (400, 422):
            return False
        if "max_completion_tokens" in failure.message and "max_tokens" in body:
            self._limit_name = "max_completion_tokens"
            return True
        if "temperature" in failure.message and "temperature" in body:
            self._options = {}
            return True
        return False

    def _make_refusal(self, failure: "_Failure") -> RemoteError:
        status, text = failure.status, self._clean(failure.message)
        if 300 <= status < 400:
            target = self._clean(failure.location or "another address")
            return RemoteError(f"{self.url} redirects to {target}, and ragqa follows no redirection: name that address")
        if status in (401, 403):
            hint = f"the key in {KEY} is refused" if self._key else f"set {KEY} to your key"
            return RemoteError(f"{self.url} answers {status}: {hint} ({text})")
        if _TOO_LONG.search(failure.message):
            return ContextOverflow(f"{self.url}: the prompt is too long ({text})")
        if status == 404 or (status == 400 and "model" in text.lower()):
            names = ", ".join(str(row.get("id")) for row in self._fetch_models()[:10])
            hint = f"it has {self._clean(names)}" if names else "is /v1 missing in the address?"
            return RemoteError(f"{self.url} answers {status} for the model {self._model!r}: {hint} ({text})")
        return RemoteError(f"{self.url} answers {status}: {text}" + "; try again later" * (status in _RETRIED))

    def _describe(self) -> None:
        """Ask for the context length, and for the name of the only model if none is named."""
        models = {str(row.get("id")): row for row in self._fetch_models()}
        if not self._is_reached:
            return  # the request for the reply says why
        if not self._model:
            if len(models) != 1:
                known = f"it has {', '.join(list(models)[:10])}" if models else "it lists none"
                raise BadInput(f"{self.url}: name a model after #, as in chat:{self.url}#MODEL; {known}")
            self._model = next(iter(models))
        self._context = _read_count(models.get(self._model, {}).get("max_model_len"))
        if self._context is None and (row := self._probe("GET", f"{self._root}/props")):
            settings = row.get("default_generation_settings")
            self._context = _read_count(settings.get("n_ctx") if isinstance(settings, dict) else None)
        if self._context is None and (row := self._probe("GET", f"{self._root}/api/ps")):
            loaded = [model for model in row.get("models") or () if isinstance(model, dict)]
            names = (self._model, f"{self._model}:latest")
            lengths = (_read_count(m.get("context_length")) for m in loaded if m.get("name") in names)
            self._context = next((length for length in lengths if length), _OLLAMA_CONTEXT)

    def _fetch_models(self) -> list[dict[str, Any]]:
        rows = self._probe("GET", f"{self._path}/models").get("data")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def _probe(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object of a response about the server; empty if the request fails."""
        data = None if body is None else json.dumps(body).encode()
        deadline = monotonic() + PROBE_TIMEOUT
        with suppress(HTTPException, OSError, UnicodeError, ValueError, RecursionError):
            connection = self._connect()
            try:
                with connection.request(
                    method, path, data, self._headers, deadline=deadline, max_bytes=_MAX_BYTES
                ) as response:
                    self._is_reached = True
                    row = json.loads(read_body(response, _MAX_BYTES)) if response.status == 200 else {}
                return row if isinstance(row, dict) else {}
            finally:
                connection.close()
        return {}

    def _connect(self) -> BoundedConnection:
        return BoundedConnection(self._host, self._port, self._is_https, CONNECT_TIMEOUT)

    def _clean(self, text: str) -> str:
        """Return a server's text on one line, without the key, and cut to 300 characters."""
        line = " ".join(text.split())
        return (line.replace(self._key, "…") if self._key else line)[:300]


@dataclass(frozen=True)
class _Failure:
    """Error that the server reports instead of a reply."""

    status: int
    message: str
    wait: float | None = None
    """Seconds after which to repeat the request (``Retry-After``); None if the server does not say."""
    location: str | None = None
    """Target of a redirection."""


def _choose_key(setting: str, host: str, port: int | None) -> str | None:
    """Return the first key in ``RAGQA_CHAT_KEY`` for this host or for any host, or None."""
    for part in filter(None, map(str.strip, setting.split(","))):
        pair = _PAIR.fullmatch(part)
        if pair is None:
            return _check_key(part)
        if pair[1].strip("[]").lower() == host and pair[2] in (None, f":{port}"):
            return _check_key(pair[3])
    return None


def _check_key(key: str) -> str:
    if not key.isascii() or not key.isprintable():
        raise BadInput(f"{KEY} holds a character that no key has: set it again")
    return key


def _read_failure(response: HTTPResponse) -> _Failure:
    message = ""
    with suppress(HTTPException, OSError):
        data = read_body(response, _MAX_BYTES)
        message = data[:1000].decode("utf-8", "replace")
        with suppress(ValueError, RecursionError):
            message = _get_message(json.loads(data))
    return _Failure(
        response.status,
        message or response.reason,
        _read_wait(response.getheader("Retry-After")),
        response.getheader("Location"),
    )


def _read_wait(value: str | None) -> float | None:
    """Return the waiting time in seconds of a ``Retry-After`` header; None without a valid one."""
    if value is None:
        return None
    with suppress(ValueError):
        return (
            max(0.0, float(value))
            if value.strip()[:1].isdigit()
            else max(0.0, parsedate_to_datetime(value).timestamp() - time())
        )
    return None


def _get_message(row: Any) -> str:
    """Return the message and code of an error such as ``{"error": {"message": …}}``."""
    code = ""
    for _ in range(3):
        if not isinstance(row, dict):
            break
        code = row["code"] if isinstance(row.get("code"), str) else code
        row = next((row[name] for name in ("error", "message", "detail") if row.get(name)), json.dumps(row))
    text = row if isinstance(row, str) else json.dumps(row)
    return f"{text} ({code})" if code else text


def _read_count(value: Any) -> int | None:
    """Return a server's number of tokens, from 1 to 2**31 - 1; None for other values."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
