"""The inputs of an external job: what its programs report and ask over HTTP, or write in their logs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeAlias

from dlrover_nb.core.driver.backend import ResizingBackend
from dlrover_nb.core.master.external.orders import SendAnswer
from dlrover_nb.core.runtime.checkpoints import free_run
from dlrover_nb.core.structs.training.reported import TrainerReport

if TYPE_CHECKING:
    import queue
    from collections.abc import Iterable

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import ExternalBackend, NodeExited
    from dlrover_nb.core.driver.calls.service_queue import ServiceQueue
    from dlrover_nb.core.driver.external.external_logs import ExternalLogs
    from dlrover_nb.core.master.external.master import ExternalMaster
    from dlrover_nb.core.master.external.orders import ExternalOrder
    from dlrover_nb.core.structs.decisions.query_answers import LogLine
    from dlrover_nb.core.structs.job.external import StepsDone
    from dlrover_nb.core.structs.wire.services import ServiceCall

StepReports: TypeAlias = "queue.SimpleQueue[StepsDone | TrainerReport]"


class ExternalInputs:
    """Passes steps, addresses and exits to the external master; fits `core.driver.loop.parts.Inputs`.

    Parameters
    ----------
    master, backend, logs, clock
        The master that decides, the backend, the programs' logs, and the clock.
    reports
        What programs report; filled by other threads, read on the next tick.
    calls
        Calls of programs, which wait for their answers.
    """

    n_dropped = 0  # there are no messages of ours
    n_refused = 0

    def __init__(
        self,
        master: ExternalMaster,
        backend: ExternalBackend,
        *,
        logs: ExternalLogs,
        reports: StepReports,
        calls: ServiceQueue,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._resizer = backend if isinstance(backend, ResizingBackend) else None
        master.resizes_in_place = False if self._resizer is None else None
        self._master, self._backend, self._logs, self._clock = master, backend, logs, clock
        self._reports, self._woken = reports, threading.Event()
        self.wake = self._woken.set
        calls.wake = self.wake

    def receive(self, wait_s: float) -> list[ExternalOrder]:
        """Wait; then return the orders that follow from all steps that were reported or written."""
        self._woken.wait(wait_s)
        self._woken.clear()
        orders: list[ExternalOrder] = []
        while not self._reports.empty():
            orders += self._on_report(self._reports.get())
        for ticket, call in self._calls.take():
            answer, following = self._master.on_call(self._of_node(call), self._clock.now_s())
            orders += [*following, SendAnswer(ticket, answer)]
        return orders + self._read_logs()

    def observe(self, at_s: float) -> tuple[ExternalOrder, ...]:
        """Report to the master which pods run, and where, and which got another size."""
        orders = self._master.update_addresses(self._backend.addresses(), at_s)
        if self._resizer is None:
            return orders
        resizes = self._resizer.resizes_in_place()
        if resizes is not None and resizes is not self._master.resizes_in_place:
            orders += self._master.set_resizes_in_place(resizes=resizes, at_s=at_s)
        for each in self._resizer.allotted():
            orders += self._master.on_allotted(each.node, each.need, each.why, at_s)
        return orders

    def on_exit(self, exited: NodeExited, at_s: float) -> list[ExternalOrder]:
        """Report a node's exit to the master, with the steps and the error in its log."""
        orders = self._read_logs()
        self._logs.finish_node(exited.node, at_s)
        ending = self._logs.ending(exited, at_s)
        orders += self._master.on_exit(
            exited.node,
            ending.why,
            at_s,
            succeeded=exited.succeeded,
            retryable=exited.retryable,
            refused=exited.refused,
            out_of_memory=exited.out_of_memory,
            by_its_work=exited.by_its_work,
            error=ending.error,
        )
        return orders

    def lines(self, node: str | None, n_line: int, *, there: Iterable[str]) -> tuple[LogLine, ...]:
        """Return the newest log lines; for any thread."""
        return self._logs.lines(node, n_line, there=there)

    def finish(self, at_s: float) -> None:
        """Read the logs to the end and free the memory of checkpoints; no orders follow: the job is over."""
        self._calls.close()
        self._read_logs()
        self._logs.close(at_s)
        free_run(self._master.memory)

    def _on_report(self, report: StepsDone | TrainerReport) -> tuple[ExternalOrder, ...]:
        steps = self._master.hear(report) if isinstance(report, TrainerReport) else report
        return () if steps is None else self._master.on_steps(steps, self._clock.now_s())

    def _of_node(self, call: ServiceCall) -> ServiceCall:
        """Return the call as one of a node that the master knows."""
        return call

    def _read_logs(self) -> list[ExternalOrder]:
        orders: list[ExternalOrder] = []
        for steps in self._logs.add(self._backend.written()):
            orders += self._master.on_steps(steps, self._clock.now_s())
        return orders
