"""Checkpoints of one PS: a copy into shared memory, and a file of that, both in the background.

A copy is made by a thread of its own, while the parameters change (`begin`; `store.cut` says how that can
be). Small parts are copied at once (`copy`): that takes less time than a thread.

There are two buffers. A copy goes into the older one that is not being written to a file, so that at every
moment one complete copy is in memory, and a copy being written never changes. When both are being written the
copy waits for the first: a save may be late, but is never lost. Files are written one after the other, in the
order of the saves, by one thread of low priority; writing and hashing release the interpreter lock, so the PS
goes on serving.

The buffers are optional. Where memory does not suffice (a small /dev/shm, or parameters that need the node's
memory themselves), the file is written from the parameters directly, and training waits for it.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import queue
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints.background import (
    WRITER_SHARE,
    CopyEnded,
    Pace,
    Persisted,
    PersistFailed,
    lower_priority,
)
from dlrover_nb.core.runtime.checkpoints.buffer import nothing, written_number
from dlrover_nb.core.runtime.checkpoints.image import Image, Layout
from dlrover_nb.core.runtime.checkpoints.image_files import write_url
from dlrover_nb.core.runtime.checkpoints.increments import Chain
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, buffers_of, run_name
from dlrover_nb.core.runtime.checkpoints.pair import BufferPair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.checkpoints.buffer import SharedBuffer
    from dlrover_nb.core.runtime.checkpoints.image import Header
    from dlrover_nb.core.runtime.checkpoints.image_files import Written
    from dlrover_nb.core.runtime.checkpoints.increments import Changes
    from dlrover_nb.core.structs.training.checkpoints import MemoryPart

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    buffer: SharedBuffer
    number: int
    url: str
    is_awaited: bool = False
    changes: Changes | None = None


@dataclass(frozen=True, slots=True)
class _Reserve:
    buffer: SharedBuffer
    n_byte: int
    most_bytes: int


class FlashCheckpoint:
    """Saves the parameters of one PS; all methods are for the one thread that owns them.

    Parameters
    ----------
    job, folder, node
        Name of the job, its run folder, and the node: they name the shared memory.
    most_bytes
        The most shared memory to use now; None: no limit.
    shm
        Where shared memory lies.
    """

    def __init__(
        self,
        job: str,
        folder: Path | str,
        node: str,
        *,
        most_bytes: Callable[[], int] | None = None,
        shm: Path = SHM,
    ) -> None:
        self._run, self._node, self._shm = run_name(job, folder), node, shm
        self._limit = most_bytes or (lambda: sys.maxsize)
        self._buffers = BufferPair(shm, f"{self._run}-{node}")
        self._chain = Chain()  # of the thread that writes
        self._direct: tuple[int, Layout] | None = None  # what could not be copied
        self._results: collections.deque[CopyEnded | Persisted | PersistFailed] = collections.deque()
        self._tasks: queue.SimpleQueue[_Write | _Reserve | None] = queue.SimpleQueue()
        self._n_expected = 0  # bytes that memory was taken for beforehand
        self._thread: threading.Thread | None = None
        self._copier: threading.Thread | None = None
        self._ending = threading.Event()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)

    @property
    def n_byte(self) -> int:
        """Bytes of shared memory in use."""
        return self._buffers.n_byte

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something."""
        return self._woken

    def give_way(self) -> None:
        """Free copies while they exceed the limit, the older first; their files exist.

        To be called periodically: parameters grow between two checkpoints.
        """
        self._buffers.give_way(self._limit)

    def expect(self, n_byte: int) -> None:
        """Reserve memory for the next copy of about `n_byte` in the background, so that it need not wait.

        To be called periodically: nothing is reserved while a copy is made or files are written. Reserved
        amid a copy, the buffer would be another one than the copy fills.
        """
        if self._buffers.is_choosing or self._buffers.is_busy or n_byte <= self._n_expected:
            return
        self._n_expected = n_byte + n_byte // 8  # parameters grow; reserve in steps
        buffer = self._buffers.older
        self._buffers.occupy(buffer, reserves=True)
        self._do(_Reserve(buffer, n_byte, self._buffers.limit_for(buffer, self._limit())))

    def copy(
        self,
        number: int,
        header: Header,
        arrays: Mapping[str, NDArray[Any]],
        *,
        protected: int = -1,
        between: Callable[[], None] = nothing,
    ) -> MemoryPart | None:
        """Copy a part into shared memory: the only step that training waits for.

        Parameters
        ----------
        number
            Of the checkpoint.
        header, arrays
            What to save; the arrays may change when this returns something.
        protected
            A checkpoint whose copy is to stay where there is memory for two: it is in no file.
        between
            Called every now and then, also while both buffers are on their way to a file.

        Returns
        -------
        MemoryPart or None
            Where it is; None when there is no room in memory. Then the arrays must stay as they are until
            `persist` has written them, and `persist` returns only after that.
        """
        layout = self._laid_out(header, arrays)
        self._buffers.is_choosing = True
        try:
            buffer = self._buffers.room_for(layout.n_byte, protected, self._limit(), between)
            if buffer is not None:
                return buffer.fill(number, layout, between)
        finally:
            self._buffers.is_choosing = False
        self._write_directly(number, layout)
        return None

    def begin(
        self,
        number: int,
        header: Header,
        arrays: Mapping[str, NDArray[Any]],
        fill: Callable[[Mapping[str, NDArray[Any]]], None],
        give_up: Callable[[], None] = nothing,
        *,
        protected: int = -1,
    ) -> bool:
        """Begin to copy a part into shared memory while it changes; `poll` returns a `CopyEnded`.

        One at a time: the one before must have ended (`is_copying`). Whatever takes time is done by another
        thread: memory that is not reserved yet is taken, and a buffer that is being written is waited for.

        Parameters
        ----------
        number, header, protected
            As for `copy`.
        arrays
            Of the names, types and shapes of what is saved; they are not read.
        fill
            Called by that thread, to copy the part to these places in shared memory.
        give_up
            Called instead, where there is no memory after all: nothing must wait for the copy any more.

        Returns
        -------
        bool
            False when there is no room in memory; then `persist` writes `arrays`, as after `copy`.
        """
        layout, limit = self._laid_out(header, arrays), self._limit()
        if not self._buffers.has_room(layout.n_byte, limit):
            self._write_directly(number, layout)
            return False
        self._buffers.is_choosing = True
        work = number, layout, fill, give_up
        named = {"protected": protected, "limit": limit}
        self._copier = threading.Thread(
            target=self._copy, args=work, kwargs=named, name="copies", daemon=True
        )
        self._copier.start()
        return True

    @property
    def is_copying(self) -> bool:
        """Whether what was begun has not ended; what it has become is known afterwards."""
        return self._copier is not None and self._copier.is_alive()

    def forget_direct(self) -> None:
        """Give up what could not be copied and is to be in no file."""
        self._direct = None

    def persist(
        self,
        number: int,
        url: str,
        *,
        is_awaited: bool = False,
        changes: Changes | None = None,
        between: Callable[[], None] = nothing,
    ) -> None:
        """Write the copy of checkpoint `number` to `url`; `poll` returns the result.

        One that `is_awaited` is written at full speed, others with a share of a core. Where it is known what
        `changes` there are since the last file, it may hold these alone (`increments`).

        Raises
        ------
        CheckpointError
            When that copy does not exist any more.
        """
        if self._direct is not None and self._direct[0] == number:
            layout, self._direct = self._direct[1], None
            self._tell(_written(number, url, lambda: write_url(url, layout.chunks(), between=between)))
            return
        buffer = self._buffers.holding(number)
        if buffer is None:
            raise CheckpointError(f"checkpoint {number} is no longer in memory, so it cannot be written")
        self._buffers.occupy(buffer)
        self._do(_Write(buffer, number, url, is_awaited, changes))

    def poll(self) -> tuple[CopyEnded | Persisted | PersistFailed, ...]:
        """Return what has ended since the last call: copies, and files in the order of the saves."""
        if not self._results:
            return ()
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 64):
                pass
        results = []
        while self._results:
            results.append(self._results.popleft())
        return tuple(results)

    def close(self, *, unlink: bool) -> None:
        """End; an unfinished file is given up. `unlink` frees the memory, else the next PS may read it."""
        self._ending.set()
        if self._copier is not None:
            self._copier.join()
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
        self._buffers.close(unlink=unlink)
        os.close(self._woken)
        os.close(self._wake)

    def _laid_out(self, header: Header, arrays: Mapping[str, NDArray[Any]]) -> Layout:
        self._direct, self._n_expected = None, 0
        return Layout(Image(dict(header), arrays))

    def _write_directly(self, number: int, layout: Layout) -> None:
        logger.warning("%s: training waits for the file of checkpoint %d", self._node, number)
        self._direct = (number, layout)

    def _do(self, task: _Write | _Reserve) -> None:
        """Pass a task to the thread; its buffer is occupied."""
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
            self._thread.start()

    # the thread that copies

    def _copy(
        self,
        number: int,
        layout: Layout,
        fill: Callable[[Mapping[str, NDArray[Any]]], None],
        give_up: Callable[[], None],
        *,
        protected: int,
        limit: int,
    ) -> None:
        """Copy a part; at the priority of the one that serves, which may have to wait for it."""
        try:
            buffer = self._buffers.room_for(layout.n_byte, protected, limit, self._go_on)
            why = f"there is no memory for a copy of {layout.n_byte >> 20} MiB any more"
        except CheckpointError as error:
            buffer, why = None, str(error)
        if buffer is not None:
            self._buffers.occupy(buffer)
        self._buffers.is_choosing = False
        if buffer is None:
            give_up()
            self._tell(CopyEnded(number, None, why))
            return
        ended = _filled(number, buffer, layout, fill)
        self._buffers.release(buffer)
        self._tell(ended)

    # the thread that writes files

    def _work(self) -> None:
        lower_priority()
        while task := self._tasks.get():
            result = self._carry_out(task)
            self._buffers.release(task.buffer)
            if result is not None:
                self._free_old(result.number)
                self._tell(result)

    def _carry_out(self, task: _Write | _Reserve) -> Persisted | PersistFailed | None:
        match task:
            case _Write(buffer, number, url, is_awaited, changes):
                if buffer.number != number:
                    return PersistFailed(number, url, f"checkpoint {number} is no longer in memory")
                pace = Pace(1.0 if is_awaited else WRITER_SHARE, self._ending)
                about = number, url, buffer.image(), changes, lambda: self._go_on(pace)
                result = _written(number, url, lambda: self._chain.write(*about))
                if isinstance(result, Persisted) and self._chain.is_whole:
                    buffer.seal(result.sha256)
                return result
            case _Reserve(buffer, n_byte, most_bytes):
                with contextlib.suppress(OSError, ValueError, CheckpointError):  # the copy reports the reason
                    buffer.reserve(n_byte, most_bytes=most_bytes, between=self._go_on)
                return None
            case _ as never:
                assert_never(never)

    def _go_on(self, pace: Callable[[], None] = nothing) -> None:
        pace()
        if self._ending.is_set():
            raise CheckpointError("the PS ended before its checkpoint was written")

    def _tell(self, result: CopyEnded | Persisted | PersistFailed) -> None:
        self._results.append(result)
        with contextlib.suppress(BlockingIOError):  # full of unread wake-ups
            os.write(self._wake, b"1")

    def _free_old(self, number: int) -> None:
        """Free buffers of dead PS of this job on this host that will not be loaded any more."""
        for path in buffers_of(self._run, shm=self._shm):
            with contextlib.suppress(OSError):  # another PS frees it at this moment
                left = written_number(path)
                if left is not None and left < number - 1:
                    path.unlink()


def _filled(
    number: int, buffer: SharedBuffer, layout: Layout, fill: Callable[[Mapping[str, NDArray[Any]]], None]
) -> CopyEnded:
    try:
        fill(layout.views(buffer.begin()))
    except CheckpointError as error:
        return CopyEnded(number, None, str(error))
    return CopyEnded(number, buffer.complete(number, layout.n_byte))


def _written(number: int, url: str, write: Callable[[], Written]) -> Persisted | PersistFailed:
    try:
        done = write()
    except CheckpointError as error:
        logger.warning("checkpoint %d: %s", number, error)
        return PersistFailed(number, url, str(error))
    return Persisted(number, url, done.sha256, done.n_byte)
