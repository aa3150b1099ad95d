"""A parameter server: executes orders of the master and serves requests of workers in between.

One thread does everything, one thing at a time: requests (`serving`), orders, and chunks to and from other PS
(`ps_migration`). Other threads copy checkpoints into memory and write them (`flash`); it fixes their content.
torch and pandas are never imported here.

Of the load of its buckets only windows that lie within one epoch are reported: in another group a PS has
other buckets.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.runtime.checkpoints import CopyEnded, FlashCheckpoint, Persisted, ps_checkpoint
from dlrover_nb.core.runtime.checkpoints.increments import Changes
from dlrover_nb.core.runtime.exchange.sealed_routers import sealed_router
from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, bind_router
from dlrover_nb.core.runtime.peers import read_copy
from dlrover_nb.core.runtime.process.limits import MOST_USED, thread_count
from dlrover_nb.core.runtime.process.time_accounting import Part, TimeAccounting
from dlrover_nb.core.runtime.ps.chunk_sender import ChunkSender
from dlrover_nb.core.runtime.ps.migration import PsMigration
from dlrover_nb.core.runtime.ps.serving import Serving
from dlrover_nb.core.runtime.ps.update_ages import EVERY_S as AGES_EVERY_S
from dlrover_nb.core.runtime.store import ParameterStore, owned_buckets
from dlrover_nb.core.runtime.store.cut import NOT_FINITE
from dlrover_nb.core.structs.training.bucket_loads import BucketLoad
from dlrover_nb.core.structs.training.resize_messages import Resize
from dlrover_nb.core.structs.wire.copy_messages import Cut
from dlrover_nb.core.structs.wire.messages import (
    Adjust,
    Copied,
    Forget,
    Forgotten,
    Hello,
    Load,
    Loaded,
    MoveCancel,
    MoveEnd,
    MoveOut,
    Report,
    Save,
    Saved,
    Stop,
    ToNode,
)
from dlrover_nb.core.structs.wire.mitigation_messages import Backups, SetRate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.checkpoints import PersistFailed
    from dlrover_nb.core.runtime.exchange.sockets import Context
    from dlrover_nb.core.runtime.process.agent import Agent
    from dlrover_nb.core.runtime.store.cut import Cut as StoreCut
    from dlrover_nb.core.structs.training.checkpoints import CopySource, MemoryPart
    from dlrover_nb.core.structs.training.gradient_ages import GradientAges
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

    Marks = NDArray[np.bool_]

_log = logging.getLogger(__name__)

_MIB = 1 << 20
_LOOK_EVERY_S = 0.01  # for the end of a copy
_NOTHING_TO_SAVE = "no parameters are loaded, so there is nothing to save"
_NO_MEMORY = "its memory does not suffice for a copy of its parameters; give PS more of it"
_COPY_AT_ONCE_BYTES = 4 << 20  # less is copied in a millisecond or two: a thread of its own costs more


EVERY_S = 10.0  # about 1 KiB each
NO_PART = -1


class LoadWindow:
    """The window of one PS; it is extended by each of its reports."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._window_s = self._busy_s = 0.0

    def extend(self, sample: NodeSample, store: ParameterStore | None, epoch: int) -> BucketLoad | None:
        """Add the window of a sample; return the load when it is due.

        Parameters
        ----------
        sample
            Of the time since the last call.
        store, epoch
            What the PS serves now; a `store` of None: nothing.
        """
        if store is None or epoch != self._epoch:
            self._begin(store, epoch)
            return None
        self._window_s += sample.window_s
        self._busy_s += busy_s(sample)
        if self._window_s < EVERY_S:
            return None
        load = _load(store, epoch, self._window_s, self._busy_s)
        self._window_s = self._busy_s = 0.0
        return load

    def _begin(self, store: ParameterStore | None, epoch: int) -> None:
        self._epoch = None if store is None else epoch
        self._window_s = self._busy_s = 0.0
        if store is not None:
            store.served.take()


def busy_s(sample: NodeSample) -> float:
    """Return the seconds of a window in which a PS did not wait for requests."""
    return max(0.0, sample.n_iter * (sample.split.total_s - sample.split.idle_s))


def _load(store: ParameterStore, epoch: int, window_s: float, busy: float) -> BucketLoad:
    n_row, n_served = store.n_held, store.served.take()
    buckets = np.flatnonzero(n_row + n_served)
    counts = (tuple(map(int, each)) for each in (buckets, n_row[buckets], n_served[buckets]))
    return BucketLoad(epoch, window_s, busy, *counts)


class ChangedRows:
    """What the cuts of a store told, added up since the one whose file was written."""

    def __init__(self) -> None:
        self._since: int | None = None  # None: no file, or rows have moved since
        self._rows: Marks = np.empty(0, np.bool_)
        self._last = -1

    def on_cut(self, number: int, changed: Marks | None) -> None:
        """Add the rows that changed before a cut, and take that array; None: it is not known which."""
        self._last = number
        if changed is None:
            self._since = None
        elif self._since is not None:
            changed[: len(self._rows)] |= self._rows
            self._rows = changed

    def on_written(self, number: int) -> None:
        """Note that the file of a cut was written: what comes after it is added up from now on.

        Where there was another cut meanwhile, what changed between the two is mixed with what was before.
        """
        self._since = number if number == self._last else None
        self._rows = np.empty(0, np.bool_)

    def up_to(self, number: int) -> Changes | None:
        """Return what has changed from the last file to the last cut, if that is `number`."""
        if self._since is None or number != self._last:
            return None
        return Changes(self._since, self._rows)


class ParameterServer:
    """Serves one part of a job's parameters; see the module.

    Parameters
    ----------
    context
        Where its sockets are made.
    config
        Name of the node and the model that it serves.
    agent, accounting
        Connection to the master, and accounting of the time of the node.

    Attributes
    ----------
    is_leaving
        Whether its cluster ends it soon; each report says so, and the master moves its parameters away.
    """

    def __init__(
        self, context: Context, config: NodeConfig, agent: Agent, accounting: TimeAccounting
    ) -> None:
        self._config, self._agent, self._accounting = config, agent, accounting
        self._name, job, self._context = config.node, config.spec.name, context
        self._keys = keys = JobKeys(config.public_key, config.secret_key)
        self._path = Path(config.folder) / f"{config.node}.{os.getpid()}"
        self._router, self.endpoint = bind_router(context, config.listen, self._path, keys)
        self._sealed = sealed_router(context, config, self.endpoint)
        self._slabs = AttachedSlabs()
        self._serving = Serving(
            self._router, accounting, config.node, config.spec, self._slabs, sealed=self._sealed
        )
        self._serving.rung.n_thread = thread_count(config.cpu)
        features, model = config.features, config.spec.model
        self._n_dense = dense_parameter_count(model, len(features.categorical), len(features.numeric))
        self._migration = PsMigration(config.node, self._n_dense, self._new_store, between=agent.tick)
        self._serving.take_chunk = self._migration.receive
        self._chunk_sender = ChunkSender(context, keys, f"{config.node}/{os.getpid()}", agent)
        self._flash = FlashCheckpoint(job, config.folder, config.node, most_bytes=self._spare_bytes)
        self._load_window, self._ages_window_s = LoadWindow(), 0.0
        self._index, self._rate = NO_PART, 1.0  # of the model's learning rate
        self._files: dict[int, Saved] = {}  # answers for checkpoints that are being written to a file
        self._copying: tuple[StoreCut, Save, Saved] | None = None  # with the answer for its file
        self._changed = ChangedRows()
        self._stopped = self.is_leaving = False
        self._loaded = Loaded(config.node, 0)  # of the part that it serves; 0: of none
        agent.obey, agent.describe, agent.introduce = self._obey, self._describe, self._introduce
        agent.watch(self._router)
        if self._sealed is not None:
            agent.watch(self._sealed.socket)
        agent.watch(self._flash.fileno())

    def run(self) -> None:
        """Serve until the master orders a stop."""
        while not self._stopped:
            self._accounting.switch(Part.IDLE)
            self._agent.sleep = self._serving.wait if self._slabs.bells else None
            ready = self._agent.wait(min(self._migration.wait_s(time.monotonic()), 1.0))
            self._accounting.switch(Part.OTHER)
            self._serving.serve_rung()
            if self._router in ready:
                self._serving.serve()
            if self._sealed is not None and self._sealed.socket in ready:
                self._serving.serve_sealed()
            for endpoint, answer in self._chunk_sender.answers(ready):
                self._migration.acknowledge(endpoint, answer, time.monotonic())
            self._move_on()
            self._report_saved()

    def leave(self) -> None:
        """Tell the master that this PS is ended soon, and serve on meanwhile."""
        self.is_leaving = True
        self._agent.leave()

    def close(self) -> None:
        """Close the sockets and remove the socket file, which ZeroMQ does not delete.

        A PS that fails leaves its last copies in memory for its successor.
        """
        self._agent.unwatch(self._flash.fileno())
        if self._copying is not None:
            self._copying[0].stop()
        self._flash.close(unlink=self._stopped)
        self._slabs.close()
        self._chunk_sender.close()
        self._agent.unwatch(self._router)
        self._router.close()
        if self._sealed is not None:
            self._agent.unwatch(self._sealed.socket)
            self._sealed.close()
        self._path.unlink(missing_ok=True)

    def _obey(self, order: ToNode) -> None:  # noqa: C901 - one flat branch per order
        match order:
            case Load():
                self._load(order)
            case Save():
                with self._agent.long_work("saves its part of a checkpoint"):
                    self._save(order)
            case MoveOut():
                self._migration.start_sending(order, time.monotonic())
            case MoveEnd():
                self._end_move(order)
            case MoveCancel(move=move):
                self._migration.cancel(move)
                self._chunk_sender.close()
            case Forget(worker=worker):
                self._serving.forget(worker)
                self._agent.send(Forgotten(self._name, worker))
            case Adjust(sizes=sizes, accumulate=accumulate):
                self._serving.adjust(dict(sizes), dict(accumulate))
            case Backups(n=n):
                self._serving.set_backups(n)
            case SetRate(factor=factor):
                self._scale_rate(factor)
            case Resize():
                self._resize(order)
            case Stop():
                self._stopped = True
            case _:
                _log.warning("%s ignored %s: it is not an order for a PS", self._name, type(order).__name__)

    def _scale_rate(self, factor: float) -> None:
        """Apply all gradients from now on with `factor` times the model's learning rate."""
        _log.info("%s: %g times the learning rate", self._name, factor)
        self._rate = factor
        for store in (self._serving.store, self._migration.store):
            if store is not None:
                store.scale_rate(factor)

    def _resize(self, order: Resize) -> None:
        """Keep within another limit: copies that exceed it are freed first."""
        self._config = replace(self._config, cpu=order.cpu, memory_mib=order.memory_mib)
        self._serving.rung.n_thread = thread_count(order.cpu)
        self._flash.give_way()
        self._agent.resize(order)

    def _introduce(self, hello: Hello) -> Hello:
        return replace(hello, ps_epoch=self._loaded.ps_epoch)

    def _describe(self, sample: NodeSample) -> Report:
        """Add the memory of parameters; leave out what is not its own.

        Copies of parameters are freed when parameters need memory, and slabs are of workers.
        """
        self._flash.give_way()
        self._slabs.release()
        n_other = self._flash.n_byte + self._slabs.n_byte
        sample = replace(sample, memory_mib=max(0.0, sample.memory_mib - n_other / _MIB))
        sample = replace(sample, ages=self._due_ages(sample.window_s))
        load = self._load_window.extend(sample, self._serving.store, self._serving.epoch)
        store, n_dropped = self._migration.store, self._serving.n_dropped
        if store is None:
            return Report(sample, n_dropped=n_dropped, is_leaving=self.is_leaving)
        if self._config.spec.checkpoint_every_s:
            self._flash.expect(store.n_byte)
        sample = replace(sample, parameter_mib=store.n_byte / _MIB, n_row=store.n_row)
        members = self._serving.members
        return Report(sample, n_dropped=n_dropped, members=members, is_leaving=self.is_leaving, load=load)

    def _due_ages(self, window_s: float) -> tuple[GradientAges, ...]:
        """Return the ages of gradients when due."""
        self._ages_window_s += window_s
        if self._ages_window_s < AGES_EVERY_S:
            return ()
        self._ages_window_s = 0.0
        is_first = self._index == 0
        return tuple(replace(each, of_first_ps=is_first) for each in self._serving.ages.take())

    def _spare_bytes(self) -> int:
        """Return the bytes that copies of parameters may use: the memory of the node less a reserve."""
        n_used = self._accounting.n_byte() - self._flash.n_byte - self._slabs.n_byte - self._agent.make_way()
        return round(self._config.memory_mib * _MIB * MOST_USED) - n_used

    # moves

    def _move_on(self) -> None:
        """Send due chunks, report progress, and serve a complete move."""
        now_s = time.monotonic()
        self._chunk_sender.send(self._migration.step(now_s))
        if (report := self._migration.progress_report(now_s)) is not None:
            self._agent.send(report)
        if (end := self._migration.arrived()) is not None:
            self._chunk_sender.close()
            self._open(end.move, end.index)

    def _end_move(self, end: MoveEnd) -> None:
        if self._migration.has_ended(end.move):  # a restarted master repeats the order
            self._agent.send(Loaded(self._name, end.move))
            return
        self._serving.settle(end.n_step)
        self._serving.close()  # no request may change rows that are being sent
        self._migration.end(end, time.monotonic())

    def _open(self, epoch: int, index: int, filled: ps_checkpoint.Filled | None = None) -> None:
        assert self._migration.store is not None
        self._index = index
        self._serving.open(self._migration.store, epoch)
        _log.info("%s serves %d rows, epoch %d", self._name, self._migration.store.n_row, epoch)
        n_from = (filled.n_from_memory, filled.n_from_peers) if filled else (0, 0)
        self._loaded = Loaded(self._name, epoch, "", *n_from)
        self._agent.send(self._loaded)

    # checkpoints

    def _load(self, load: Load) -> None:
        """Serve another part, or the same part under a new epoch; report a damaged one and go on.

        A master repeats an order whose answer may be lost. To load twice would lose what was learnt since.
        """
        if load.ps_epoch == self._loaded.ps_epoch:
            self._agent.send(self._loaded)
            return
        self._serving.close()  # frees the memory before the new store takes its own
        if self._copying is not None:
            self._copying[0].stop()
            self._end_copy()
        self._migration.hold(None, None, load.ps_epoch)
        self._chunk_sender.close()
        owned = owned_buckets(load.bucket_owner, load.index)

        def new_store() -> ParameterStore:
            return self._new_store(load.index, load.n_ps)

        def read_peer(source: CopySource) -> NDArray[np.uint8]:
            return read_copy(self._context, self._keys, self._name, source, between=self._agent.tick)

        try:
            with self._agent.long_work("loads its part of a checkpoint"):
                filled = ps_checkpoint.fill(new_store, load.parts, owned, read_peer, between=self._agent.tick)
        except CheckpointError as error:
            _log.warning("%s: %s", self._name, error)
            self._agent.send(Loaded(self._name, load.ps_epoch, str(error)))
            return
        self._migration.hold(filled.store, owned, load.ps_epoch)
        self._open(load.ps_epoch, load.index, filled)

    def _new_store(self, index: int = 0, n_ps: int = 1) -> ParameterStore:
        model, n_row = self._config.spec.model, self._config.features.n_table_row
        store = ParameterStore(model, n_row, self._n_dense, index=index, n_ps=n_ps)
        store.scale_rate(self._rate)
        return store

    def _save(self, save: Save) -> None:
        """Begin to copy a checkpoint, and to write it then; a failure is reported and does not end the PS."""
        self._end_copy()
        store, saved = self._migration.store, Saved(self._name, save.checkpoint, save.file, "", 0, 0)
        if store is None:
            self._refuse(saved, _NOTHING_TO_SAVE)
            return
        self._migration.stay()
        self._serving.settle(save.n_step)
        is_large = store.n_byte > _COPY_AT_ONCE_BYTES
        if is_large and self._begin_copy(save, store, saved):
            self._agent.send(Cut(self._name, save.checkpoint))
            return
        self._migration.tidy()  # a few rows, or all wait for the file
        saved = replace(saved, n_row=store.n_row)
        self._changed.on_cut(save.checkpoint, None)
        if store.is_finite(self._agent.tick):
            self._end_copied(save, saved, None if is_large else self._copy(save, store))
        else:
            self._flash.forget_direct()
            self._refuse(saved, NOT_FINITE)

    def _copy(self, save: Save, store: ParameterStore) -> MemoryPart | None:
        """Copy what `store` holds, at once; None where there is no memory for it."""
        image, tick = ps_checkpoint.image_of(store.export()), self._agent.tick
        return self._flash.copy(
            save.checkpoint, image.header, image.arrays, protected=save.kept, between=tick
        )

    def _begin_copy(self, save: Save, store: ParameterStore, saved: Saved) -> bool:
        """Begin to copy what `store` holds now; False where there is no memory for it.

        Rows of other PS are left out. To write parameters as they lie, these rows have to be freed first.
        """
        cut = store.cut(is_awaited=save.is_awaited)
        image = ps_checkpoint.image_of(cut.part)
        work = save.checkpoint, image.header, image.arrays, cut.copy_to, cut.stop
        if not self._flash.begin(*work, protected=save.kept):
            cut.stop()
            return self._migration.tidy() and self._begin_copy(save, store, saved)
        self._copying = cut, save, replace(saved, n_row=len(cut.part.ids))
        self._changed.on_cut(save.checkpoint, cut.changed)
        return True

    def _end_copy(self) -> None:
        """Wait until nothing is being copied: it is over soon, as the store changes once only."""
        while self._flash.is_copying:
            time.sleep(_LOOK_EVERY_S)
            self._agent.tick()
        self._report_saved()

    def _end_copied(self, save: Save, saved: Saved, memory: MemoryPart | None) -> None:
        """Report a copy, or that there is no memory for it, and begin to write its file, if it gets one."""
        if saved.file:
            self._files[saved.checkpoint] = saved
            self._flash.persist(
                saved.checkpoint,
                saved.file,
                is_awaited=save.is_awaited,
                changes=self._changed.up_to(saved.checkpoint),
                between=self._agent.tick,
            )
        self._agent.send(Copied(self._name, saved.checkpoint, memory))
        if not saved.file:
            self._flash.forget_direct()
            if memory is None:
                self._agent.send(replace(saved, n_row=0, error=_NO_MEMORY))

    def _refuse(self, saved: Saved, why: str) -> None:
        """Report that nothing was copied."""
        self._agent.send(Copied(self._name, saved.checkpoint))
        self._agent.send(replace(saved, n_row=0, error=why))

    def _report_saved(self) -> None:
        """Report the end of each copy, which is written then, and of each file, once."""
        for result in self._flash.poll():
            if isinstance(result, Persisted):
                self._changed.on_written(result.number)
            if isinstance(result, CopyEnded):
                assert self._copying is not None
                (_, save, saved), self._copying = self._copying, None
                if result.why:
                    self._refuse(saved, result.why)
                else:
                    self._end_copied(save, saved, result.memory)
            elif (written := self._files.pop(result.number, None)) is not None:
                self._agent.send(_outcome(written, result))


def _outcome(saved: Saved, result: Persisted | PersistFailed) -> Saved:
    if isinstance(result, Persisted):
        return replace(saved, sha256=result.sha256, n_byte=result.n_byte)
    return replace(saved, error=result.why)
