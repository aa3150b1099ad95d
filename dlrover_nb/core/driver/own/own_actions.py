"""Carries out the orders of an own job, and saves the state behind them first."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.driver.backend import ResizingBackend
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.master.own.write_ahead_log import WriteAheadLog
from dlrover_nb.core.master.shared.orders import (
    Action,
    DropCheckpoint,
    Order,
    PrepareCheckpoint,
    ResizeNode,
    Send,
    StartNode,
    StopNode,
    SweepCheckpoints,
    WriteManifest,
)
from dlrover_nb.core.rundir.log_file import WriteAheadLogFile
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.driver.own.checkpoint_thread import CheckpointThread, Outcome
    from dlrover_nb.core.driver.own.transport import MasterSocket
    from dlrover_nb.core.master.own.master import JobMaster
    from dlrover_nb.core.rundir.job_file import JobFile
    from dlrover_nb.core.structs.training.batch_cost import BatchCost

logger = logging.getLogger(__name__)

RETRY_KEEPS = 5  # seconds, one `keep` each, between two attempts to write a log that was lost


class WriteAheadPersistence:
    """The write-ahead log of one master; fits `core.driver.loop.parts.Persistence`."""

    def __init__(self, master: JobMaster, folder: Path) -> None:
        self._log, self._file = WriteAheadLog(master), WriteAheadLogFile(folder)
        self._n_keep = 0

    def begin(self) -> None:
        """Write everything, replacing the earlier state."""
        self._file.begin(self._log.first())

    def write_ahead(self, orders: Sequence[Order]) -> None:
        """Write the state behind `orders`, before they are carried out."""
        if entry := self._log.entry(orders):
            self._file.append(entry)

    def keep(self) -> None:
        """Write changes without an order, compact a long log, and begin a lost one again."""
        self._n_keep += 1
        if self._file.is_long or (self._file.is_lost and self._n_keep % RETRY_KEEPS == 0):
            self.begin()
        elif entry := self._log.entry(check_state=True):
            self._file.append(entry)

    def close(self) -> None:
        """Write the end."""
        self.keep()
        self._file.close()


class OwnActions:
    """Carries out the actions of one own job.

    Parameters
    ----------
    job, folder
        The job and its run folder.
    master, backend, socket, checkpoints, clock
        The master that decides, the backend, the nodes' socket, the thread of checkpoints, and the clock.
    spent
        Returns the money that the job has spent, which each checkpoint holds for a job that goes on with it.
    batch_costs
        As in `NodeConfig`.
    """

    def __init__(  # noqa: PLR0913 - parts of a job, all but two by keyword
        self,
        job: JobFile,
        folder: Path,
        *,
        master: JobMaster,
        backend: Backend,
        socket: MasterSocket,
        checkpoints: CheckpointThread,
        clock: Clock,
        spent: Callable[[], float],
        batch_costs: tuple[BatchCost, ...] = (),
    ) -> None:
        self._job, self._folder, self._clock, self._batch_costs = job, folder, clock, batch_costs
        self._master, self._backend, self._socket = master, backend, socket
        self._checkpoints, self._spent = checkpoints, spent
        self._resizer = backend if isinstance(backend, ResizingBackend) else None
        self._resizes: bool | None = None  # as the master was told

    def perform(self, action: Action) -> tuple[Order, ...]:
        """Carry out one action; return the orders that follow from it."""
        match action:
            case StartNode():
                return self._start_node(action)
            case StopNode(node):
                self._backend.stop_node(node)
            case ResizeNode(node, cpu, memory_mib):
                if self._resizer is not None:
                    self._resizer.resize_node(node, (cpu, memory_mib))
            case Send(node, message):
                self._socket.send(node, message)
            case WriteManifest(manifest):
                self._checkpoints.do(WriteManifest(replace(manifest, spent=self._spent())))
            case PrepareCheckpoint() | DropCheckpoint() | SweepCheckpoints():
                self._checkpoints.do(action)
            case _ as never:
                assert_never(never)
        return ()

    def _start_node(self, order: StartNode) -> tuple[Order, ...]:
        config = NodeConfig(
            node=order.node,
            role=order.role,
            spec=self._job.spec,
            features=self._job.features,
            cpu=order.cpu,
            memory_mib=order.memory_mib,
            master=self._job.endpoint,
            listen=self._backend.listen(),
            folder=str(self._folder),
            public_key=self._job.public_key,
            secret_key=self._job.secret_key,
            avoid=order.avoid,
            starts_gently=order.gently,
            batch_costs=self._batch_costs,
        )
        try:
            self._backend.start_node(config)
        except BackendError as error:
            return self._master.on_exit(order.node, str(error), self._clock.now_s())
        return ()

    def new_orders(self) -> tuple[Order, ...]:
        """Return the orders that follow from what became of checkpoints and resizes since the last call."""
        orders = [self._report(outcome) for outcome in self._checkpoints.outcomes()]
        if self._resizer is not None:
            orders += self._resized(self._resizer)
        return tuple(order for some in orders for order in some)

    def _resized(self, resizer: ResizingBackend) -> Iterator[tuple[Order, ...]]:
        at_s, resizes = self._clock.now_s(), resizer.resizes_in_place()
        if resizes is not None and resizes is not self._resizes:
            self._resizes = resizes
            yield self._master.set_resizes_in_place(at_s, resizes=resizes)
        for each in resizer.allotted():
            yield self._master.on_allotted(each.node, each.need, at_s, each.why)

    def _report(self, outcome: Outcome) -> tuple[Order, ...]:
        action, at_s = outcome.action, self._clock.now_s()
        number = action.manifest.number if isinstance(action, WriteManifest) else action.number
        if outcome.error:
            logger.warning("job %s: checkpoint %d failed: %s", self._job.spec.name, number, outcome.error)
            return self._master.checkpoint_failed(number, outcome.error, at_s)
        if isinstance(action, WriteManifest):
            return self._master.manifest_written(number, at_s)
        return self._master.checkpoint_prepared(number, at_s, outcome.dropped)
