"""The hands of a driver: they carry out what master and controller order, one order after the other.

Before an order leaves, what it rests on is in the job's diary. What follows from an order (a node that could
not be started, a manifest that is written, a plan that the controller asks for) is told to the master at
once, and its orders come after those that wait already: they leave in the order in which they were decided.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.job_file import WriteAheadLogFile
from dlrover_nb.core.runtime.orders import (
    DropCheckpoint,
    Emit,
    Order,
    PrepareCheckpoint,
    Send,
    StartNode,
    StopNode,
    WriteManifest,
)
from dlrover_nb.core.runtime.write_ahead_log import WriteAheadLog
from dlrover_nb.core.structs.events import Remember, Scale
from dlrover_nb.core.structs.messages import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.driver.recorded_controller import RecordedController
    from dlrover_nb.core.driver.transport import MasterSocket
    from dlrover_nb.core.rundir.job_file import JobFile
    from dlrover_nb.core.runtime.master import JobMaster
    from dlrover_nb.core.structs.events import Event, Instruction

logger = logging.getLogger(__name__)


class OrderExecutor:
    """Carries out the orders of one job; for its loop alone.

    Parameters
    ----------
    job, folder
        What the job is, and its run folder.
    master, hearing
        Who orders, and who hears what follows.
    backend, line
        Where nodes run, and how they are spoken to.
    clock
        The time.
    """

    def __init__(  # noqa: PLR0913 - what hands reach, by keyword
        self,
        job: JobFile,
        folder: Path,
        *,
        master: JobMaster,
        hearing: RecordedController,
        backend: Backend,
        line: MasterSocket,
        clock: Clock,
    ) -> None:
        self._job, self._folder, self._clock = job, folder, clock
        self._master, self._hearing, self._backend, self._line = master, hearing, backend, line
        self._checkpoints = CheckpointFolder(folder, job.spec.checkpoint_url)
        self._diary, self._diary_file = WriteAheadLog(master), WriteAheadLogFile(folder)
        self._orders: deque[Order] = deque()

    def begin_diary(self) -> None:
        """Write down all that there is, in the place of what was written before."""
        self._diary_file.begin(self._diary.first())

    def keep_diary(self) -> None:
        """Write down what changed without an order, and begin a long diary anew."""
        if self._diary_file.is_long:
            self.begin_diary()
        elif entry := self._diary.entry(check_state=True):
            self._diary_file.append(entry)

    def carry_out(self, orders: Iterable[Order]) -> None:
        """Carry out orders in their order, those that follow from them too; a nested call only adds."""
        orders, is_nested = tuple(orders), bool(self._orders)
        if entry := self._diary.entry(orders):
            self._diary_file.append(entry)
        self._orders.extend(orders)
        while self._orders and not is_nested:
            self._do(self._orders[0])
            self._orders.popleft()

    def carry_out_what_works(self, orders: Iterable[Order]) -> None:
        """Carry out the last orders though something is broken, each whether or not the others fail."""
        self._orders.clear()
        for order in orders:
            try:
                self._do(order)
            except Exception:
                logger.exception("%s could not be carried out", order)
                self._orders.clear()

    def tell(self, event: Event) -> tuple[Instruction, ...]:
        """Hand a fact to the controller and do what it orders; what it refuses has not happened."""
        instructions = self._hearing.tell(event)
        for instruction in instructions:
            match instruction:
                case Scale(_, target):
                    self.carry_out(self._master.set_target(target, self._clock.now_s()))
                case Remember():
                    pass  # that is done
                case _ as never:
                    assert_never(never)
        return instructions

    def close(self) -> None:
        """Write down the end."""
        self.keep_diary()
        self._diary_file.close()

    def _do(self, order: Order) -> None:
        match order:
            case StartNode():
                self._start_node(order)
            case StopNode(node):
                self._backend.stop_node(node)
            case Send(node, message):
                self._line.send(node, message)
            case PrepareCheckpoint(number, n_byte):
                self._try_checkpoint(number, lambda: self._checkpoints.prepare(number, n_byte))
            case WriteManifest(manifest):
                if self._try_checkpoint(manifest.number, lambda: self._checkpoints.write(manifest)):
                    self.carry_out(self._master.manifest_written(manifest.number, self._clock.now_s()))
            case DropCheckpoint(number):
                self._checkpoints.drop(number)
            case Emit(event):
                self.tell(event)
            case _ as never:
                assert_never(never)

    def _start_node(self, order: StartNode) -> None:
        config = NodeConfig(
            node=order.node,
            role=order.role,
            spec=self._job.spec,
            features=self._job.features,
            cpu=order.cpu,
            memory_mib=order.memory_mib,
            master=self._line.endpoint,
            listen=self._backend.listen(),
            folder=str(self._folder),
            public_key=self._job.public_key,
            secret_key=self._job.secret_key,
        )
        try:
            self._backend.start_node(config)
        except BackendError as error:
            self.carry_out(self._master.on_exit(order.node, str(error), self._clock.now_s()))

    def _try_checkpoint(self, number: int, work: Callable[[], None]) -> bool:
        try:
            work()
        except CheckpointError as error:
            logger.warning("job %s: checkpoint %d failed: %s", self._job.spec.name, number, error)
            self.carry_out(self._master.checkpoint_failed(number, str(error), self._clock.now_s()))
            return False
        return True
