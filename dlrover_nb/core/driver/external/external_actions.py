"""Carries out the orders of an external job, and saves the state behind them first."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.driver.backend import ResizingBackend
from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.master.external.orders import ExternalAction, ExternalOrder, SendAnswer, SendEnvironment
from dlrover_nb.core.master.shared.orders import Emit, ResizeNode, StartNode, StopNode, WriteManifest
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.external_state import SavedState, StateFile
from dlrover_nb.core.rundir.shard_log import ShardLog
from dlrover_nb.core.structs.job.trained import Trained
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import ExternalBackend
    from dlrover_nb.core.driver.calls.service_queue import ServiceQueue
    from dlrover_nb.core.driver.external.external_logs import ExternalLogs
    from dlrover_nb.core.master.external.master import ExternalMaster
    from dlrover_nb.core.rundir.job_file import JobFile
    from dlrover_nb.core.sharding.manifest import Manifest
    from dlrover_nb.core.structs.training.batch_cost import BatchCost

logger = logging.getLogger(__name__)


class StatePersistence:
    """Keeps the master's state in a small file, and its shards in a log; fits `driver.parts.Persistence`.

    The master's state and the positions in the logs are written together, so that a replacing master counts
    no step twice. Grants and acknowledged rows, which are many, are appended to the log of shards alone.
    """

    def __init__(self, master: ExternalMaster, logs: ExternalLogs, folder: Path) -> None:
        self._master, self._logs, self._file = master, logs, StateFile(folder)
        self._shards, self._services = ShardLog(folder), master.services

    def begin(self) -> None:
        """Write everything, replacing the earlier state."""
        self.keep()

    def write_ahead(self, orders: Sequence[ExternalOrder]) -> None:
        """Write the state before any action that a replacing master must know of, and before any answer."""
        self._shards.append(self._master.account.ledger)
        has_action = any(not isinstance(order, Emit | SendAnswer) for order in orders)
        if has_action or self._services != self._master.services:
            self._save()

    def keep(self) -> None:
        """Write the state if it changed."""
        self._shards.keep(self._master.account.ledger)
        self._save()

    def close(self) -> None:
        """Write the end."""
        self.keep()
        self._shards.close()

    def _save(self) -> None:
        self._services = self._master.services
        self._file.save(SavedState(self._master.record, self._logs.read_ns))


class ExternalActions:
    """Carries out the actions of one external job.

    Parameters
    ----------
    job, folder
        The job and its run folder.
    master, backend, clock
        The master that decides, the backend, and the clock.
    calls
        Calls of programs, which wait for their answers.
    spent
        Returns the money that the job has spent, which its checkpoint holds.
    batch_costs
        As in `NodeConfig`.
    """

    def __init__(  # noqa: PLR0913 - parts of a job, all but two by keyword
        self,
        job: JobFile,
        folder: Path,
        *,
        master: ExternalMaster,
        backend: ExternalBackend,
        calls: ServiceQueue,
        clock: Clock,
        spent: Callable[[], float],
        batch_costs: tuple[BatchCost, ...] = (),
    ) -> None:
        self._job, self._folder, self._calls, self._spent = job, folder, calls, spent
        self._batch_costs = batch_costs
        self._master, self._backend, self._clock = master, backend, clock

    def perform(self, action: ExternalAction) -> tuple[ExternalOrder, ...]:
        """Carry out one action; return the orders that follow from it."""
        match action:
            case StartNode():
                return self._start_node(action)
            case StopNode(node):
                self._backend.stop_node(node)
            case ResizeNode(node, cpu, memory_mib):
                if isinstance(self._backend, ResizingBackend):
                    self._backend.resize_node(node, (cpu, memory_mib))
            case WriteManifest(manifest):
                self._keep(manifest)
            case SendEnvironment(node, text):
                self._backend.send_environment(node, text)
            case SendAnswer(ticket, answer):
                self._calls.answer(ticket, answer)
            case _ as never:
                assert_never(never)
        return ()

    def _keep(self, manifest: Manifest) -> None:
        """Complete the checkpoint of a model of ours; where that fails, the job has no model."""
        spec = self._job.spec
        data = replace(spec.data, path=redact(spec.data.path))
        trained = Trained(spec.model, data, self._job.features)
        try:
            CheckpointFolder(self._folder, spec.checkpoint_url, trained=trained).write(
                replace(manifest, at_s=self._clock.now_s(), spent=self._spent())
            )
        except CheckpointError as error:
            logger.warning("job %s: its model is not kept: %s", spec.name, error)

    def _start_node(self, order: StartNode) -> tuple[ExternalOrder, ...]:
        config = NodeConfig(
            node=order.node,
            role=order.role,
            spec=self._job.spec,
            features=self._job.features,
            cpu=order.cpu,
            memory_mib=order.memory_mib,
            master=self._job.endpoint,
            listen="",
            folder=str(self._folder),
            public_key="",
            secret_key="",
            batch_costs=self._batch_costs,
        )
        try:
            self._backend.start_node(config)
        except BackendError as error:
            return self._master.on_exit(order.node, str(error), self._clock.now_s())
        return ()
