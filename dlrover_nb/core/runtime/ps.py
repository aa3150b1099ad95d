"""A parameter server: applies gradients and answers look-ups, one request at a time.

One thread owns the store, so that a request is atomic without locks: asynchronous training (ASP) in which
the gradients of two workers never mix within a row. Requests of another epoch than the one it was loaded for
are refused, since the sender's idea of who owns which row may be out of date. A repeated request is
recognised by its step and answered again without applying it twice. torch and pandas are never imported
here.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import zmq

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.models.table import dense_parameter_count
from dlrover_nb.core.runtime import checkpoint
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
from dlrover_nb.core.runtime.store import ParameterStore, owned_buckets
from dlrover_nb.core.runtime.wire import JobKeys, bind_router, decode, encode
from dlrover_nb.core.structs.messages import Load, Loaded, NodeConfig, Report, Save, Saved, Stop, ToNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.agent import Agent
    from dlrover_nb.core.runtime.wire import Context
    from dlrover_nb.core.structs.samples import NodeSample

    Arrays = list[NDArray[Any]]

_log = logging.getLogger(__name__)

NO_EPOCH = -1
_REQUESTS_IN_A_ROW = 64  # then look for orders of the master
_EXCHANGE_TYPES = ("int64", "float32", "float32", "int64")


class ParameterServer:
    """Serves one part of a job's parameters; see the module.

    Parameters
    ----------
    context
        Where its socket is made.
    config
        Who it is and what model it serves.
    agent, meter
        Its line to the master, and where its time is noted.
    """

    def __init__(self, context: Context, config: NodeConfig, agent: Agent, meter: Meter) -> None:
        self._config, self._agent, self._meter = config, agent, meter
        keys = JobKeys(config.public_key, config.secret_key)
        self._path = Path(config.folder) / f"{config.node}.{os.getpid()}"
        self._router, self.endpoint = bind_router(context, config.listen, self._path, keys)
        self._store: ParameterStore | None = None
        self._epoch = NO_EPOCH
        self._applied: dict[bytes, int] = {}  # last step of each connection
        self._stopped = False
        agent.obey, agent.describe = self._obey, self._describe
        agent.watch(self._router)

    def run(self) -> None:
        """Serve until the master says stop."""
        while not self._stopped:
            self._meter.switch(Part.IDLE)
            ready = self._agent.wait(1.0)
            self._meter.switch(Part.OTHER)
            if self._router in ready:
                for identity, frames in self._requests():
                    self._serve(identity, frames)

    def close(self) -> None:
        """Close the socket and remove its file, which ZeroMQ leaves behind."""
        self._agent.unwatch(self._router)
        self._router.close()
        self._path.unlink(missing_ok=True)

    def _obey(self, order: ToNode) -> None:
        match order:
            case Load():
                self._load(order)
            case Save():
                self._agent.send(self._save(order))
            case Stop():
                self._stopped = True
            case _:
                _log.warning("%s: %s is no order for a PS", self._config.node, type(order).__name__)

    def _describe(self, sample: NodeSample) -> Report:
        if self._store is None:
            return Report(sample)
        mib = self._store.n_byte / (1 << 20)
        return Report(replace(sample, parameter_mib=mib, n_row=self._store.n_row))

    def _load(self, load: Load) -> None:
        """Serve another part, or the same under a new epoch; a damaged file is told and ends nothing."""
        self._epoch, self._store = NO_EPOCH, None  # frees the memory before the new store takes its own
        try:
            store = self._filled_store(load)
        except CheckpointError as error:
            _log.warning("%s: %s", self._config.node, error)
            self._agent.send(Loaded(self._config.node, load.ps_epoch, str(error)))
            return
        self._store, self._epoch, self._applied = store, load.ps_epoch, {}
        _log.info(
            "%s serves part %d of %d, epoch %d", self._config.node, load.index, load.n_ps, load.ps_epoch
        )
        self._agent.send(Loaded(self._config.node, load.ps_epoch))

    def _filled_store(self, load: Load) -> ParameterStore:
        """Return the store of a part, with what the files that the order names hold of it."""
        store = self._new_store(load)
        for path, sha256 in load.files:
            part = checkpoint.read(Path(path), sha256, between=self._agent.tick)
            store.load(part, owned_buckets(load.bucket_owner, load.index))
        return store

    def _new_store(self, load: Load) -> ParameterStore:
        features, model = self._config.features, self._config.spec.model
        n_dense = dense_parameter_count(model, len(features.categorical), len(features.numeric))
        return ParameterStore(model, features.n_table_row, n_dense, index=load.index, n_ps=load.n_ps)

    def _save(self, save: Save) -> Saved:
        """Write the checkpoint; a failure is reported and does not end the PS, which holds the parameters."""
        answer = Saved(self._config.node, save.checkpoint, save.file, "", 0, 0)
        if self._store is None:
            return replace(answer, error="nothing was loaded yet, so there is nothing to save")
        try:
            written = checkpoint.write(Path(save.file), self._store.export(), between=self._agent.tick)
        except CheckpointError as error:
            _log.warning("%s: %s", self._config.node, error)
            return replace(answer, error=str(error))
        return replace(answer, sha256=written.sha256, n_row=self._store.n_row, n_byte=written.n_byte)

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
            _log.warning("%s refused a request of %r: %s", self._config.node, identity, error)
            answer, beside = Refused(str(error)), []
        self._router.send_multipart([identity, *encode(answer, beside)], copy=False)
        self._meter.switch(Part.OTHER)

    def _answer(self, identity: bytes, message: object, arrays: Arrays) -> tuple[object, Arrays]:
        if not isinstance(message, ToPs):
            raise WireError(f"{type(message).__name__} is no request to a PS")
        if self._store is None or message.ps_epoch != self._epoch:
            return StaleEpoch(self._epoch), []
        match message:
            case Exchange():
                return self._exchange(identity, message, arrays, self._store)
            case InitDense():
                self._store.init_dense(*_expect(arrays, ("float32",)))
                return DenseReady(self._epoch), []
            case _:
                assert_never(message)

    def _exchange(
        self, identity: bytes, request: Exchange, arrays: Arrays, store: ParameterStore
    ) -> tuple[object, Arrays]:
        push_rows, row_gradients, dense_gradient, pull_rows = _expect(arrays, _EXCHANGE_TYPES)
        if request.step > self._applied.get(identity, -1):
            self._meter.switch(Part.UPDATE)
            if len(push_rows):
                store.push(push_rows, row_gradients)
            if len(dense_gradient):
                store.push_dense(dense_gradient)
            self._applied[identity] = request.step
        self._meter.switch(Part.LOOKUP)
        rows, dense = store.pull(pull_rows), store.dense  # copies: what is on its way must not change
        self._meter.switch(Part.OTHER)
        self._meter.count()
        return Exchanged(self._epoch, request.step), [rows, dense]


def _expect(arrays: Arrays, types: tuple[str, ...]) -> Arrays:
    """Return `arrays` when they are of these types."""
    found = tuple(array.dtype.name for array in arrays)
    if found != types:
        raise WireError(f"expected arrays of {types}, got {found}")
    return arrays
