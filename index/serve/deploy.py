"""Serve an index in shards over HTTP, on Ray Serve.

    python -m index.serve wiki-0.index wiki-1.index --port 8077
    ragqa ask "Who built the Eiffel Tower?" --index http://localhost:8077

Each shard is an ordinary index directory. A question goes to all shards, and their best passages are merged. Ray Serve
restarts a lost shard; until then replies name it as missing. An update of a shard is served from the next search on.
Scores of dense search are the same as in one index. Scores of BM25 come from each shard's own word counts. Hybrid
search adds both scores (fusion ``weighted``), because ranks in different shards cannot be compared.
"""

import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from index.ray_access import get_address
from index.ray_cluster import connect, silence_ray
from index.serve.app import SearchApp
from index.serve.gateway import Gateway, Member
from index.serve.shard import ShardFailure, ShardReplica, ShardState
from ragqa import artefacts
from ragqa.artefacts.paths import make_absolute
from ragqa.errors import ArtefactError, BadInput, Mismatch, RagqaError
from ragqa.retrieval.base import Scoring
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.remote import RemoteRetriever
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.settings.groups import POSITIONAL
from ragqa.terminal import print_error, print_text
from ragqa.text import format_count

APP = "ragqa"
"""Prefix of the names of the shards' applications in Ray Serve."""
_TIMING = {"health_check_period_s": 1, "graceful_shutdown_wait_loop_s": 0.1}
"""Ray Serve options: frequent health checks, to restart lost shards soon, and a quick shutdown."""


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Options of ``index.serve``."""

    shards: Annotated[tuple[Path, ...], POSITIONAL]
    """Index directories, as paths on the machines that serve them."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 means all addresses. The server asks for no password."""
    allow_host: tuple[str, ...] = ()
    """Further names under which clients reach the server; a request to another name is refused."""
    port: int = 8077
    """TCP port."""
    retriever: Annotated[str | None, RetrieverKind] = None
    """Retriever kind; by default the kind of the indexes."""
    encoder: str | None = None
    """Encoder for questions: the encoder of the indexes in another form (export or torch weights)."""
    device: str = "cpu"
    """Device on which the indexes are searched."""
    timeout: float = 2.0
    """Seconds per 16 questions after which a shard counts as missing."""
    max_k: int = 1000
    """Maximum number of passages per question."""
    replicas: int = 1
    """Number of replicas of each shard."""
    cpus: float = 0
    """Cores reserved for a replica, and number of its threads; with 0 all replicas share all cores."""
    gpus: float = 0
    """GPUs reserved for a replica."""
    resource: str | None = None
    """Name of the Ray resource that binds a shard to a machine; {n} stands for the number of the shard, from 0.

    For shard-{n} the machine of shard 0 joins with: ray start --resources '{"shard-0": 1}' …
    """
    insecure: bool = False
    """Accept a Ray cluster that asks for no token, although everybody who reaches it can run code in it."""

    def __post_init__(self) -> None:
        """Raise BadInput that names all values out of range."""
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
        }
        if broken := [rule for rule, holds in rules.items() if not holds]:
            raise BadInput("; ".join(broken))

    @property
    def names(self) -> list[str]:
        """Names of the shards' directories, or their absolute paths if two have the same name."""
        paths = [make_absolute(path) for path in self.shards]
        short = [path.name for path in paths]
        return short if len(set(short)) == len(short) else [str(path) for path in paths]


@contextmanager
def serve_collection(config: ServeConfig) -> Iterator[str]:
    """Serve the collection while the block runs, and yield its URL.

    The shards run on the Ray cluster that this process is connected to, or else on the cluster that
    ``connect`` chooses.

    Args:
        config: options of the server.

    Raises:
        BadInput: a shard is named twice, the port or Ray Serve is in use, or the Ray cluster cannot be used.
        ArtefactError, DamagedArtefact: a shard cannot be opened.
        Mismatch: the scores of the shards are not comparable.
        MissingExtra: Ray Serve or the HTTP server is not installed.
    """
    if len(set(config.names)) < len(config.names):
        raise BadInput("a shard is named twice: its passages would be found twice")
    if not (config.resource or get_address()):  # otherwise shards may lie on other machines
        for path in config.shards:
            artefacts.read_manifest(path, "index")
    from ragqa.serve.http_server import open_listener, run_http_server

    with open_listener(config.host, config.port) as listener:  # before Ray starts, so that an error comes at once
        serve = _start_serve(config)
        try:
            from index.serve.connection import SearchConnection

            gateway = Gateway(_deploy_shards(config, serve), config.timeout)
            app = SearchApp(gateway, config.max_k, (config.host, *config.allow_host))
            with run_http_server(app, listener, SearchConnection):
                yield f"http://{config.host}:{config.port}"
        finally:
            serve.shutdown()


def _start_serve(config: ServeConfig) -> Any:
    """Start Ray Serve without its HTTP proxy, which sets no limits; return ``ray.serve``."""
    connect("serving an index in shards", config.insecure)
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    if serve.status().applications or serve.status().proxies:
        raise BadInput("this Ray cluster already serves an application: stop it first (serve shutdown)")
    serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
    return serve


def _deploy_shards(config: ServeConfig, serve: Any) -> list[Member]:
    apps = [f"{APP}-shard-{n}" for n in range(len(config.shards))]
    deployment = serve.deployment(ShardReplica).options(
        num_replicas=config.replicas, max_ongoing_requests=16, **_TIMING
    )
    targets = []
    for n, (path, app) in enumerate(zip(config.shards, apps, strict=True)):
        resources = {config.resource.replace("{n}", str(n)): 0.001} if config.resource else {}
        actor = {"num_cpus": config.cpus, "num_gpus": config.gpus, "resources": resources}
        arguments = str(make_absolute(path)), config.retriever, config.encoder, config.device
        bound = deployment.options(ray_actor_options=actor).bind(*arguments)
        targets.append(serve.RunTarget(bound, app, route_prefix=None))
    handles = serve.run_many(targets)
    answers: list[ShardState | ShardFailure] = [handle.read_state.remote().result() for handle in handles]
    if failures := [answer.reason for answer in answers if isinstance(answer, ShardFailure)]:
        raise ArtefactError("; ".join(failures))
    states = [answer for answer in answers if isinstance(answer, ShardState)]
    check_same_scoring(dict(zip(config.names, (state.scoring for state in states), strict=True)))
    return [Member(*fields, config.replicas) for fields in zip(config.names, apps, states, strict=True)]


def check_same_scoring(scorings: dict[str, Scoring]) -> None:
    """Check that the scores of all shards can be compared.

    Args:
        scorings: origin of the scores of each shard, by the name of the shard.

    Raises:
        Mismatch: the shards differ in retriever, encoder or engine.
    """
    for part in ("retriever", "encoder", "engine"):
        groups: dict[str, list[str]] = {}
        for name, scoring in scorings.items():
            groups.setdefault(getattr(scoring, part) or "none", []).append(name)
        if len(groups) > 1:
            differences = "; ".join(f"{', '.join(names)}: {value}" for value, names in groups.items())
            hint = "choose one with --retriever" if part == "retriever" else "index them alike"
            raise Mismatch(f"the shards do not have one {part} ({differences}): {hint}")


def main() -> None:
    """Serve a collection of shards from the command line, until interrupted."""
    with report_errors("index.serve"):
        config = parse_config(ServeConfig, __doc__)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        out = sys.stdout
        with suppress(KeyboardInterrupt), silence_ray(), serve_collection(config) as url:
            shards = format_count(len(config.shards), "shards")
            print_text(f"ready: {shards} at {url} (Ctrl-C ends it)", file=out)
            watch_shards(url)
        print_error("index.serve", "stopped")


def watch_shards(url: str) -> None:
    """Check the served shards every second without end; report changes to standard error."""
    retriever, lost = RemoteRetriever(url), dict[str, str]()
    while True:
        try:
            now = {part.name: part.error or "no answer" for part in retriever.fetch_collection().shards if not part.up}
        except RagqaError as error:
            now = {"every shard": str(error)}
        for name in now.keys() - lost.keys():
            print_error("index.serve", f"{name} is lost ({now[name]}), Ray restarts it")
        for name in lost.keys() - now.keys():
            print_error("index.serve", f"{name} is back")
        lost = now
        time.sleep(1)
