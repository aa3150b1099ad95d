"""One slab: a private file in /dev/shm that a worker makes and one PS maps too.

That both are on one host is not concluded from names: the PS opens the file that the worker names, of the
same user and mode 0600, and finds the worker's random token in it. Then the PS unlinks the name at once, so
the kernel frees the memory with the second of the two processes, however they end.

A name exists for the moment between the two. What a kill at that moment leaves is found by its lock (flock),
which the worker holds for as long as it uses the slab: the next worker of the run on this host that makes a
slab frees it, or the sweep of the run's memory does (`flash.names`). By the same lock a PS notices that a
worker is gone.

memfd and a file descriptor through a unix socket were rejected: they need a second connection beside the one
of ZeroMQ, and containers that share an IPC volume share no process ids.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hmac
import mmap
import os
import secrets
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.flash.names import SHM, is_slab_of, slabs_of
from dlrover_nb.core.runtime.shared_block import SharedBlock

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.runtime.exchange import OfferSlab

HEAD_BYTES = 4096
TOKEN_BYTES = 16
_MARK = b"DLNBSLB1"
_HEAD = struct.Struct(f"<8s{TOKEN_BYTES}s")


@dataclass(frozen=True, slots=True)
class SlabPlace:
    """Where the slabs of a run lie: the common prefix of its names, and the folder of shared memory."""

    run: str
    shm: Path = SHM

    def path(self, owner: str) -> Path:
        """Return the file of a slab."""
        return self.shm / f"{self.run}-{owner}-s"


class Slab:
    """A mapped slab of either side.

    Attributes
    ----------
    block
        Its number and bytes.
    token
        What identifies it.
    """

    def __init__(self, path: Path, handle: int, number: int, n_byte: int, token: bytes) -> None:
        self.path, self._handle, self.token = path, handle, token
        self._map = mmap.mmap(handle, n_byte, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.block = SharedBlock(number, np.frombuffer(self._map, np.uint8))

    @property
    def n_byte(self) -> int:
        """Bytes mapped."""
        return len(self.block.data)

    def is_abandoned(self) -> bool:
        """Whether the worker has closed it, or has ended: nobody holds its lock."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._handle, fcntl.LOCK_UN)
        return True

    def unlink(self) -> None:
        """Delete its name; it is used on."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Delete its name, end its maker's lock, and unmap it when the last view of it is gone."""
        self.unlink()
        fcntl.flock(self._handle, fcntl.LOCK_UN)  # the mapping has the file open too, for as long as it is
        self.block = SharedBlock(self.block.number, np.empty(0, np.uint8))
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._handle)


def make_slab(path: Path, number: int, n_byte: int) -> Slab:
    """Make a slab, and hold its lock.

    Raises
    ------
    OSError
        When there is no room or no shared memory; nothing is left then.
    """
    handle, token = _create(path), secrets.token_bytes(TOKEN_BYTES)
    try:
        os.posix_fallocate(handle, 0, n_byte)  # a full /dev/shm is an error here, and no SIGBUS later
        slab = Slab(path, handle, number, n_byte, token)
    except OSError:
        path.unlink(missing_ok=True)
        os.close(handle)
        raise
    _HEAD.pack_into(slab.block.data.data, 0, _MARK, token)
    return slab


def open_slab(place: SlabPlace, offer: OfferSlab) -> Slab:
    """Map a slab that a worker offers, and unlink its name.

    Raises
    ------
    OSError, ValueError
        When it is not what was offered: another host's, of another user or run, or of a worker that ended.
    """
    if not is_slab_of(place.run, offer.name):
        raise ValueError(f"{offer.name!r} is no slab of {place.run}")
    path = place.shm / offer.name
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        _check_file(handle, offer.n_byte)
        slab = Slab(path, handle, offer.number, offer.n_byte, bytes.fromhex(offer.token))
    except (OSError, ValueError):
        os.close(handle)
        raise
    mark, token = _HEAD.unpack_from(slab.block.data.data)
    is_it = mark == _MARK and hmac.compare_digest(token, slab.token)
    if is_it and not slab.is_abandoned():
        slab.unlink()
        return slab
    if is_it:
        slab.close()
        raise OSError(errno.ENOENT, "its worker has ended")
    os.close(handle)
    raise ValueError("it holds another token")


def free_abandoned(place: SlabPlace) -> None:
    """Free the slabs of the run whose workers were killed before a PS knew them."""
    for path in slabs_of(place.run, shm=place.shm):
        with contextlib.suppress(OSError):  # freed at this moment, or its worker lives
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


def _create(path: Path) -> int:
    """Create the private file and lock it; `free_abandoned` may take it between the two."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def _check_file(handle: int, n_byte: int) -> None:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ValueError("it is not a private file of this user")
    if not HEAD_BYTES <= n_byte <= found.st_size:
        raise ValueError(f"it has {found.st_size} bytes, not {n_byte}")
