"""Sockets between the processes of a job, and who may connect to them.

On one host messages use unix sockets (``ipc``) in a folder that only its owner may enter. The kernel takes
paths of 107 bytes; a longer one is reached through an open descriptor of its folder, which each process makes
for itself (``/proc/self/fd/N/master``), so that endpoints stay the same for all. Between hosts messages
use TCP under CURVE with the one key pair of the job, which is both server and client key: a process without
it can neither send nor receive. ZeroMQ asks a ZAP handler about each client's key, one per context; ours has
no state, because the socket's ZAP domain is the public key that it admits. That handler's thread ends with
the context: close the sockets, then call `Context.term`.

Any program that reaches a port can open connections and say nothing. Each costs a descriptor until it is
closed, after `HANDSHAKE_MS`; ZeroMQ has no limit of their number, so that is bounded by time alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import resource
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import zmq
from zmq.utils import z85

from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.runtime.exchange.wire import MAX_FRAME_BYTES, MAX_FRAMES

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
Socket: TypeAlias = "zmq.Socket[bytes]"

MAX_IPC_PATH_BYTES = 107  # sun_path of a unix socket is 108 bytes with its end mark
HIGH_WATER = 1000  # messages queued per peer, each way
MOST_FILES = 1 << 16  # that a process with a router may have open
HEARTBEAT_MS = 5_000  # ZMTP's own heartbeat: detects a dead host without traffic
HEARTBEAT_TIMEOUT_MS = 30_000
HANDSHAKE_MS = 10_000  # for a client to show its key: a busy host takes some 100 ms
_MAX_SEALED_BYTES = MAX_FRAMES * MAX_FRAME_BYTES  # a sealed message has all in one frame

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"  # the address required by ZeroMQ


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The CURVE pair of one job in Z85 (40 characters each); it is never reused for another job."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"JobKeys(public={self.public!r}, secret=...)"


def new_keys() -> JobKeys:
    """Make a key pair."""
    public, secret = zmq.curve_keypair()
    return JobKeys(public.decode(), secret.decode())


def bind_router(context: Context, listen: str, path: Path, keys: JobKeys) -> tuple[Socket, str]:
    """Bind a ROUTER socket and return it with the endpoint to connect to.

    Parameters
    ----------
    listen
        ``ipc`` to bind `path` (in a folder of mode 0700, made if missing), or ``tcp://ADDRESS`` to bind a
        free port of that address (``tcp://ADDRESS:PORT``: that one), for holders of `keys` only.

    Raises
    ------
    BackendError
        When the folder is open to other users or the address cannot be bound.
    InvalidValueError
        When `listen` is neither.
    """
    if listen == "ipc":
        endpoint = _ipc_endpoint(path)
    elif listen.startswith("tcp://") and len(listen) > len("tcp://"):
        endpoint = listen if listen.rpartition(":")[2].isdecimal() else f"{listen}:*"
    else:
        raise InvalidValueError(f"listen must be ipc or tcp://ADDRESS, got {listen!r}")
    _allow_connections()
    socket = _new_socket(context, zmq.ROUTER, endpoint)
    socket.handshake_ivl = HANDSHAKE_MS
    socket.router_handover = True  # a node that connects again under its name takes it over
    if is_between_hosts(endpoint):
        _guard(socket, context, keys)
    try:
        socket.bind(reachable(endpoint))
    except zmq.ZMQError as error:
        socket.close()
        raise BackendError(f"cannot bind {endpoint}: {error}; choose another address to listen on") from error
    if not is_between_hosts(endpoint):
        return socket, endpoint
    return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


def connect_dealer(context: Context, endpoint: str, identity: str, keys: JobKeys) -> Socket:
    """Return a DEALER socket that connects to a router of the job as soon as possible."""
    within_reach = reachable(endpoint)
    socket = new_dealer(context, endpoint, identity, keys)
    socket.connect(within_reach)
    return socket


def new_dealer(context: Context, endpoint: str, identity: str, keys: JobKeys) -> Socket:
    """Return a DEALER socket that the caller connects to a `reachable` endpoint, and can monitor before."""
    socket = _new_socket(context, zmq.DEALER, endpoint)
    socket.identity = identity.encode()
    socket.reconnect_ivl_max = 2_000  # ms
    if is_between_hosts(endpoint):
        socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
        socket.curve_serverkey = keys.public.encode()
    return socket


def bind_plain_router(context: Context, listen: str, password: str) -> tuple[Socket, str]:
    """Bind a ROUTER socket that encrypts nothing, for sealed messages, and return it with its endpoint.

    Parameters
    ----------
    listen
        ``tcp://ADDRESS``; a port in it is left to the other router.
    password
        Who connects must know it (see `sealed`).
    """
    _start_zap(context)
    endpoint = f"{without_port(listen)}:*"
    socket = _new_socket(context, zmq.ROUTER, endpoint)
    socket.maxmsgsize = _MAX_SEALED_BYTES
    socket.handshake_ivl = HANDSHAKE_MS
    socket.router_handover = True
    socket.plain_server, socket.zap_domain = True, _domain_of(password.encode())
    socket.bind(endpoint)
    return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


def connect_plain_dealer(context: Context, endpoint: str, identity: str, password: str) -> Socket:
    """Return a DEALER socket that connects to a plain router."""
    socket = _new_socket(context, zmq.DEALER, endpoint)
    socket.maxmsgsize = _MAX_SEALED_BYTES
    socket.identity = identity.encode()
    socket.reconnect_ivl_max = 2_000  # ms
    socket.plain_username, socket.plain_password = identity.encode(), password.encode()
    socket.connect(endpoint)
    return socket


def without_port(listen: str) -> str:
    """Return where to listen, on any port; one in it is left to another socket."""
    address, _, port = listen.rpartition(":")
    return address if port.isdecimal() else listen


def is_between_hosts(endpoint: str) -> bool:
    """Whether an endpoint is reached over the network, and not within one host."""
    return endpoint.startswith("tcp")


def _new_socket(context: Context, kind: int, endpoint: str) -> Socket:
    socket: Socket = context.socket(kind)
    socket.ipv6 = endpoint.startswith("tcp://[")
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = HIGH_WATER
    socket.maxmsgsize = MAX_FRAME_BYTES
    socket.tcp_keepalive = 1
    socket.heartbeat_ivl, socket.heartbeat_timeout = HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS
    return socket


def _allow_connections() -> None:
    """Raise the limit of open files as far as this process may: each node that connects takes one.

    A usual limit is 1,024, with a far higher one up to which a process may raise it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def reachable(endpoint: str) -> str:
    """Return the endpoint by which this process reaches another, however long its path is.

    Raises
    ------
    BackendError
        When the path is too long for a unix socket, and its folder cannot be opened.
    """
    path = Path(endpoint.removeprefix("ipc://"))
    if is_between_hosts(endpoint) or len(os.fsencode(path)) <= MAX_IPC_PATH_BYTES:
        return endpoint
    try:
        folder = _descriptor(path.parent, path.parent.stat().st_ino)
    except OSError as error:
        raise BackendError(
            f"cannot reach {path}: {error.strerror or error}; does the job still run?"
        ) from error
    return f"ipc:///proc/self/fd/{folder}/{path.name}"


@functools.cache
def _descriptor(folder: Path, _inode: int) -> int:
    """Open a folder for as long as this process runs: its sockets connect again by it."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _ipc_endpoint(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.parent.stat().st_mode & 0o777
    if mode & 0o077:
        raise BackendError(
            f"the folder of a job's sockets must be closed to other users (mode 700), "
            f"got {mode:o}: {path.parent}"
        )
    return f"ipc://{path}"


def _guard(socket: Socket, context: Context, keys: JobKeys) -> None:
    """Admit only clients with the job's own key."""
    _start_zap(context)
    socket.zap_domain = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()
    socket.curve_server = True


def _start_zap(context: Context) -> None:
    """Start the context's ZAP handler unless it has one.

    Its socket belongs to a shadow of the context, so that `Context.destroy` of the owner does not close it
    while the thread uses it: it ends when the context is terminated.
    """
    shadow: Context = zmq.Context.shadow(context)
    socket = shadow.socket(zmq.REP)
    socket.linger = 0
    try:
        socket.bind(_ZAP_ENDPOINT)
    except zmq.ZMQError as error:
        socket.close()
        if error.errno != zmq.EADDRINUSE:
            raise
        return
    threading.Thread(target=_serve_zap, args=(socket,), name="zap", daemon=True).start()


def _serve_zap(socket: Socket) -> None:
    with contextlib.suppress(zmq.ContextTerminated), socket:
        while True:
            socket.send_multipart(_zap_answer(socket.recv_multipart()))


def _zap_answer(request: list[bytes]) -> list[bytes]:
    """Answer one ZAP 1.0 request: 200 for the key or password of the domain, else 400."""
    version, sequence, domain, _address, _identity, mechanism, *credentials = request
    match mechanism, credentials:
        case b"CURVE", [key]:
            admitted = z85.encode(key) == domain
        case b"PLAIN", [_name, password]:
            admitted = _domain_of(password) == domain
        case _:
            admitted = False
    status = (b"200", b"OK") if admitted else (b"400", b"not a key of this job")
    return [version, sequence, *status, b"", b""]


def _domain_of(password: bytes) -> bytes:
    """Return the ZAP domain of a port with this password, so that the handler needs no state."""
    return hashlib.sha256(password).hexdigest().encode()
