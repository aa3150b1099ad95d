"""One buffer of shared memory: a control page, then an image.

One word states whether a buffer holds a complete copy: it is set to WRITING before the first byte is changed
and to COMPLETE after the last. A writer that is killed in between leaves WRITING, which readers refuse. A
random token identifies each copy, so a reader of one copy is refused another, also if the buffer is reused
while it reads (`memory_image` checks twice). The SHA-256 of the image is added in the background by the
writer of the file. Until then the word alone guarantees the copy, which suffices against any death of the
writer; the checksum also detects stray writes.

Memory is allocated with posix_fallocate: a full /dev/shm is an error of one line, and not a SIGBUS during the
copy. The pages are touched at allocation and kept: later copies run at the speed of memory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints.image import parse
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM
from dlrover_nb.core.structs.training.checkpoints import MemoryPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.checkpoints.image import Image, Layout

CONTROL_BYTES = 4096
_MARK = b"DLNBSHM1"
_CONTROL = struct.Struct("<8sI4xqq16s32s")  # mark, state, number, bytes, token, SHA-256 or zeros
_STATE_AT = 8
_NO_SHA = bytes(32)
_TOUCH_BYTES = 8 << 20
_STEP = 1 << 20  # buffers grow by whole MiB
_SPARE = 8  # reserve of one part in this many: parameters grow
HASH_BYTES = 8 << 20


class State(IntEnum):
    """State of a buffer."""

    EMPTY = 0
    WRITING = 1
    COMPLETE = 2


def nothing() -> None:
    """Do nothing between two chunks."""


class SharedBuffer:
    """A buffer that this process writes; its name is free again when it is unlinked.

    Parameters
    ----------
    path
        Under /dev/shm; what lies there of an earlier owner is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = -1  # of the complete copy; -1: none
        self._handle = -1
        self._map: mmap.mmap | None = None
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)

    @property
    def n_byte(self) -> int:
        """Allocated bytes."""
        return len(self._bytes)

    def reserve(
        self, n_byte: int, *, most_bytes: int | None = None, between: Callable[[], None] = nothing
    ) -> None:
        """Allocate memory for an image of `n_byte` and a reserve, unless present; the buffer is empty then.

        Parameters
        ----------
        n_byte
            Length of the image.
        most_bytes
            What may be taken; None: all that there is.
        between
            Called every now and then.

        Raises
        ------
        OSError
            When there is no room; nothing is held then.
        """
        most_bytes = sys.maxsize if most_bytes is None else most_bytes
        if CONTROL_BYTES + n_byte <= self.n_byte <= most_bytes:
            return
        size = _size(n_byte, most_bytes)
        try:
            if self._map is None or size < self.n_byte:
                self.close(unlink=True)
                self._handle = _create(self.path)
            self._grow(size, between)
        except OSError:
            self.close(unlink=True)
            raise

    def fill(self, number: int, layout: Layout, between: Callable[[], None] = nothing) -> MemoryPart:
        """Copy an image into the buffer; memory must have been reserved."""
        body, done = self.begin(), 0
        for at, piece in layout.pieces():
            body[done:at] = 0
            done = at + len(piece)
            np.copyto(body[at:done], piece)
            between()
        body[done : layout.n_byte] = 0
        return self.complete(number, layout.n_byte)

    def begin(self) -> NDArray[np.uint8]:
        """Return the reserved memory for an image, to be filled; what it held is void."""
        self._set_state(State.WRITING)
        self.number = -1
        return self._bytes[CONTROL_BYTES:]

    def complete(self, number: int, n_byte: int) -> MemoryPart:
        """Make an image of so many bytes a copy that others can read."""
        token = secrets.token_bytes(16)
        control = (_MARK, State.WRITING, number, n_byte, token, _NO_SHA)
        _CONTROL.pack_into(self._bytes.data, 0, *control)
        self._set_state(State.COMPLETE)  # after the last byte
        self.number = number
        return MemoryPart(self.path.name, number, token.hex(), n_byte)

    def seal(self, sha256: str) -> None:
        """Record the checksum of its image."""
        end = _CONTROL.size
        self._bytes[end - 32 : end] = np.frombuffer(bytes.fromhex(sha256), np.uint8)

    def image(self) -> NDArray[np.uint8]:
        """Return all bytes of its image, as a view."""
        n_byte = _CONTROL.unpack_from(self._bytes.data)[3]
        return self._bytes[CONTROL_BYTES : CONTROL_BYTES + n_byte]

    def close(self, *, unlink: bool) -> None:
        """Unmap the memory; with `unlink` also delete its name, which frees it."""
        self.number = -1
        self._bytes = np.empty(0, np.uint8)
        if self._map is not None:
            with contextlib.suppress(BufferError):  # a view exists; unmapped with the last one
                self._map.close()
        self._map = None
        if self._handle >= 0:
            os.close(self._handle)
            if unlink:
                self.path.unlink(missing_ok=True)
        self._handle = -1

    def _grow(self, size: int, between: Callable[[], None]) -> None:
        """Take more memory; what there is stays, as new pages cost more than all else."""
        before = self.n_byte
        for start in range(before, size, _TOUCH_BYTES):
            os.posix_fallocate(self._handle, start, min(_TOUCH_BYTES, size - start))
            between()
        if self._map is not None:
            self._set_state(State.EMPTY)
        self.number, self._bytes = -1, np.empty(0, np.uint8)
        self._map = mmap.mmap(self._handle, size)
        self._bytes = np.frombuffer(self._map, np.uint8)
        for start in range(0, size, _TOUCH_BYTES):  # also what was mapped before
            self._bytes[start : start + _TOUCH_BYTES : mmap.PAGESIZE] = 0
            between()

    def _set_state(self, state: State) -> None:
        self._bytes[_STATE_AT : _STATE_AT + 4].view(np.uint32)[0] = state


def _size(n_byte: int, most_bytes: int) -> int:
    """Return the size of a buffer for an image of `n_byte`."""
    need = CONTROL_BYTES + n_byte
    if need > most_bytes:
        raise OSError(errno.ENOMEM, "the node's memory is needed for its parameters")
    ample = -(-(need + n_byte // _SPARE) // _STEP) * _STEP
    return min(ample, most_bytes)


def _create(path: Path) -> int:
    """Create the private file and lock it: a free lock means that the writer is dead."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


@contextlib.contextmanager
def memory_image(
    part: MemoryPart, *, shm: Path = SHM, between: Callable[[], None] = nothing
) -> Iterator[Image]:
    """Map a copy in shared memory, its arrays as read-only views.

    Raises
    ------
    CheckpointError
        On entering when it is not on this host, incomplete, another copy or damaged; on leaving when it was
        overwritten meanwhile: what was made of it is void then.
    """
    with _mapped(shm / part.name) as data:
        sha256 = _check(data, part)
        image = data[CONTROL_BYTES : CONTROL_BYTES + part.n_byte]
        if sha256 != _NO_SHA and sha256_of(image, between) != sha256:
            raise CheckpointError(f"the memory of checkpoint {part.number} in {part.name} is damaged")
        yield parse(image, part.name)
        _check(data, part)


def read_piece(part: MemoryPart, start: int, n_byte: int, *, shm: Path = SHM) -> NDArray[np.uint8]:
    """Return bytes of a copy in shared memory, copied.

    Raises
    ------
    CheckpointError
        When it is not on this host, incomplete, or another copy, also after the bytes were read.
    """
    with _mapped(shm / part.name) as data:
        _check(data, part)
        stop = min(start + n_byte, part.n_byte)
        piece = data[CONTROL_BYTES + start : CONTROL_BYTES + stop].copy()
        _check(data, part)
        return piece


def _open(path: Path) -> BinaryIO:
    """Open a file of shared memory for reading; where all may write, a link could name any other file."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[NDArray[np.uint8]]:
    """Map a buffer of any process for reading; its views keep it mapped for as long as they live."""
    try:
        with _open(path) as file:
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"nothing of the job is in {path} on this host: {error}") from error
    yield data


def _check(data: NDArray[np.uint8], part: MemoryPart) -> bytes:
    """Return the checksum of a buffer that holds this copy; zeros while there is none."""
    if len(data) < CONTROL_BYTES:
        raise CheckpointError(f"{part.name} has {len(data)} bytes: no buffer of a checkpoint")
    mark, state, number, n_byte, token, sha256 = _CONTROL.unpack_from(data.data)
    if mark != _MARK or state != State.COMPLETE:
        raise CheckpointError(f"{part.name} holds no complete copy: its writer ended while copying")
    if (token.hex(), number, n_byte) != (part.token, part.number, part.n_byte):
        raise CheckpointError(
            f"expected checkpoint {part.number} in {part.name}, got {number} or another copy"
        )
    if CONTROL_BYTES + n_byte > len(data):
        raise CheckpointError(f"{part.name} is damaged: {n_byte} bytes in a buffer of {len(data)}")
    return bytes(sha256)


def written_number(path: Path) -> int | None:
    """Return the checkpoint that a dead writer left in a buffer, -1 for none; None: its writer lives."""
    with _open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        control = file.read(_CONTROL.size)
    if len(control) < _CONTROL.size:
        return -1
    mark, state, number, *_ = _CONTROL.unpack(control)
    return int(number) if mark == _MARK and state == State.COMPLETE else -1


def sha256_of(data: NDArray[np.uint8], between: Callable[[], None]) -> bytes:
    """Return the checksum; `between` is called between blocks."""
    digest = hashlib.sha256()
    for start in range(0, len(data), HASH_BYTES):
        digest.update(data[start : start + HASH_BYTES].data)
        between()
    return digest.digest()
