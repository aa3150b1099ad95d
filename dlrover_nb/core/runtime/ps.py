"""A parameter server: obeys the master, and lets `serving` answer the workers in between.

One thread does both, one thing at a time. torch and pandas are never imported here.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import psutil

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.models.table import dense_parameter_count
from dlrover_nb.core.runtime import checkpoint
from dlrover_nb.core.runtime.flash import FlashCheckpoint, Persisted, PersistFailed
from dlrover_nb.core.runtime.meter import Meter, Part
from dlrover_nb.core.runtime.serving import Serving
from dlrover_nb.core.runtime.store import ParameterStore, owned_buckets
from dlrover_nb.core.runtime.wire import JobKeys, bind_router
from dlrover_nb.core.structs.messages import (
    Adjust,
    Copied,
    Forget,
    Load,
    Loaded,
    NodeConfig,
    Report,
    Save,
    Saved,
    Stop,
    ToNode,
)

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.agent import Agent
    from dlrover_nb.core.runtime.checkpoint import Filled
    from dlrover_nb.core.runtime.wire import Context
    from dlrover_nb.core.structs.samples import NodeSample

_log = logging.getLogger(__name__)

_MIB = 1 << 20


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
        self._serving = Serving(self._router, meter, config.node, config.spec)
        self._flash = FlashCheckpoint(
            config.spec.name, config.folder, config.node, most_bytes=self._spare_bytes
        )
        self._n_row_saved: dict[int, int] = {}  # of checkpoints that are being written
        self._stopped = False
        agent.obey, agent.describe = self._obey, self._describe
        agent.watch(self._router)
        agent.wake_for(self._flash.fileno())

    def run(self) -> None:
        """Serve until the master says stop."""
        while not self._stopped:
            self._meter.switch(Part.IDLE)
            ready = self._agent.wait(1.0)
            self._meter.switch(Part.OTHER)
            if self._router in ready:
                self._serving.serve()
            self._tell_saved()

    def close(self) -> None:
        """Close the socket and remove its file, which ZeroMQ leaves behind.

        A PS that fails leaves its last copies to the one that follows it.
        """
        self._agent.wake_no_more_for(self._flash.fileno())
        self._flash.close(unlink=self._stopped)
        self._agent.unwatch(self._router)
        self._router.close()
        self._path.unlink(missing_ok=True)

    def _obey(self, order: ToNode) -> None:
        match order:
            case Load():
                self._load(order)
            case Save():
                self._save(order)
            case Forget(worker=worker):
                self._serving.forget(worker)
            case Adjust(sizes=sizes):
                self._serving.adjust(dict(sizes))
            case Stop():
                self._stopped = True
            case _:
                _log.warning("%s: %s is no order for a PS", self._config.node, type(order).__name__)

    def _describe(self, sample: NodeSample) -> Report:
        """Add what the parameters take; copies of them are left out, as they give way to parameters."""
        sample = replace(sample, memory_mib=max(0.0, sample.memory_mib - self._flash.n_byte / _MIB))
        store = self._serving.store
        if store is None:
            return Report(sample, n_dropped=self._serving.n_dropped)
        sample = replace(sample, parameter_mib=store.n_byte / _MIB, n_row=store.n_row)
        return Report(sample, n_dropped=self._serving.n_dropped)

    def _spare_bytes(self) -> int:
        """Return what the node's memory leaves for copies of its parameters."""
        n_used = psutil.Process().memory_info().rss - self._flash.n_byte
        return self._config.memory_mib * _MIB - n_used

    def _load(self, load: Load) -> None:
        """Serve another part, or the same under a new epoch; a damaged file is told and ends nothing."""
        self._serving.close()  # frees the memory before the new store takes its own
        try:
            filled = self._filled_store(load)
        except CheckpointError as error:
            _log.warning("%s: %s", self._config.node, error)
            self._agent.send(Loaded(self._config.node, load.ps_epoch, str(error)))
            return
        self._serving.open(filled.store, load.ps_epoch)
        _log.info(
            "%s serves part %d of %d, epoch %d; of %d parts %d were in memory",
            self._config.node,
            load.index,
            load.n_ps,
            load.ps_epoch,
            len(load.parts),
            filled.n_from_memory,
        )
        self._agent.send(Loaded(self._config.node, load.ps_epoch))

    def _filled_store(self, load: Load) -> Filled:
        """Return the store of a part, with what the checkpoint that the order names holds of it."""
        owned = owned_buckets(load.bucket_owner, load.index)
        return checkpoint.fill(lambda: self._new_store(load), load.parts, owned, between=self._agent.tick)

    def _new_store(self, load: Load) -> ParameterStore:
        features, model = self._config.features, self._config.spec.model
        n_dense = dense_parameter_count(model, len(features.categorical), len(features.numeric))
        return ParameterStore(model, features.n_table_row, n_dense, index=load.index, n_ps=load.n_ps)

    def _save(self, save: Save) -> None:
        """Copy the part, and have it written; a failure is told and does not end the PS."""
        store, node = self._serving.store, self._config.node
        if store is None:
            why = "nothing was loaded yet, so there is nothing to save"
            self._agent.send(Copied(node, save.checkpoint))
            self._agent.send(Saved(node, save.checkpoint, save.file, "", 0, 0, why))
            return
        self._n_row_saved[save.checkpoint] = store.n_row
        image = checkpoint.image_of(store.export())
        memory = self._flash.copy(save.checkpoint, image.header, image.arrays, between=self._agent.tick)
        self._flash.persist(save.checkpoint, save.file, between=self._agent.tick)
        self._agent.send(Copied(node, save.checkpoint, memory))

    def _tell_saved(self) -> None:
        """Tell what became of files."""
        for done in self._flash.poll():
            answer = Saved(
                self._config.node, done.number, done.url, "", self._n_row_saved.pop(done.number), 0
            )
            match done:
                case Persisted():
                    answer = replace(answer, sha256=done.sha256, n_byte=done.n_byte)
                case PersistFailed():
                    answer = replace(answer, error=done.why)
                case _ as never:
                    assert_never(never)
            self._agent.send(answer)
