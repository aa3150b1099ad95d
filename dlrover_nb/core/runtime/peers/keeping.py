"""Keeps copies of other PS in the shared memory of this host.

There are two buffers for each owner, as the owner has: the last checkpoint that peers keep as a whole stays
until the next one is whole too. Their names and locks are those of any buffer of the run (`flash.names`), so
what a killed keeper leaves is read by others on its host, and freed with the run.

A copy counts when it is complete and its keeper has said so. Whatever fails (the owner ended, memory does not
suffice, /dev/shm is full) is told to the master and ends nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.runtime.checkpoints import run_name
from dlrover_nb.core.runtime.checkpoints.background import lower_priority
from dlrover_nb.core.runtime.checkpoints.buffer import SharedBuffer
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM
from dlrover_nb.core.runtime.peers.reading import read_into
from dlrover_nb.core.structs.training.checkpoints import PeerCopy
from dlrover_nb.core.structs.wire.copy_messages import CopyKept, KeepCopy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.runtime.exchange.sockets import Context, JobKeys
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

_log = logging.getLogger(__name__)

_NEEDED = "its memory is needed for what the node itself holds"


class CopyKeeper:
    """Keeps copies in a thread of its own, one after the other, until it is closed.

    Parameters
    ----------
    context, config, keys
        For the connections to owners; name of the node and of its run.
    tell
        Sends a message to the master, from any thread.
    most_bytes
        The most that copies may take now.
    shm
        Where shared memory lies.
    """

    def __init__(
        self,
        context: Context,
        config: NodeConfig,
        keys: JobKeys,
        *,
        tell: Callable[[CopyKept], None],
        most_bytes: Callable[[], int],
        shm: Path = SHM,
    ) -> None:
        self._context, self._keys, self._name = context, keys, config.node
        self._run, self._shm = run_name(config.spec.name, config.folder), shm
        self._tell, self._most_bytes = tell, most_bytes
        self._buffers: dict[str, tuple[SharedBuffer, SharedBuffer]] = {}  # of each owner
        self._kept: dict[SharedBuffer, tuple[str, CopyKept]] = {}  # token at the owner, and what was told
        self._tasks: queue.SimpleQueue[KeepCopy | None] = queue.SimpleQueue()  # None: look at the limit
        self._thread: threading.Thread | None = None
        self._ends = False

    @property
    def n_byte(self) -> int:
        """Bytes of shared memory in use."""
        return sum(buffer.n_byte for pair in tuple(self._buffers.values()) for buffer in pair)

    def keep(self, order: KeepCopy) -> None:
        """Begin to keep a copy; `tell` gets the result."""
        self._tasks.put(order)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="copies kept", daemon=True)
            self._thread.start()

    def give_way(self) -> None:
        """Let the thread free copies while they exceed the limit; to be called periodically."""
        if self._thread is not None and self.n_byte > self._most_bytes():
            self._tasks.put(None)

    def close(self) -> None:
        """End and free all copies; an unfinished one is given up."""
        self._ends = True
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
        for buffer in (each for pair in self._buffers.values() for each in pair):
            buffer.close(unlink=True)

    # the thread

    def _work(self) -> None:
        lower_priority()
        while not self._ends:
            task = self._tasks.get()
            if task is not None and not self._ends:
                self._send(self._keep(task))
            self._free_excess()

    def _keep(self, order: KeepCopy) -> CopyKept:
        number = order.memory.number
        for token, report in self._kept.values():
            if token == order.memory.token:
                return report  # a restarted master asks again
        try:
            copy = self._copied(order)
        except CheckpointError as error:
            _log.warning(
                "%s keeps no copy of checkpoint %d of %s: %s", self._name, number, order.owner, error
            )
            return CopyKept(self._name, order.owner, number, error=str(error))
        return CopyKept(self._name, order.owner, number, copy)

    def _copied(self, order: KeepCopy) -> PeerCopy:
        """Read the part into the buffer of its owner that does not hold the last whole checkpoint."""
        part = order.memory
        self._free_old({order.kept, part.number}, order.owner)
        buffer = min(self._pair(order.owner), key=lambda each: (each.number == order.kept != -1, each.number))
        self._kept.pop(buffer, None)
        self._reserve(buffer, part.n_byte)
        body = buffer.begin()
        source = order.endpoint, part
        reader = f"{self._name}.keeps"
        sha256 = read_into(body, self._context, self._keys, reader, source, between=self._go_on)
        memory = buffer.complete(part.number, part.n_byte)
        buffer.seal(sha256)
        copy = PeerCopy(self._name, memory, sha256)
        self._kept[buffer] = part.token, CopyKept(self._name, order.owner, part.number, copy)
        return copy

    def _pair(self, owner: str) -> tuple[SharedBuffer, SharedBuffer]:
        if owner not in self._buffers:
            a, b = (SharedBuffer(self._shm / f"{self._run}-{self._name}.{owner}-{side}") for side in "ab")
            self._buffers[owner] = a, b
        return self._buffers[owner]

    def _reserve(self, buffer: SharedBuffer, n_byte: int) -> None:
        most_bytes = self._most_bytes() - (self.n_byte - buffer.n_byte)
        try:
            buffer.reserve(n_byte, most_bytes=most_bytes, between=self._check_end)
        except OSError as error:
            raise CheckpointError(
                f"no memory for a copy of {n_byte / (1 << 20):.1f} MiB: {error.strerror}; give the node more "
                "memory, or set peer_copies to never"
            ) from error

    def _go_on(self) -> None:
        self._check_end()
        if self.n_byte > self._most_bytes():
            raise CheckpointError(_NEEDED)

    def _check_end(self) -> None:
        if self._ends:
            raise CheckpointError("the node ends")

    def _free_old(self, numbers: set[int], owner: str) -> None:
        """Free what belongs to no checkpoint of `numbers`; the buffers of `owner` are used again."""
        for other, pair in self._buffers.items():
            for buffer in pair:
                if other != owner and buffer.number not in numbers:
                    self._free(buffer)

    def _free_excess(self) -> None:
        """Free copies while they exceed the limit, the older first, and tell the master."""
        buffers = sorted((b for pair in self._buffers.values() for b in pair), key=lambda each: each.number)
        for buffer in buffers:
            if buffer.n_byte and self.n_byte > self._most_bytes():
                report = self._free(buffer)
                if report is not None:
                    _log.warning("%s frees the copy of checkpoint %d", self._name, report.checkpoint)
                    self._send(CopyKept(self._name, report.owner, report.checkpoint, error=_NEEDED))

    def _free(self, buffer: SharedBuffer) -> CopyKept | None:
        """Free a buffer; return the last report of its copy, if it held one."""
        buffer.close(unlink=True)
        _, report = self._kept.pop(buffer, ("", None))
        return report

    def _send(self, message: CopyKept) -> None:
        with contextlib.suppress(BackendError):  # the main thread meets it too, and ends by it
            self._tell(message)
