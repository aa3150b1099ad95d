"""One slab: sealed memory without a name (memfd) that a worker makes and one PS maps too.

Its length is sealed before it is offered, and the PS checks that: memory that a worker could truncate would
end the PS by a signal (SIGBUS) at the next byte that it reads. A file in /dev/shm was rejected, as it has no
seals. Nor has this memory a name that a kill could leave behind, and no small /dev/shm bounds it: the kernel
frees it with the second of the two processes, however they end.

The worker names its process and the descriptor, which the PS opens under ``/proc``. That both are on one
host, and see each other's processes, is not concluded from names: the PS compares inode and owner, and finds
the worker's random token in the memory. The worker holds a lock (flock) for as long as it uses the slab, by
which a PS notices that the worker is gone.

A descriptor through a unix socket was rejected: it needs a second connection beside the one of ZeroMQ.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hmac
import mmap
import os
import secrets
import struct
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.exchange.shared_block import SharedBlock
from dlrover_nb.core.runtime.exchange.slab.descriptors import named, open_named

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.exchange.push_pull import OfferSlab

HEAD_BYTES = 4096
TOKEN_BYTES = 16
_MARK = b"DLNBSLB1"
_HEAD = struct.Struct(f"<8s{TOKEN_BYTES}s")


class Slab:
    """A mapped slab of either side.

    Attributes
    ----------
    name
        For the PS: the descriptor, and the inode behind it.
    block
        Its number and bytes.
    token
        What identifies it.
    """

    def __init__(self, handle: int, number: int, n_byte: int, token: bytes) -> None:
        self._handle, self.token, self.name = handle, token, named(handle)
        self._map = mmap.mmap(handle, n_byte, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.block = SharedBlock(number, np.frombuffer(self._map, np.uint8))

    @property
    def n_byte(self) -> int:
        """Bytes mapped."""
        return len(self.block.data)

    def is_abandoned(self) -> bool:
        """Whether the worker has closed it, or has ended: no process holds its lock."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._handle, fcntl.LOCK_UN)
        return True

    def close(self) -> None:
        """End its maker's lock, and unmap it when the last view of it is gone."""
        fcntl.flock(self._handle, fcntl.LOCK_UN)  # the mapping has it open too, for as long as it is
        self.block = SharedBlock(self.block.number, np.empty(0, np.uint8))
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._handle)


def make_slab(number: int, n_byte: int) -> Slab:
    """Make a slab of a length that no process can change, and hold its lock.

    Raises
    ------
    OSError
        When there is no room, or the system has no such memory; nothing is left then.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this system has no memory that can be sealed")
    handle, token = os.memfd_create("dlrover-nb-slab", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), None
    try:
        os.fchmod(handle, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.posix_fallocate(handle, 0, n_byte)  # no room is an error here, and no kill later
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
        slab = Slab(handle, number, n_byte, token := secrets.token_bytes(TOKEN_BYTES))
    except OSError:
        os.close(handle)
        raise
    _HEAD.pack_into(slab.block.data.data, 0, _MARK, token)
    return slab


def open_slab(offer: OfferSlab) -> Slab:
    """Map a slab that a worker offers.

    Raises
    ------
    OSError, ValueError
        When it is not what was offered: another host's, of another user, or of a worker that ended; or its
        length may change.
    """
    handle = open_named(offer.pid, offer.memory)
    try:
        _check_memory(handle, offer.n_byte)
        slab = Slab(handle, offer.number, offer.n_byte, bytes.fromhex(offer.token))
    except (OSError, ValueError):
        os.close(handle)
        raise
    mark, token = _HEAD.unpack_from(slab.block.data.data)
    is_it = mark == _MARK and hmac.compare_digest(token, slab.token)
    if is_it and not slab.is_abandoned():
        return slab
    slab.close()
    raise OSError(errno.ENOENT, "its worker has ended") if is_it else ValueError("it holds another token")


_SEALS = getattr(fcntl, "F_SEAL_SHRINK", 0) | getattr(fcntl, "F_SEAL_GROW", 0)


def _check_memory(handle: int, n_byte: int) -> None:
    status = os.fstat(handle)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ValueError("it is not private memory of this user")
    if fcntl.fcntl(handle, fcntl.F_GET_SEALS) & _SEALS != _SEALS:  # OSError: it is no such memory
        raise ValueError("its length is not sealed")
    if not HEAD_BYTES <= n_byte <= status.st_size:
        raise ValueError(f"it has {status.st_size} bytes, not {n_byte}")
