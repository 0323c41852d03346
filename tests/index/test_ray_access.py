"""A local Ray cluster is closed to the network, and any other one must ask for a token."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

grpc = pytest.importorskip("grpc", reason="the extra ray is not installed")

from index.ray_access import Reply, check_cluster, close_local_cluster, get_address, probe_cluster  # noqa: E402
from ragqa.errors import BadInput  # noqa: E402

RIGHT, WRONG = "a" * 32, "b" * 32
VARIABLES = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS", "RAY_TMPDIR")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Remove Ray's variables and the user's token; the patch restores what a check sets."""
    for name in (*VARIABLES, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


@contextmanager
def run_cluster(token: str | None, service: str = "ray.rpc.NodeInfoGcsService/CheckAlive") -> Iterator[str]:
    """Run a stand-in for a cluster's head that asks for ``token``; yield its address."""

    def reply(_: bytes, context: Any) -> bytes:
        if token and dict(context.invocation_metadata()).get("authorization") != f"Bearer {token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
        return b""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(reply) if details.method == f"/{service}" else None

    server = grpc.server(ThreadPoolExecutor(2), [Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_cluster_that_asks_for_no_token_is_refused_unless_insecure(environment: pytest.MonkeyPatch) -> None:
    with run_cluster(None) as address:
        with pytest.raises(BadInput, match=r"asks for no token, so everybody .*: start it with RAY_AUTH_MODE=token"):
            check_cluster(address, insecure=False)
        environment.setenv("RAY_AUTH_TOKEN", RIGHT)  # no help: the cluster ignores it
        with pytest.raises(BadInput, match="or add --insecure"):
            check_cluster(address, insecure=False)
        check_cluster(address, insecure=True)
        assert os.environ["RAY_AUTH_MODE"] == "disabled"


def test_the_server_of_ray_clients_is_checked_too() -> None:
    method = "ray.rpc.RayletDriver/ClusterInfo"
    with run_cluster(None, method) as address, pytest.raises(BadInput, match=r"ray://.* asks for no token"):
        check_cluster(f"ray://{address}", insecure=False)
    with run_cluster(RIGHT, method) as address, pytest.raises(BadInput, match="asks for a token"):
        check_cluster(f"ray://{address}", insecure=False)


def test_a_call_that_fails_for_another_reason_was_let_in() -> None:
    with run_cluster(RIGHT, "ray.rpc.Another/Method") as address:
        assert probe_cluster(address) is Reply.ACCEPTED


def test_a_missing_token_is_reported_with_the_place_for_it(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with run_cluster(RIGHT) as address:
        with pytest.raises(BadInput, match=f"asks for a token, and there is none in {tmp_path}/.ray/auth_token: copy"):
            check_cluster(address, insecure=True)
        environment.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "missing"))
        with pytest.raises(BadInput, match=f"there is none in {tmp_path}/missing"):
            check_cluster(address, insecure=False)
        environment.setenv("RAY_AUTH_MODE", "disabled")
        with pytest.raises(BadInput, match="RAY_AUTH_MODE=disabled sends none: unset RAY_AUTH_MODE"):
            check_cluster(address, insecure=False)


def test_a_wrong_token_is_reported_with_its_source(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / ".ray" / "auth_token"
    file.parent.mkdir()
    file.write_text(WRONG)
    with run_cluster(RIGHT) as address:
        with pytest.raises(BadInput, match=f"does not accept that of {file}: copy the token"):
            check_cluster(address, insecure=False)
        environment.setenv("RAY_AUTH_TOKEN", WRONG)
        file.write_text(RIGHT)  # the variable counts, as for Ray
        with pytest.raises(BadInput, match="does not accept that of RAY_AUTH_TOKEN") as raised:
            check_cluster(address, insecure=False)
        assert WRONG not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("place", ["variable", "file", "home"])
def test_the_right_token_is_sent_by_ray(environment: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
    (tmp_path / ".ray").mkdir()
    file = tmp_path / ".ray" / "auth_token" if place == "home" else tmp_path / "token"
    file.write_text(f"{RIGHT}\n")
    if place == "variable":
        environment.setenv("RAY_AUTH_TOKEN", RIGHT)
    elif place == "file":
        environment.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    with run_cluster(RIGHT) as address:
        check_cluster(address, insecure=False)
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_the_cluster_of_this_machine_is_found_and_checked(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("RAY_TMPDIR", str(tmp_path))
    check_cluster("auto", insecure=False)  # none is running, which Ray reports
    (tmp_path / "ray").mkdir()
    with run_cluster(None) as address:
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        with pytest.raises(BadInput, match=f"{address} asks for no token"):
            check_cluster("auto", insecure=False)


def test_an_address_without_a_cluster_is_reported() -> None:
    with run_cluster(None) as address:
        pass
    with pytest.raises(BadInput, match=f"no Ray cluster at {address}: is it started"):
        check_cluster(address, insecure=True)


def test_a_local_cluster_asks_for_a_secret_of_this_process(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    close_local_cluster(insecure=False)
    assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64 and not list(tmp_path.iterdir())
    environment.setenv("RAY_AUTH_TOKEN", RIGHT)
    close_local_cluster(insecure=False)
    assert os.environ["RAY_AUTH_TOKEN"] == RIGHT
    environment.setenv("RAY_AUTH_MODE", "disabled")
    close_local_cluster(insecure=True)
    with pytest.raises(BadInput, match="RAY_AUTH_MODE=disabled lets every user of this machine run code"):
        close_local_cluster(insecure=False)


@pytest.mark.parametrize(("value", "address"), [("", None), ("local", None), ("auto", "auto"), ("h:1", "h:1")])
def test_without_an_address_a_cluster_is_local(environment: pytest.MonkeyPatch, value: str, address: str) -> None:
    assert get_address() is None
    environment.setenv("RAY_ADDRESS", value)
    assert get_address() == address


LISTENERS = """
import os, sys, time
{before}
from index.ray_cluster import connect
from index.ray_access import probe_cluster
from ragqa.errors import BadInput
try:
    connect("a test", insecure="insecure" in sys.argv)
except BadInput as error:
    print(error)
    sys.exit()
import ray
import psutil  # Ray's own copy, found once Ray is imported
address = ray.get_runtime_context().gcs_address
assert ray.get(ray.remote(lambda: 7).remote()) == 7
time.sleep(3)  # until the agents listen
parent = psutil.Process()
open_ports = [c for p in [parent, *parent.children(recursive=True)] for c in p.net_connections("tcp")]
hosts = {{c.laddr.ip.removeprefix("::ffff:") for c in open_ports if c.status == psutil.CONN_LISTEN}}
replies = [probe_cluster(address, token).value for token in (None, "f" * 64, os.environ.get("RAY_AUTH_TOKEN"))]
print(len(open_ports) > 5, sorted(hosts), *replies)
"""


def start_local_cluster(*options: str, before: str = "", **environment: str) -> str:
    """Start a local cluster in another process; return what it prints of its ports and replies."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    variables |= {"PYTHONPATH": str(ROOT), **environment}
    code = LISTENERS.format(before=before)
    done = subprocess.run([sys.executable, "-c", code, *options], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.thorough
def test_a_local_cluster_listens_on_loopback_only_and_asks_for_its_token(tmp_path: Path) -> None:
    assert start_local_cluster(HOME=str(tmp_path)) == "True ['127.0.0.1'] refused refused accepted"
    assert not (tmp_path / ".ray").exists()  # the secret is in no file


@pytest.mark.thorough
def test_a_cluster_without_tokens_is_recognised() -> None:
    line = start_local_cluster("insecure", RAY_AUTH_MODE="disabled")
    assert line == "True ['127.0.0.1'] accepted accepted accepted"


@pytest.mark.thorough
def test_a_ray_that_would_listen_on_the_network_is_stopped() -> None:
    assert start_local_cluster(before="import ray").startswith("Ray was imported before ragqa could keep it off")
