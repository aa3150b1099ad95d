"""Messages that ask for what a plain request by bell does, served by the kernel and not read by Python.

Almost every message of asynchronous training is one: gradients at the job's own rate, rows to return, and all
arrays in float32. To read it, serve it and encode its answer in Python took a quarter of the CPU time of an
exchange over TCP. Here the kernel does that (`kernels.plain_messages`); sockets and seals stay as they are.

All other messages, and those that the kernel leaves, are for `serving`: nothing was done for them here. One
that repeats a step that was applied is one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.runtime.kernels.plain_messages import PlainMessage
from dlrover_nb.core.runtime.process.time_accounting import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.runtime.kernels.bell_requests import Reader
    from dlrover_nb.core.runtime.kernels.plain_server import PlainServer
    from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
    from dlrover_nb.core.runtime.store import ParameterStore


class PlainExchanges:
    """What serves them, one at a time.

    Parameters
    ----------
    accounting
        Accounting of the time of the node.
    """

    def __init__(self, accounting: TimeAccounting) -> None:
        self._accounting, self._message = accounting, PlainMessage()
        self._server: PlainServer | None = None

    def read(self, frames: Sequence[Any], store: ParameterStore | None, epoch: int) -> int | None:
        """Return the step of a message that may be plain, and of this epoch; None: it is for `serving`."""
        server = self._server = None if store is None else store.plain_server(epoch)
        if server is None or not self._message.read(server, frames) or self._message.request.epoch != epoch:
            return None
        return int(self._message.request.step)

    def respond(self, store: ParameterStore, reader: Reader, *, is_copied: bool) -> list[Any] | None:
        """Serve the message that was read, and return the frames of its answer; None: it is for `serving`.

        Parameters
        ----------
        reader
            Of its connection.
        is_copied
            As of `ParameterStore.new_answer`.
        """
        server = self._server
        assert server is not None, "a message was read before"
        out = store.new_answer(self._message.request.n_pull, is_copied=is_copied)
        self._accounting.switch(Part.UPDATE)
        frames = self._message.respond(server, out, reader)
        took_s = self._accounting.switch(Part.OTHER)
        store.settle(server)  # it may have created rows, whatever became of the rest
        if frames is None:
            return None
        lookup_s = self._message.answer.lookup_s
        self._accounting.share(Part.LOOKUP, min(1.0, lookup_s / took_s) if took_s > 0 else 0.0)
        self._accounting.count()
        return frames
