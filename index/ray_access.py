"""Protection of a local Ray cluster, and checks of the clusters that users name.

Everybody who reaches an open Ray cluster can run code in it as the user who started it. Tokens prevent this
(``RAY_AUTH_MODE=token``), but a cluster that was started without tokens accepts everybody. So a local cluster is closed
to the network, and other clusters must ask for a token.
"""

import os
import secrets
from enum import Enum
from pathlib import Path

from ragqa.errors import BadInput

ADDRESS, MODE, TOKEN, TOKEN_PATH = "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_MULTI_NODE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Variable that Ray reads when it is imported; with 0, all Ray processes listen on 127.0.0.1 only, even on Linux."""
_CLIENT_SCHEME = "ray://"
_GCS_METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_CLIENT_METHOD = "/ray.rpc.RayletDriver/ClusterInfo"
"""Methods of a cluster's head and of its ``ray://`` server, which have no effects and no required arguments."""
_PROBE_SECONDS = 5.0
"""Time limit of a probe in seconds; a cluster in the same network answers within milliseconds."""


class Reply(Enum):
    """Reply of a Ray cluster to a probe; ``NONE`` if there was no reply."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NONE = "none"


def get_address() -> str | None:
    """Return the cluster to join (``RAY_ADDRESS``); None if this process starts its own."""
    address = os.environ.get(ADDRESS)
    return None if address in (None, "", "local") else address


def close_local_cluster(insecure: bool) -> None:
    """Let this process's own cluster listen on loopback only and ask for a token.

    Unless the user has set a token, it is a new secret that only this process and its children know. Call this function
    before Ray is imported.

    Args:
        insecure: True to accept that the user has turned tokens off.

    Raises:
        BadInput: the user has turned tokens off, and ``insecure`` is False.
    """
    if os.environ.get(MODE) == "disabled" and not insecure:
        harm = "lets every user of this machine run code in the local Ray cluster"
        raise BadInput(f"{MODE}=disabled {harm}: unset {MODE}, or add --insecure")
    os.environ[_MULTI_NODE] = "0"
    if not os.environ.get(TOKEN_PATH):
        os.environ.setdefault(TOKEN, secrets.token_hex(32))


def check_cluster(address: str, insecure: bool) -> None:
    """Check that a cluster asks for the user's token and accepts it, and let Ray send it.

    With TLS (``RAY_USE_TLS``), nothing is checked. Call this function before Ray is imported, since Ray reads the
    environment variables at its import.

    Args:
        address: ``HOST:PORT``, ``ray://HOST:PORT``, or ``auto`` for the cluster on this machine.
        insecure: True to accept also a cluster that asks for no token.

    Raises:
        BadInput: there is no cluster, it is open to everybody, or it does not accept the user's token.
    """
    # With TLS, Ray asks for a client certificate instead of a token, and an unencrypted probe gets no reply.
    if os.environ.get("RAY_USE_TLS") == "1" or (target := _resolve(address)) is None:
        return
    reply = probe_cluster(target)
    if reply is Reply.NONE:
        raise BadInput(f"no Ray cluster at {target}: is it started, and RAY_ADDRESS right?")
    if reply is Reply.ACCEPTED:
        if not insecure:
            harm = "asks for no token, so everybody who reaches it can run code there"
            raise BadInput(f"the Ray cluster at {target} {harm}: start it with {MODE}=token, or add --insecure")
        os.environ[MODE] = "disabled"
        return
    _check_token(target)


def _check_token(target: str) -> None:
    mode = os.environ.setdefault(MODE, "token").lower()
    asks = f"the Ray cluster at {target} asks for a token"
    if mode == "disabled":
        raise BadInput(f"{asks}, and {MODE}=disabled sends none: unset {MODE}")
    if mode != "token":  # Kubernetes has its own tokens
        return
    source, token = _find_token()
    if not token:
        raise BadInput(f"{asks}, and there is none in {source}: copy it there, or name it in {TOKEN}")
    if probe_cluster(target, token) is Reply.REFUSED:
        raise BadInput(f"{asks}, and does not accept that of {source}: copy the token of the cluster's head")


def probe_cluster(target: str, token: str | None = None) -> Reply:
    """Call a method that changes nothing in a cluster, and return the kind of reply.

    Args:
        target: ``HOST:PORT`` or ``ray://HOST:PORT``.
        token: token to send; None sends no token.
    """
    import grpc

    method = _CLIENT_METHOD if target.startswith(_CLIENT_SCHEME) else _GCS_METHOD
    headers = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(target.removeprefix(_CLIENT_SCHEME)) as channel:
        try:
            channel.unary_unary(method)(b"", timeout=_PROBE_SECONDS, metadata=headers)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return Reply.NONE
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                return Reply.REFUSED
    return Reply.ACCEPTED  # even if the method itself fails, the cluster has accepted the call


def _resolve(address: str) -> str | None:
    """Return the address to probe; None if no cluster runs here, which Ray itself reports."""
    if address != "auto":
        return address
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(folder) / "ray" / "ray_current_cluster").read_text().strip() or None
    except OSError:
        return None


def _find_token() -> tuple[str, str]:
    """Return the place of the user's token, and the token, by Ray's order of search.

    The place is a variable or a file. A missing token is empty.
    """
    if os.environ.get(TOKEN):
        return TOKEN, os.environ[TOKEN].strip()
    file = Path(os.environ.get(TOKEN_PATH) or Path.home() / ".ray" / "auth_token")
    try:
        return str(file), file.read_text().strip()
    except (OSError, UnicodeError):
        return str(file), ""
