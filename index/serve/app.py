"""Serve an index in shards, on Ray Serve: a question goes to all of them, the best passages are merged.

    python -m index.serve.app wiki-0.index wiki-1.index --port 8077
    ragqa ask "Who built the Eiffel Tower?" --index http://localhost:8077

A shard is an ordinary index directory; the collection is the shards in the order given. Each is a deployment of its
own, which Ray Serve starts again when it is lost; meanwhile answers say that they are partial. Updates of a shard are
seen by themselves. Scores are compared across shards: those of dense search are the same as in one index, those of
BM25 come from each shard's own counts of words.
"""

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index.cluster import connect, silence_ray
from index.serve.gather import Gather, Member
from index.serve.shard import Failure, Maker, Shard, State
from ragqa import artefacts
from ragqa.artefacts.paths import make_absolute
from ragqa.cli.config import parse_config, report_errors
from ragqa.errors import ArtefactError, BadInput, Mismatch, RagqaError
from ragqa.retrieval.registry import DEFAULT_FUSION, RetrieverKind
from ragqa.retrieval.remote import RemoteRetriever

APP = "ragqa"
"""Name of Ray Serve's application that answers HTTP; those of the shards begin with it."""


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What is served, and how."""

    shards: tuple[Path, ...]
    """Index directories, as their own machines see them."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is all of them, and nobody is asked for a password."""
    port: int = 8077
    retriever: str | None = None
    """dense, bm25 or hybrid; by default all that the indexes can do."""
    fusion: str = DEFAULT_FUSION
    """Of hybrid. rrf is for an index in one piece: ranks of different shards do not compare."""
    encoder: str | None = None
    """Another form of the encoder that the indexes were made with."""
    device: str = "cpu"
    """Where the indexes are searched."""
    timeout: float = 2.0
    """Seconds for a shard to answer (up to 16 questions), after which it is missing."""
    max_k: int = 1000
    """The most passages that may be asked for."""
    replicas: int = 1
    """Of each shard."""
    cpus: float = 0
    """Cores reserved for a replica, which also are its threads in matrix products; with 0 they share what there is."""
    gpus: float = 0
    """GPUs reserved for a replica."""
    resource: str | None = None
    """Name of a resource of Ray that binds a shard to its machine, {n} in it being the shard's number from 0: with
    shard-{n}, the machine of shard 0 joins by: ray start --resources '{"shard-0": 1}' …"""

    def __post_init__(self) -> None:
        rules = {
            "shards: name at least one index directory": bool(self.shards),
            f"port = {self.port}: a number from 1 to 65535 is needed": 0 < self.port < 65536,
            f"timeout = {self.timeout}: more than 0 seconds are needed": self.timeout > 0,
            f"max_k = {self.max_k}: at least 1 is needed": self.max_k >= 1,
            f"replicas = {self.replicas}: at least 1 is needed": self.replicas >= 1,
            f"cpus = {self.cpus}, gpus = {self.gpus}: neither can be negative": min(self.cpus, self.gpus) >= 0,
            f"retriever '{self.retriever}': choose one of {', '.join(RetrieverKind)}": (
                self.retriever in (None, *RetrieverKind)
            ),
            f"fusion {self.fusion}: only weighted goes over shards, since ranks of different shards do not compare": (
                self.fusion == DEFAULT_FUSION
            ),
        }
        if broken := [rule for rule, kept in rules.items() if not kept]:
            raise BadInput("; ".join(broken))

    @property
    def names(self) -> list[str]:
        """Of the shards: their directories' own names, or, where two are alike, the paths."""
        paths = [make_absolute(path) for path in self.shards]
        short = [path.name for path in paths]
        return short if len(set(short)) == len(short) else [str(path) for path in paths]


@contextmanager
def serving(config: ServeConfig) -> Iterator[str]:
    """The collection, served while the block runs; gives its URL.

    Uses the Ray that is initialized or the cluster of $RAY_ADDRESS, else starts one on this machine.

    Raises:
        BadInput: the port is in use, or Ray Serve is by something else.
        ArtefactError: a shard cannot be opened; names it.
        Mismatch: the shards do not fit together.
        MissingExtra: Ray Serve is not installed.
    """
    if len(set(config.names)) < len(config.names):
        raise BadInput("a shard is named twice: its passages would be found twice")
    if not (config.resource or "RAY_ADDRESS" in os.environ):  # else they may lie on other machines
        for path in config.shards:
            artefacts.read_manifest(path, "index")
    _check_port(config.host, config.port)
    serve = _start(config)
    try:
        members = _members(config, serve)
        gather = serve.deployment(Gather).options(
            max_ongoing_requests=1000,
            health_check_period_s=1,
            graceful_shutdown_wait_loop_s=0.1,
            ray_actor_options={"num_cpus": 0},
        )
        serve.run(gather.bind(members, config.timeout, config.max_k), name=APP, route_prefix="/")
        yield f"http://{config.host}:{config.port}"
    finally:
        serve.shutdown()


def _check_port(host: str, port: int) -> None:
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise BadInput(
            f"port {port} of {host} cannot be listened on ({os.strerror(error.errno or 0)}): choose another"
        ) from error


def _start(config: ServeConfig) -> Any:
    """Ray Serve, started; the module ``ray.serve``."""
    connect("serving an index in shards")
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    if serve.status().applications or serve.status().proxies:
        raise BadInput("this Ray cluster serves something already: end it first (serve shutdown)")
    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": config.host, "port": config.port},
        logging_config={"log_level": "WARNING"},
    )
    return serve


def _members(config: ServeConfig, serve: Any) -> list[Member]:
    """The shards, each deployed and open, and of one kind."""
    apps = [f"{APP}-shard-{n}" for n in range(len(config.shards))]
    arguments = config.retriever, config.encoder, config.device
    targets = [
        serve.RunTarget(
            _deployment(config, serve, n).bind(str(make_absolute(path)), *arguments), app, route_prefix=None
        )
        for n, (path, app) in enumerate(zip(config.shards, apps, strict=True))
    ]
    handles = serve.run_many(targets)
    answers: list[State | Failure] = [handle.state.remote().result() for handle in handles]
    if failed := [answer.reason for answer in answers if isinstance(answer, Failure)]:
        raise ArtefactError("; ".join(failed))
    states = [answer for answer in answers if isinstance(answer, State)]
    check_alike(dict(zip(config.names, (state.maker for state in states), strict=True)))
    return [Member(*each, config.replicas) for each in zip(config.names, apps, states, strict=True)]


def _deployment(config: ServeConfig, serve: Any, n: int) -> Any:
    """Shard number ``n``, to be bound to its arguments."""
    resources = {config.resource.replace("{n}", str(n)): 0.001} if config.resource else {}
    return serve.deployment(Shard).options(
        num_replicas=config.replicas,
        max_ongoing_requests=16,
        health_check_period_s=1,
        graceful_shutdown_wait_loop_s=0.1,
        ray_actor_options={"num_cpus": config.cpus, "num_gpus": config.gpus, "resources": resources},
    )


def check_alike(makers: dict[str, Maker]) -> None:
    """Raise Mismatch where scores of the shards, known by their names, do not compare."""
    for what in ("retriever", "encoder", "engine"):
        groups: dict[str, list[str]] = {}
        for name, maker in makers.items():
            groups.setdefault(getattr(maker, what) or "none", []).append(name)
        if len(groups) > 1:
            told = "; ".join(f"{', '.join(names)}: {value}" for value, names in groups.items())
            hint = "choose one with --retriever" if what == "retriever" else "index them alike"
            raise Mismatch(f"the shards are not of one {what} ({told}): {hint}")


def main() -> None:
    """Serve until somebody ends it."""
    with report_errors("index.serve.app"):
        config = parse_config(ServeConfig, __doc__, positional=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        out = sys.stdout
        with suppress(KeyboardInterrupt), silence_ray(), serving(config) as url:
            served = f"{len(config.shards)} shard{'s' * (len(config.shards) != 1)}"
            print(f"ready: {served} at {url} (Ctrl-C ends it)", file=out, flush=True)
            watch(url)
        print("index.serve.app: ended", file=sys.stderr)


def watch(url: str, pause: float = 1.0) -> None:
    """Say on standard error whenever a shard is lost or back, until somebody interrupts."""
    served, lost = RemoteRetriever(url), dict[str, str]()
    while True:
        try:
            now = {part.name: part.error or "no answer" for part in served.collection().shards if not part.up}
        except RagqaError as error:
            now = {"every shard": str(error)}
        for name in now.keys() - lost.keys():
            print(f"index.serve.app: {name} is lost ({now[name]}), Ray starts it again", file=sys.stderr, flush=True)
        for name in lost.keys() - now.keys():
            print(f"index.serve.app: {name} is back", file=sys.stderr, flush=True)
        lost = now
        time.sleep(pause)


if __name__ == "__main__":
    main()
