"""``ragqa serve``: serve indexes over HTTP."""

import signal
from functools import partial
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
    from ragqa.serve.gate import Access

LOOPBACK = ("localhost", "127.0.0.1", "::1")
TOKEN_VARIABLE = "RAGQA_TOKEN"
MIN_TOKEN = 16
"""Minimum length of a token in characters; a shorter token can be guessed."""
DRAIN_SECONDS = 30
"""Time in seconds for open requests to finish after SIGTERM or Ctrl-C."""
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@partial(add_pipeline_options, has_filters=False)
def serve(
    pipeline_options: PipelineOptions,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 listens on all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar=TOKEN_VARIABLE, help="Token that requests must have.", show_default=False)
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Listen on any address without a token.")] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Further name of this server; repeat for more.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Origin whose pages may use the server (CORS).")
    ] = None,
    allow_edit: Annotated[bool, typer.Option("--allow-edit", help="Let requests add and delete documents.")] = False,
    files: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Send the PDFs of documents in DIR; repeat for more.")
    ] = None,
    request_timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Time until a response must begin.")
    ] = 120.0,
    log_questions: Annotated[bool, typer.Option("--log-questions", help="Write questions into the log.")] = False,
) -> None:
    """Serve indexes over HTTP, with a page for the browser.

    Name an index with --index NAME=PATH, and repeat the option for more indexes.
    """
    try:
        from ragqa.serve.app import ServeSettings, make_app
        from ragqa.serve.gate import Limits
        from ragqa.serve.http_server import open_listener, run_http_server
        from ragqa.serve.json_protocol import JsonProtocol
    except ImportError as error:
        raise MissingExtra("ragqa serve", "serve") from error
    pipeline_options.refuse_filters()
    settings = ServeSettings(
        access=make_access(host, token, no_auth, allow_host or [], cors or []),
        limits=Limits(request_seconds=request_timeout),
        can_edit=allow_edit,
        file_folders=tuple(resolve_folder(folder) for folder in files or []),
        log_questions=log_questions,
    )
    with open_listener(host, port) as listener:
        indexes = pipeline_options.load_pipelines(name_indexes(pipeline_options.index or [find_demo()]))
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
    """Return the rules that decide who may send requests.

    Args:
        host: address that the server listens on.
        token: token that requests must have; None for no token.
        no_auth: True to allow other addresses than loopback without a token.
        names: further host names of the server. Without a token, requests must use one of the server's names.
        origins: origins whose pages may use the server, such as ``https://chat.example``.

    Raises:
        BadInput: the token is missing or malformed, or a value of ``origins`` is not an origin.
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


def resolve_folder(folder: Path) -> Path:
    """Return the absolute path of a folder, without symbolic links.

    Raises:
        BadInput: there is no such folder.
    """
    if not folder.is_dir():
        raise BadInput(f"--files {folder}: there is no such folder")
    return folder.resolve()


def name_indexes(paths: list[Path]) -> dict[str, Path]:
    """Return the path of each index, by the name of the index.

    Args:
        paths: ``NAME=PATH``, or a path or URL alone. The default name is the name of the directory without ``.index``,
            or the host and port of the URL.

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
    """Return ``demo=PATH`` for ``name_indexes``; build the demo index if it is missing.

    Raises:
        BadInput, ArtefactError, DamagedArtefact: as for ``demo_index``.
    """
    from ragqa.demo import demo_index
    from ragqa.progress import Bars

    return Path(f"demo={demo_index(progress=Bars())}")
