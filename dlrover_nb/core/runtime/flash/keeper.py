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
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.flash.background import CopyEnded, Persisted, PersistFailed, lower_priority
from dlrover_nb.core.runtime.flash.buffer import SharedBuffer, nothing, written_number
from dlrover_nb.core.runtime.flash.files import write_url
from dlrover_nb.core.runtime.flash.image import Image, Layout
from dlrover_nb.core.runtime.flash.names import SHM, buffers_of, run_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.flash.image import Header
    from dlrover_nb.core.structs.checkpoints import MemoryPart

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.05  # between two calls of `between` while a copy waits for a buffer


@dataclass(frozen=True, slots=True)
class _Write:
    buffer: SharedBuffer
    number: int
    url: str


@dataclass(frozen=True, slots=True)
class _Reserve:
    buffer: SharedBuffer
    n_byte: int
    most_bytes: int | None


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
        self._most_bytes = most_bytes
        self._buffers = tuple(SharedBuffer(shm / f"{self._run}-{node}-{side}") for side in "ab")
        self._busy: list[SharedBuffer] = []  # guarded by _freed: buffers that the thread works on
        self._is_reserving = False  # guarded by it as well
        self._is_copying = False  # `between` of a copy may call what changes buffers
        self._freed = threading.Condition()
        self._direct: tuple[int, Layout] | None = None  # what could not be copied
        self._results: collections.deque[CopyEnded | Persisted | PersistFailed] = collections.deque()
        self._tasks: queue.SimpleQueue[_Write | _Reserve | None] = queue.SimpleQueue()
        self._n_expected = 0  # bytes that memory was taken for beforehand
        self._thread: threading.Thread | None = None
        self._copier: threading.Thread | None = None
        self._ends = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)

    @property
    def n_byte(self) -> int:
        """Bytes of shared memory in use."""
        return sum(buffer.n_byte for buffer in self._buffers)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something."""
        return self._woken

    def give_way(self) -> None:
        """Free copies while they exceed the limit, the older first; their files exist.

        To be called periodically: parameters grow between two checkpoints.
        """
        if self._is_copying or self._most_bytes is None or self.n_byte <= self._most_bytes():
            return
        with self._freed:
            free = [] if self._is_reserving else [b for b in self._buffers if b not in self._busy]
        for buffer in sorted(free, key=lambda buffer: buffer.number):
            if self.n_byte > self._most_bytes():
                logger.info("%s frees %d MiB of copies for its parameters", self._node, buffer.n_byte >> 20)
                buffer.close(unlink=True)

    def expect(self, n_byte: int) -> None:
        """Reserve memory for the next copy of about `n_byte` in the background, so that it need not wait.

        To be called periodically: nothing is reserved while a copy is made or files are written. Reserved
        amid a copy, the buffer would be another one than the copy fills.
        """
        with self._freed:
            if self._is_copying or self._busy or n_byte <= self._n_expected:
                return
            self._is_reserving = True
        self._n_expected = n_byte + n_byte // 8  # parameters grow; reserve in steps
        buffer = min(self._buffers, key=lambda buffer: buffer.number)
        self._do(_Reserve(buffer, n_byte, self._most_for(buffer)))

    def copy(
        self,
        number: int,
        header: Header,
        arrays: Mapping[str, NDArray[Any]],
        *,
        kept: int = -1,
        between: Callable[[], None] = nothing,
    ) -> MemoryPart | None:
        """Copy a part into shared memory: the only step that training waits for.

        Parameters
        ----------
        number
            Of the checkpoint.
        header, arrays
            What to save; the arrays may change when this returns something.
        kept
            A checkpoint whose copy is to stay where there is memory for two: it is in no file.
        between
            Called every now and then, also while both buffers are on their way to a file.

        Returns
        -------
        MemoryPart or None
            Where it is; None when there is no room in memory. Then the arrays must stay as they are until
            `persist` has written them, and `persist` returns only after that.
        """
        layout = Layout(Image(dict(header), arrays))
        with self._room_for(number, layout, kept, between) as buffer:
            return None if buffer is None else buffer.fill(number, layout, between)

    def begin(
        self,
        number: int,
        header: Header,
        arrays: Mapping[str, NDArray[Any]],
        begin: Callable[[Mapping[str, NDArray[Any]]], Callable[[], None]],
        *,
        kept: int = -1,
        between: Callable[[], None] = nothing,
    ) -> bool:
        """Begin to copy a part into shared memory while it changes; `poll` returns a `CopyEnded`.

        One at a time: the one before must have ended (`is_copying`).

        Parameters
        ----------
        number, header, kept, between
            As for `copy`.
        arrays
            Of the names, types and shapes of what is saved; they are not read.
        begin
            Takes the arrays of shared memory; what it returns fills them, called by another thread.

        Returns
        -------
        bool
            False when there is no room in memory; then `persist` writes `arrays`, as after `copy`.
        """
        layout = Layout(Image(dict(header), arrays))
        with self._room_for(number, layout, kept, between) as buffer:
            if buffer is None:
                return False
            fill = begin(layout.views(buffer.begin()))
            with self._freed:
                self._busy.append(buffer)
        work = number, buffer, layout.n_byte, fill
        self._copier = threading.Thread(target=self._copy, args=work, name="copies", daemon=True)
        self._copier.start()
        return True

    @property
    def is_copying(self) -> bool:
        """Whether what was begun has not ended; what it has become is known afterwards."""
        return self._copier is not None and self._copier.is_alive()

    def forget_direct(self) -> None:
        """Give up what could not be copied and is to be in no file."""
        self._direct = None

    def persist(self, number: int, url: str, *, between: Callable[[], None] = nothing) -> None:
        """Write the copy of checkpoint `number` to `url`; `poll` returns the result.

        Raises
        ------
        CheckpointError
            When that copy does not exist any more.
        """
        if self._direct is not None and self._direct[0] == number:
            layout, self._direct = self._direct[1], None
            self._tell(_write(number, url, layout.chunks(), between))
            return
        buffer = next((buffer for buffer in self._buffers if buffer.number == number), None)
        if buffer is None:
            raise CheckpointError(f"checkpoint {number} is no longer in memory, so it cannot be written")
        self._do(_Write(buffer, number, url))

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
        self._ends = True
        if self._copier is not None:
            self._copier.join()
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
        for buffer in self._buffers:
            buffer.close(unlink=unlink)
        os.close(self._woken)
        os.close(self._wake)

    def _free_buffers(self, between: Callable[[], None]) -> list[SharedBuffer]:
        """Return the buffers that are not being written, the older first; wait for one.

        The newer one is used where memory suffices for one buffer only: its content is in a file by then.
        """
        while True:
            with self._freed:
                free = [buffer for buffer in self._buffers if buffer not in self._busy]
                if free and not self._is_reserving:  # a reservation in progress is for this copy
                    return sorted(free, key=lambda buffer: buffer.number)
                self._freed.wait(_LOOK_EVERY_S)
            between()

    @contextlib.contextmanager
    def _room_for(
        self, number: int, layout: Layout, kept: int, between: Callable[[], None]
    ) -> Iterator[SharedBuffer | None]:
        """Give the buffer for a copy; None where there is no room: files come from the arrays then."""
        self._direct, self._n_expected = None, 0
        self._is_copying = True
        try:
            free = sorted(self._free_buffers(between), key=lambda each: each.number == kept != -1)
            buffer = next((each for each in free if self._make_room(each, layout.n_byte, between)), None)
            if buffer is None:
                why = "training waits until the file of checkpoint"
                logger.warning("%s: %s %d is written", self._node, why, number)
                self._direct = (number, layout)
            yield buffer
        finally:
            self._is_copying = False

    def _make_room(self, buffer: SharedBuffer, n_byte: int, between: Callable[[], None]) -> bool:
        try:
            buffer.reserve(n_byte, most_bytes=self._most_for(buffer), between=between)
        except OSError as error:
            why = error.strerror
            logger.warning("%s: no memory for a copy of %d MiB: %s", self._node, n_byte >> 20, why)
            return False
        return True

    def _most_for(self, buffer: SharedBuffer) -> int | None:
        if self._most_bytes is None:
            return None
        return self._most_bytes() - (self.n_byte - buffer.n_byte)

    def _do(self, task: _Write | _Reserve) -> None:
        """Pass a task to the thread."""
        with self._freed:
            self._busy.append(task.buffer)
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
            self._thread.start()

    # the thread that copies

    def _copy(self, number: int, buffer: SharedBuffer, n_byte: int, fill: Callable[[], None]) -> None:
        lower_priority()
        memory, why = None, ""
        try:
            fill()
            memory = buffer.complete(number, n_byte)
        except CheckpointError as error:
            why = str(error)
        with self._freed:
            self._busy.remove(buffer)
            self._freed.notify()
        self._tell(CopyEnded(number, memory, why))

    # the thread that writes files

    def _work(self) -> None:
        lower_priority()
        while task := self._tasks.get():
            result = self._carry_out(task)
            with self._freed:
                self._busy.remove(task.buffer)
                self._is_reserving = False
                self._freed.notify()
            if result is not None:
                self._free_old(result.number)
                self._tell(result)

    def _carry_out(self, task: _Write | _Reserve) -> Persisted | PersistFailed | None:
        match task:
            case _Write(buffer, number, url):
                if buffer.number != number:
                    return PersistFailed(number, url, f"checkpoint {number} is no longer in memory")
                result = _write(number, url, (buffer.image(),), self._go_on)
                if isinstance(result, Persisted):
                    buffer.seal(result.sha256)
                return result
            case _Reserve(buffer, n_byte, most_bytes):
                with contextlib.suppress(OSError, ValueError, CheckpointError):  # the copy reports the reason
                    buffer.reserve(n_byte, most_bytes=most_bytes, between=self._go_on)
                return None
            case _ as never:
                assert_never(never)

    def _go_on(self) -> None:
        if self._ends:
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


def _write(
    number: int, url: str, chunks: Iterable[NDArray[Any]], between: Callable[[], None]
) -> Persisted | PersistFailed:
    try:
        written = write_url(url, chunks, between=between)
    except CheckpointError as error:
        logger.warning("checkpoint %d: %s", number, error)
        return PersistFailed(number, url, str(error))
    return Persisted(number, url, written.sha256, written.n_byte)
