"""A proxy before the unix socket of a running PS, which delays what is sent to the PS.

Nodes of one machine talk over unix sockets. The proxy binds a socket of its own and renames it to the path of
the PS's one, whose inode gets a second name first: both steps are atomic, so a client always finds a
listener. Connections that exist go past the proxy; each of them is shut down, by a copy of the PS's own
descriptor (`pidfd_getfd`, which needs the right to debug that process). Workers connect again by themselves,
and repeat what was lost after ten seconds. Without that right only later connections are delayed, and the
user is warned.

`tc netem` was rejected: it delays packets of an interface, and there are none here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIDFD_GETFD = 438  # the number of the system call on all architectures
_CHUNK_BYTES = 256 << 10
_CHUNKS = 1024  # that wait in one connection
_REAL, _NEW = ".real", ".new"


def real_path(path: Path) -> Path:
    """Return the second name of the PS's own socket."""
    return path.with_name(path.name + _REAL)


class DelayProxy:
    """Takes the place of a socket; `put_back` undoes that.

    Parameters
    ----------
    path
        Where the PS listens.
    delay_s
        Of what is sent to the PS.
    """

    def __init__(self, path: Path, delay_s: float) -> None:
        self._path, self._delay_s = path, delay_s
        self._listener = socket.socket(socket.AF_UNIX)
        self._copies = set[asyncio.Task[None]]()

    def take_place(self) -> None:
        """Listen in the place of the PS; raises `OSError`."""
        new = self._path.with_name(self._path.name + _NEW)
        new.unlink(missing_ok=True)
        with _short(new) as short:
            self._listener.bind(short)
        self._listener.listen(64)
        real_path(self._path).unlink(missing_ok=True)
        os.link(self._path, real_path(self._path))
        new.replace(self._path)

    def run(self) -> None:
        """Copy both ways until the process ends."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._connected, sock=self._listener, limit=_CHUNK_BYTES)
        await server.serve_forever()

    async def _connected(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            with _short(real_path(self._path)) as short:
                from_ps, to_ps = await asyncio.open_unix_connection(short, limit=_CHUNK_BYTES)
        except OSError:  # the PS has ended
            to_client.close()
            return
        ways = (self._copy(from_client, to_ps, self._delay_s), self._copy(from_ps, to_client, 0.0))
        for way in ways:
            task = asyncio.ensure_future(way)
            self._copies.add(task)
            task.add_done_callback(self._copies.discard)

    async def _copy(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, delay_s: float) -> None:
        """Copy one way; the end of either side ends the connection."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS)
        reading = asyncio.ensure_future(_read(source, waiting, delay_s))
        try:
            while (chunk := await _next(waiting)) != b"":
                to.write(chunk)
                await to.drain()
        except OSError:  # the other side has gone
            pass
        finally:
            reading.cancel()
            to.close()


async def _read(
    source: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes]], delay_s: float
) -> None:
    chunk = b"first"
    while chunk:
        try:
            chunk = await source.read(_CHUNK_BYTES)
        except OSError:
            chunk = b""
        await waiting.put((time.monotonic() + delay_s, chunk))


async def _next(waiting: asyncio.Queue[tuple[float, bytes]]) -> bytes:
    due_s, chunk = await waiting.get()
    if (early_s := due_s - time.monotonic()) > 0:
        await asyncio.sleep(early_s)
    return chunk


def put_back(path: Path) -> None:
    """Give the PS its path again; nothing happens where that was done, or the PS has ended."""
    real = real_path(path)
    with contextlib.suppress(FileNotFoundError):
        if path.exists():
            real.replace(path)
        else:
            real.unlink()  # the PS has removed its socket at its end


def disconnect(pid: int, path: Path) -> int:
    """Shut down the connections that a process has accepted at a path; return how many.

    Raises
    ------
    OSError
        When this process has no right to do so.
    """
    n_closed = 0
    with _closing(os.pidfd_open(pid)) as process:
        for descriptor in _sockets(pid):
            with socket.socket(fileno=_copied(process, descriptor)) as copy:
                is_listener = copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if copy.family == socket.AF_UNIX and not is_listener and _is_at(copy, path):
                    copy.shutdown(socket.SHUT_RDWR)
                    n_closed += 1
    return n_closed


def _is_at(accepted: socket.socket, path: Path) -> bool:
    return Path(os.fsdecode(accepted.getsockname())).name == path.name  # it ends with the process's id


def _sockets(pid: int) -> list[int]:
    descriptors = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            if str(link.readlink()).startswith("socket:"):
                descriptors.append(int(link.name))
    return descriptors


def _copied(process: int, descriptor: int) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    copy = int(call(_PIDFD_GETFD, process, descriptor, 0))
    if copy < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return copy


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a name of a socket that fits into its 108 bytes, however long the folder's is."""
    with _closing(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)) as folder:
        yield f"/proc/self/fd/{folder}/{path.name}"
