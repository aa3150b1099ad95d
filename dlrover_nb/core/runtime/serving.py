"""The data plane of a parameter server: what workers ask, one request at a time, on the store of its epoch.

One thread owns the store, so that a request is atomic without locks: in asynchronous training (ASP) the
gradients of two workers never mix within a row. Requests of another epoch than the one that is served are
refused, since the sender's idea of who owns which row may be out of date. A repeated request is recognised by
its step and answered again without applying it twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, assert_never

import zmq

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange import (
    DenseReady,
    Exchange,
    Exchanged,
    InitDense,
    Refused,
    StaleEpoch,
    ToPs,
)
from dlrover_nb.core.runtime.meter import Meter, Part
from dlrover_nb.core.runtime.wire import decode, encode, n_byte

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.runtime.wire import Socket

    Arrays = list[NDArray[Any]]

_log = logging.getLogger(__name__)

NO_EPOCH = -1
_REQUESTS_IN_A_ROW = 64  # then look for orders of the master
_EXCHANGE_TYPES = ("int64", "float32", "float32", "int64")


class Serving:
    """Answers workers from a store.

    Parameters
    ----------
    router
        Where requests come from; it belongs to the caller.
    meter
        Where time is noted.
    name
        Of the node, for the log.
    """

    def __init__(self, router: Socket, meter: Meter, name: str) -> None:
        self._router, self._meter, self._name = router, meter, name
        self.store: ParameterStore | None = None
        self.epoch = NO_EPOCH
        self._applied: dict[bytes, int] = {}  # last step of each connection

    def open(self, store: ParameterStore, epoch: int) -> None:
        """Serve `store` under `epoch` from now on."""
        self.store, self.epoch, self._applied = store, epoch, {}

    def close(self) -> None:
        """Serve nothing, and let go of the store."""
        self.store, self.epoch = None, NO_EPOCH

    def serve(self) -> None:
        """Answer the requests that are there."""
        for identity, frames in self._requests():
            self._serve(identity, frames)

    def _requests(self) -> Iterator[tuple[bytes, list[zmq.Frame]]]:
        for _ in range(_REQUESTS_IN_A_ROW):
            try:
                identity, *frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            yield identity.bytes, frames

    def _serve(self, identity: bytes, frames: list[zmq.Frame]) -> None:
        try:
            message, arrays = decode(frames)
            answer, beside = self._answer(identity, message, arrays)
        except WireError as error:
            _log.warning("%s refused a request of %r: %s", self._name, identity, error)
            answer, beside = Refused(str(error)), []
        out = encode(answer, beside)
        self._router.send_multipart([identity, *out], copy=False)
        self._meter.count_bytes(n_byte(out), n_byte(frames))
        self._meter.switch(Part.OTHER)

    def _answer(self, identity: bytes, message: object, arrays: Arrays) -> tuple[object, Arrays]:
        if not isinstance(message, ToPs):
            raise WireError(f"{type(message).__name__} is no request to a PS")
        if self.store is None or message.ps_epoch != self.epoch:
            return StaleEpoch(self.epoch), []
        match message:
            case Exchange():
                return self._exchange(identity, message, arrays, self.store)
            case InitDense():
                self.store.init_dense(*_expect(arrays, ("float32",)))
                return DenseReady(self.epoch), []
            case _:
                assert_never(message)

    def _exchange(
        self, identity: bytes, request: Exchange, arrays: Arrays, store: ParameterStore
    ) -> tuple[object, Arrays]:
        push_rows, row_gradients, dense_gradient, pull_rows = _expect(arrays, _EXCHANGE_TYPES)
        update_s = 0.0
        if request.step > self._applied.get(identity, -1):
            self._meter.switch(Part.UPDATE)
            if len(push_rows):
                store.push(push_rows, row_gradients)
            if len(dense_gradient):
                store.push_dense(dense_gradient)
            self._applied[identity] = request.step
            update_s = self._meter.switch(Part.LOOKUP)
        self._meter.switch(Part.LOOKUP)
        rows, dense = store.pull(pull_rows), store.dense  # copies: what is on its way must not change
        lookup_s = self._meter.switch(Part.OTHER)
        self._meter.count()
        return Exchanged(self.epoch, request.step, update_s, lookup_s), [rows, dense]


def _expect(arrays: Arrays, types: tuple[str, ...]) -> Arrays:
    """Return `arrays` when they are of these types."""
    found = tuple(array.dtype.name for array in arrays)
    if found != types:
        raise WireError(f"expected arrays of {types}, got {found}")
    return arrays
