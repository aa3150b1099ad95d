"""The inputs of an own job: messages of its nodes over the wire, and their logs."""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING

from dlrover_nb.core.driver.endings import ending
from dlrover_nb.core.runtime.checkpoints import free_memory
from dlrover_nb.core.runtime.process.cpu_waits import SilentProcess, SilentWaits, cpu_pressure
from dlrover_nb.core.structs.wire.messages import LinesWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import NodeExited
    from dlrover_nb.core.driver.own.transport import MasterSocket
    from dlrover_nb.core.master.own.master import JobMaster
    from dlrover_nb.core.master.shared.orders import Order
    from dlrover_nb.core.rundir.node_logs import NodeLogs
    from dlrover_nb.core.structs.decisions.query_answers import LogLine


class WireInputs:
    """Passes messages and exits to the job master; fits `core.driver.loop.parts.Inputs`.

    Parameters
    ----------
    job, folder
        The job's name and run folder.
    master, socket, logs, clock
        The master that decides, the socket, the kept log lines, and the clock.
    told
        Returns the orders that follow from what other threads of the job have done.
    """

    def __init__(  # noqa: PLR0913 - parts of a job, all but two by keyword
        self,
        job: str,
        folder: Path,
        *,
        master: JobMaster,
        socket: MasterSocket,
        logs: NodeLogs,
        new_orders: Callable[[], Sequence[Order]],
        clock: Clock,
    ) -> None:
        self._job, self._folder = job, folder
        self._master, self._socket, self._logs, self._clock = master, socket, logs, clock
        self._new_orders, self.wake = new_orders, socket.wake
        self._waits, self._host = SilentWaits(), gethostname()

    @property
    def n_dropped(self) -> int:
        """Messages that the master or its nodes could not decode."""
        return self._socket.n_dropped + self._master.n_dropped

    @property
    def n_refused(self) -> int:
        """Connections without the job's key."""
        return self._socket.n_refused

    def receive(self, wait_s: float) -> list[Order]:
        """Wait for messages; return the orders that follow from all received ones.

        Lines of a node that the job never had are dropped: its name would become that of a file.
        """
        orders: list[Order] = []
        for sender, message, arrays in self._socket.receive(wait_s):
            if isinstance(message, LinesWritten):
                if self._master.knows(sender) or self._logs.knows(sender):
                    self._logs.add(message)
            else:
                orders += self._master.on_message(sender, message, self._clock.now_s(), arrays)
        return [*orders, *self._new_orders()]

    def observe(self, at_s: float) -> tuple[Order, ...]:
        """Read of silent nodes on this host whether that gives them processors; all else nodes report."""
        here = [each for each in self._master.silent_nodes(at_s) if each.host == self._host]
        waits = self._waits.read(SilentProcess(each.id, each.pid, each.since_s) for each in here)
        return self._master.on_waits(waits, cpu_pressure(), at_s) if waits else ()

    def on_exit(self, exited: NodeExited, at_s: float) -> tuple[Order, ...]:
        """Report a node's exit to the master, with the error in its log."""
        self._logs.finish_node(exited.node, at_s)
        end = ending(exited, self._logs, job=self._job, at_s=at_s)
        return self._master.on_exit(
            exited.node,
            end.why,
            at_s,
            retryable=exited.retryable,
            refused=exited.refused,
            was_killed=exited.was_killed,
            out_of_memory=exited.out_of_memory,
            by_its_work=exited.by_its_work,
            error=end.error,
        )

    def lines(self, node: str | None, n_line: int, *, there: Iterable[str]) -> tuple[LogLine, ...]:
        """Return the newest log lines; for any thread."""
        return self._logs.lines(node, n_line, there=there)

    def finish(self, at_s: float) -> None:
        """Read the rest of the nodes' files, and free the memory that parameter servers kept."""
        self._logs.close(at_s)
        free_memory(self._job, self._folder)
