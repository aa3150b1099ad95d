"""A parameter server: obeys the master, and lets `serving` answer the workers in between.

One thread does both, one thing at a time. torch and pandas are never imported here.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.models.table import dense_parameter_count
from dlrover_nb.core.runtime import checkpoint
from dlrover_nb.core.runtime.meter import Meter, Part
from dlrover_nb.core.runtime.serving import Serving
from dlrover_nb.core.runtime.store import ParameterStore, owned_buckets
from dlrover_nb.core.runtime.wire import JobKeys, bind_router
from dlrover_nb.core.structs.messages import (
    Copied,
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
    from dlrover_nb.core.runtime.wire import Context
    from dlrover_nb.core.structs.samples import NodeSample

_log = logging.getLogger(__name__)


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
        self._serving = Serving(self._router, meter, config.node)
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
                self._serving.serve()

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
                saved = self._save(order)
                self._agent.send(Copied(self._config.node, order.checkpoint))
                self._agent.send(saved)
            case Stop():
                self._stopped = True
            case _:
                _log.warning("%s: %s is no order for a PS", self._config.node, type(order).__name__)

    def _describe(self, sample: NodeSample) -> Report:
        store = self._serving.store
        if store is None:
            return Report(sample)
        return Report(replace(sample, parameter_mib=store.n_byte / (1 << 20), n_row=store.n_row))

    def _load(self, load: Load) -> None:
        """Serve another part, or the same under a new epoch; a damaged file is told and ends nothing."""
        self._serving.close()  # frees the memory before the new store takes its own
        try:
            store = self._filled_store(load)
        except CheckpointError as error:
            _log.warning("%s: %s", self._config.node, error)
            self._agent.send(Loaded(self._config.node, load.ps_epoch, str(error)))
            return
        self._serving.open(store, load.ps_epoch)
        _log.info(
            "%s serves part %d of %d, epoch %d", self._config.node, load.index, load.n_ps, load.ps_epoch
        )
        self._agent.send(Loaded(self._config.node, load.ps_epoch))

    def _filled_store(self, load: Load) -> ParameterStore:
        """Return the store of a part, with what the files that the order names hold of it."""
        store = self._new_store(load)
        for source in load.parts:
            part = checkpoint.read(Path(source.url), source.sha256, between=self._agent.tick)
            store.load(part, owned_buckets(load.bucket_owner, load.index))
        return store

    def _new_store(self, load: Load) -> ParameterStore:
        features, model = self._config.features, self._config.spec.model
        n_dense = dense_parameter_count(model, len(features.categorical), len(features.numeric))
        return ParameterStore(model, features.n_table_row, n_dense, index=load.index, n_ps=load.n_ps)

    def _save(self, save: Save) -> Saved:
        """Write the checkpoint; a failure is reported and does not end the PS, which holds the parameters."""
        answer = Saved(self._config.node, save.checkpoint, save.file, "", 0, 0)
        store = self._serving.store
        if store is None:
            return replace(answer, error="nothing was loaded yet, so there is nothing to save")
        try:
            written = checkpoint.write(Path(save.file), store.export(), between=self._agent.tick)
        except CheckpointError as error:
            _log.warning("%s: %s", self._config.node, error)
            return replace(answer, error=str(error))
        return replace(answer, sha256=written.sha256, n_row=store.n_row, n_byte=written.n_byte)
