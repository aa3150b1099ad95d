"""A PS's wait for requests that workers ring for: the compiled kernel serves meanwhile what it can.

What is left (`kernels.bell_requests.Outcome`) is served by `serving`, with the code that serves messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.core.runtime.kernels.bell_requests import Outcome, ring, wait
from dlrover_nb.core.runtime.process.time_accounting import Part, TimeAccounting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.message_decoder import MessageDecoder
    from dlrover_nb.core.runtime.exchange.push_pull import Exchange
    from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
    from dlrover_nb.core.runtime.kernels.plain_server import PlainServer
    from dlrover_nb.core.runtime.store import ParameterStore


class RungRequests:
    """Requests of all bells of a PS.

    Parameters
    ----------
    slabs
        Of the workers, with their bells.
    accounting
        Accounting of the time of the node.
    decoder
        Counts what is no request.

    Attributes
    ----------
    n_thread
        Threads that may serve at the same time, where a kernel serves without Python.
    """

    def __init__(self, slabs: AttachedSlabs, accounting: TimeAccounting, decoder: MessageDecoder) -> None:
        self._slabs, self._accounting, self._decoder = slabs, accounting, decoder
        self.n_thread = 1

    def wait(
        self, store: ParameterStore | None, epoch: int, descriptors: Sequence[int], timeout_s: float
    ) -> None:
        """Wait for requests that are left to Python, for a descriptor, or the time-out; serve all others."""
        bells = list(self._slabs.bells.values())
        server = None if store is None else store.plain_server(epoch)
        if store is None or server is None:
            self._count_late(wait(bells, descriptors, timeout_s))
            return
        server.serve(bells, descriptors, timeout_s, n_thread=self.n_thread)
        self._settle(store, server)

    def take(self) -> Iterator[tuple[bytes, Exchange, list[NDArray[Any]]]]:
        """Return the requests that were left, each with its connection and its arrays."""
        for identity, bell in self._slabs.bells.items():
            if not bell.pending:
                continue
            try:
                request, arrays = self._slabs.rung(identity)
            except (WireError, InvalidValueError) as error:
                self._decoder.drop(str(error), identity)
            else:
                yield identity, request, arrays
            bell.pending = Outcome.ANSWERED

    def answers_again(self, identity: bytes, step: int) -> bool:
        """Repeat the answer to a request, if it has one: the slab may hold a later request."""
        bell = self._slabs.bells[identity]
        if step > bell.step:
            return False
        ring(bell)
        return True

    def creates(self, identity: bytes, rows: NDArray[Any], store: ParameterStore, epoch: int) -> bool:
        """Create rows, if the map kept the kernel from it; whether it has served the request then."""
        bell = self._slabs.bells[identity]
        if bell.pending != Outcome.MAP_GROWS:
            return False
        self._accounting.switch(Part.UPDATE)
        store.create_rows(rows)
        if (server := store.plain_server(epoch)) is None:
            return False
        server.serve_one(bell)
        self._settle(store, server)
        return bool(bell.pending == Outcome.ANSWERED)

    def _settle(self, store: ParameterStore, server: PlainServer) -> None:
        """Take over what a kernel did in the stretch that ends now."""
        store.settle(server)
        did = server.parameters
        took_s = self._count_late(did.late_s)
        if did.n_answered and took_s > 0:
            self._accounting.share(Part.UPDATE, min(1.0, did.update_s / took_s))
            self._accounting.share(Part.LOOKUP, min(1.0, did.lookup_s / took_s))
        self._accounting.count(n_iter=did.n_answered)

    def _count_late(self, late_s: float) -> float:
        """Count as work how long requests waited for this process alone; return the seconds of the stretch.

        Its host did not run it meanwhile: its workers wait for it, though it believes to be idle.
        """
        took_s = self._accounting.switch(self._accounting.part)
        if late_s and took_s > 0:
            self._accounting.share(Part.OTHER, min(1.0, late_s / took_s))
        return took_s
