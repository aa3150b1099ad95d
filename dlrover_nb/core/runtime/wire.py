"""Sockets and frames: how records and arrays travel between the processes of a job.

A message is a list of frames. The first holds a magic number, the version of this format, the headers of the
arrays and the record; each further frame is the memory of one array, sent and read without a copy. `decode`
returns only records of the closed unions and the listed array types: nothing in a message is ever executed,
so there is no pickle here.

On one host messages use unix sockets (``ipc``) in a folder that only its owner may enter. Between hosts they
use TCP under CURVE with the one key pair of the job, which is both server and client key: a process without
it can neither send nor receive. ZeroMQ asks a ZAP handler about each client's key, one per context; ours has
no state, because the socket's ZAP domain is the public key that it admits. That handler's thread ends with
the context: close the sockets, then call `Context.term`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import zmq
from zmq.utils import z85

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import BackendError, InvalidValueError, WireError
from dlrover_nb.core.runtime.exchange import (
    BetweenPs,
    ExchangeRefused,
    FromPs,
    GradientsKept,
    KeepGradients,
    NotMember,
    ToPs,
)
from dlrover_nb.core.structs.messages import FromNode, LinesWritten, ToNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
Socket: TypeAlias = "zmq.Socket[bytes]"

MAX_FRAME_BYTES = 256 << 20  # one frame; frames of a PS are far smaller
MAX_FRAMES = 16
MAX_HEAD_BYTES = 1 << 20  # the record and the arrays' headers, which are decoded into objects
MAX_IPC_PATH_BYTES = 107  # sun_path of a unix socket is 108 bytes with its end mark
HIGH_WATER = 1000  # messages queued per peer, each way
HEARTBEAT_MS = 5_000  # ZMTP's own heartbeat: detects a dead host without traffic
HEARTBEAT_TIMEOUT_MS = 30_000

_MARK = b"DN"
_VERSION = 1
_HEAD = struct.Struct("<2sBB")  # mark, version, number of arrays
_ARRAY = struct.Struct("<BB")  # type, number of dimensions
_DTYPES = tuple(np.dtype(name) for name in ("<f4", "<f8", "<i4", "<i8", "|u1"))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_MAX_DIMENSIONS = 4
_RECORDS: Tagged[Any] = Tagged(
    FromNode,
    LinesWritten,
    ToNode,
    ToPs,
    FromPs,
    BetweenPs,
    written={
        KeepGradients: "Hold",
        GradientsKept: "Held",
        NotMember: "Gone",
        ExchangeRefused: "Refused",
    },
)
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
        When `listen` is neither, or the path is too long for a unix socket.
    """
    if listen == "ipc":
        endpoint = _ipc_endpoint(path)
    elif listen.startswith("tcp://") and len(listen) > len("tcp://"):
        endpoint = listen if listen.rpartition(":")[2].isdecimal() else f"{listen}:*"
    else:
        raise InvalidValueError(f"listen must be ipc or tcp://ADDRESS, got {listen!r}")
    socket = _new_socket(context, zmq.ROUTER, endpoint)
    socket.router_handover = True  # a node that connects again under its name takes it over
    if is_between_hosts(endpoint):
        _guard(socket, context, keys)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        raise BackendError(f"cannot bind {endpoint}: {error}; choose another address to listen on") from error
    return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


def connect_dealer(context: Context, endpoint: str, identity: str, keys: JobKeys) -> Socket:
    """Return a DEALER socket that connects to a router of the job as soon as possible."""
    socket = new_dealer(context, endpoint, identity, keys)
    socket.connect(endpoint)
    return socket


def new_dealer(context: Context, endpoint: str, identity: str, keys: JobKeys) -> Socket:
    """Return a DEALER socket that is ready to `connect`, so that the caller can monitor that."""
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
    host = listen.removeprefix("tcp://")
    address = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    endpoint = f"tcp://{address}:*"
    socket = _new_socket(context, zmq.ROUTER, endpoint)
    socket.router_handover = True
    socket.plain_server, socket.zap_domain = True, _domain_of(password.encode())
    socket.bind(endpoint)
    return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


def connect_plain_dealer(context: Context, endpoint: str, identity: str, password: str) -> Socket:
    """Return a DEALER socket that connects to a plain router."""
    socket = _new_socket(context, zmq.DEALER, endpoint)
    socket.identity = identity.encode()
    socket.reconnect_ivl_max = 2_000  # ms
    socket.plain_username, socket.plain_password = identity.encode(), password.encode()
    socket.connect(endpoint)
    return socket


def is_between_hosts(endpoint: str) -> bool:
    """Whether an endpoint is reached over the network, and not within one host."""
    return endpoint.startswith("tcp")


def encode(message: object, arrays: Iterable[NDArray[Any]] = ()) -> list[Any]:
    """Return the frames of a record and the arrays beside it.

    Arrays are not copied: with ``send_multipart(frames, copy=False)`` their memory must not change until
    the answer has arrived.

    Raises
    ------
    WireError
        When an array's type is not one of the wire's, or it is too large.
    """
    parts = [np.asarray(array, order="C") for array in arrays]
    head = [_HEAD.pack(_MARK, _VERSION, len(parts)), *(_array_header(part) for part in parts)]
    if len(parts) >= MAX_FRAMES:
        raise WireError(f"a message holds at most {MAX_FRAMES - 1} arrays, got {len(parts)}")
    first = b"".join((*head, _RECORDS.pack(message)))
    if len(first) > MAX_HEAD_BYTES:
        raise WireError(f"a record has at most {MAX_HEAD_BYTES >> 10} KiB, got {len(first) >> 10}")
    return [first, *(_memory(part) for part in parts)]


def n_byte(frames: Sequence[Any]) -> int:
    """Return how many bytes the frames of a message hold."""
    return sum(frame.nbytes if isinstance(frame, memoryview) else len(frame) for frame in frames)


def decode(frames: Sequence[Any]) -> tuple[Any, list[NDArray[Any]]]:
    """Return the record and the arrays of a message; the arrays are views of the frames' memory.

    Raises
    ------
    WireError
        When it is not a message of this version, or its arrays are not what its header says.
    """
    try:
        return _decode([memoryview(getattr(frame, "buffer", frame)) for frame in frames])
    except (struct.error, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"malformed message: {error}; do all nodes run the same release?") from error


def _decode(frames: list[memoryview]) -> tuple[Any, list[NDArray[Any]]]:
    if not 1 <= len(frames) <= MAX_FRAMES:
        raise WireError(f"expected 1 to {MAX_FRAMES} frames, got {len(frames)}")
    if frames[0].nbytes > MAX_HEAD_BYTES:
        raise WireError(f"a record has at most {MAX_HEAD_BYTES >> 10} KiB, got {frames[0].nbytes >> 10}")
    mark, version, n_array = _HEAD.unpack_from(frames[0])
    if mark != _MARK:
        raise WireError(
            f"expected a message that begins with {_MARK!r}, got {mark!r}: it was sent by another program"
        )
    if version != _VERSION:
        raise WireError(
            f"expected version {_VERSION} of the wire, got version {version}; run one release on all nodes"
        )
    if n_array != len(frames) - 1:
        raise WireError(f"the header announces {n_array} arrays, got {len(frames) - 1}")
    at, arrays = _HEAD.size, []
    for frame in frames[1:]:
        dtype, shape, at = _read_array_header(frames[0], at)
        arrays.append(_array(frame, dtype, shape))
    return _RECORDS.unpack(frames[0][at:]), arrays  # type: ignore[arg-type]  # any buffer is accepted


def _array_header(array: NDArray[Any]) -> bytes:
    code = _CODES.get(array.dtype)
    if code is None or array.ndim > _MAX_DIMENSIONS or array.nbytes > MAX_FRAME_BYTES:
        raise WireError(
            f"expected an array of {', '.join(d.name for d in _DTYPES)}, <= {_MAX_DIMENSIONS} dimensions "
            f"and <= {MAX_FRAME_BYTES >> 20} MiB, got {array.dtype} {array.shape}; use more PS"
        )
    return _ARRAY.pack(code, array.ndim) + struct.pack(f"<{array.ndim}Q", *array.shape)


def _read_array_header(head: memoryview, at: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    code, n_dimension = _ARRAY.unpack_from(head, at)
    if code >= len(_DTYPES) or n_dimension > _MAX_DIMENSIONS:
        raise WireError(f"unknown array type {code} with {n_dimension} dimensions")
    sizes = struct.Struct(f"<{n_dimension}Q")
    shape = sizes.unpack_from(head, at + _ARRAY.size)
    return _DTYPES[code], shape, at + _ARRAY.size + sizes.size


def _array(frame: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if frame.nbytes > MAX_FRAME_BYTES or math.prod(shape) * dtype.itemsize != frame.nbytes:
        raise WireError(f"an array {dtype} {shape} does not fit a frame of {frame.nbytes} bytes")
    if not frame.nbytes:
        return np.empty(shape, dtype)  # numpy reads no empty buffers
    return np.frombuffer(frame, dtype).reshape(shape)


def _memory(array: NDArray[Any]) -> memoryview | bytes:
    return memoryview(array.data).cast("B") if array.size and array.ndim else array.tobytes()


def _new_socket(context: Context, kind: int, endpoint: str) -> Socket:
    socket: Socket = context.socket(kind)
    socket.ipv6 = endpoint.startswith("tcp://[")
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = HIGH_WATER
    socket.maxmsgsize = MAX_FRAME_BYTES
    socket.tcp_keepalive = 1
    socket.heartbeat_ivl, socket.heartbeat_timeout = HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS
    return socket


def _ipc_endpoint(path: Path) -> str:
    n_byte = len(str(path).encode())
    if n_byte > MAX_IPC_PATH_BYTES:
        raise InvalidValueError(
            f"the path of a unix socket must be <= {MAX_IPC_PATH_BYTES} bytes, got {n_byte}: {path}; "
            "use a run folder with a shorter path"
        )
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
