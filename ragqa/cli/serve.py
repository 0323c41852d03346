"""``ragqa serve``: the HTTP server."""

import signal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from ragqa.artefacts.paths import parse_url
from ragqa.cli.options import PipelineOptions, add_pipeline_options
from ragqa.cli.output import print_error
from ragqa.errors import BadInput, MissingExtra
from ragqa.terminal import print_note

if TYPE_CHECKING:
    from ragqa.pipeline import Pipeline
    from ragqa.serve.gate import Access

LOOPBACK = ("localhost", "127.0.0.1", "::1")
TOKEN_VARIABLE = "RAGQA_TOKEN"
MIN_TOKEN = 16
"""Minimum length of a token; shorter ones can be guessed."""
DRAIN_SECONDS = 30
"""Seconds to finish open requests after SIGTERM or Ctrl-C."""
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@add_pipeline_options
def serve(
    pipeline_options: PipelineOptions,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 listens on all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar=TOKEN_VARIABLE, help="Token that requests must have.", show_default=False)
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Listen on another address without a token.")] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Further name of this server; repeat for more.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Origin whose pages may use the server (CORS).")
    ] = None,
    allow_edit: Annotated[bool, typer.Option("--allow-edit", help="Let requests add and delete documents.")] = False,
    request_timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Time until a response must begin.")
    ] = 120.0,
    log_questions: Annotated[bool, typer.Option("--log-questions", help="Write questions into the log.")] = False,
) -> None:
    """Serve indexes over HTTP, with a page; --index NAME=PATH names an index, and can be repeated."""
    try:
        from ragqa.serve.app import ServeSettings, make_app
        from ragqa.serve.gate import Limits
        from ragqa.serve.http_server import open_listener, run_http_server
        from ragqa.serve.json_protocol import JsonProtocol
    except ImportError as error:
        raise MissingExtra("ragqa serve", "serve") from error
    if pipeline_options.in_ or pipeline_options.tag or pipeline_options.since:
        raise BadInput("--in, --tag and --since do not protect documents of an index: make an index without them")
    settings = ServeSettings(
        access=make_access(host, token, no_auth, allow_host or [], cors or []),
        limits=Limits(request_seconds=request_timeout),
        can_edit=allow_edit,
        log_questions=log_questions,
    )
    with open_listener(host, port) as listener:
        paths = name_indexes(pipeline_options.index or [find_demo()])
        indexes: dict[str, Pipeline] = {name: pipeline_options.load_pipeline(path) for name, path in paths.items()}
        stop = Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        app = make_app(indexes, settings, log=print_note)
        with run_http_server(app, listener, JsonProtocol, DRAIN_SECONDS):
            shown = f"[{host}]" if ":" in host else host
            print_note(f"serving {', '.join(indexes)} at http://{shown}:{listener.getsockname()[1]} (Ctrl-C ends it)")
            stop.wait()
            print_error("finishing open requests")


def make_access(host: str, token: str | None, no_auth: bool, names: list[str], origins: list[str]) -> "Access":
    """Return who may send requests.

    Raises:
        BadInput: another address than loopback without a token, a short token, or an origin that is none.
    """
    from ragqa.serve.gate import Access

    if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise BadInput(f"the token must have at least {MIN_TOKEN} characters, without spaces and accents")
    if host not in LOOPBACK and token is None and not no_auth:
        raise BadInput(
            f"--host {host}: everybody in the network could ask; set a token (--token or ${TOKEN_VARIABLE}), "
            "or add --no-auth"
        )
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}" or not parts.netloc:
            raise BadInput(f"--cors {origin}: name an origin as in https://chat.example")
    hosts = None if token else frozenset((*LOOPBACK, host.lower(), *(name.lower().strip("[]") for name in names)))
    return Access(token=token, hosts=hosts, origins=tuple(origin.lower() for origin in origins))


def name_indexes(paths: list[Path]) -> dict[str, Path]:
    """Return the indexes by name: ``NAME=PATH``, or the name of the directory without ``.index``.

    Raises:
        BadInput: two indexes have the same name.
    """
    named: dict[str, Path] = {}
    for path in paths:
        name, equals, rest = str(path).partition("=")
        if not equals or path.exists() or not set(name) <= NAME_CHARACTERS:
            url = parse_url(path)
            name, rest = (urlsplit(url).netloc if url else path.resolve().name.removesuffix(".index")), str(path)
        if name in named:
            raise BadInput(f"two indexes have the name {name}: name them, as in --index {name}2={rest}")
        named[name] = Path(rest)
    return named


def find_demo() -> Path:
    """Return the index of the demo with its name, and make it first if it does not exist."""
    from ragqa.demo import demo_index
    from ragqa.progress import Bars

    return Path(f"demo={demo_index(progress=Bars())}")
