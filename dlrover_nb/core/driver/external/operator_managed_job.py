"""Composes the loop of an external job whose pods DLRover's operator manages.

It differs from one in pods of ours in its master, which follows the state reported by the operator, and in
its inputs, which pass the plan to the backend instead of single nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.driver.backend import ExternalBackend
from dlrover_nb.core.driver.external.external_inputs import ExternalInputs
from dlrover_nb.core.driver.external.external_job import begin_composed, resume_composed
from dlrover_nb.core.driver.external.external_logs import ExternalLogs
from dlrover_nb.core.master.external.operator_managed_master import OperatorManagedJob, OperatorManagedMaster

if TYPE_CHECKING:
    from dlrover_nb.core.driver.external.external_job import Compose, Composed, ExternalJob, Surroundings
    from dlrover_nb.core.driver.loop.recorded_controller import RecordedController
    from dlrover_nb.core.master.external.orders import ExternalOrder
    from dlrover_nb.core.structs.job.external import StepsDone
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.reported import TrainerReport
    from dlrover_nb.core.structs.wire.services import ServiceCall


class OperatorManagedBackend(ExternalBackend, Protocol):
    """A backend that observes and re-scales a job of an operator, beyond an external job's needs."""

    def apply_plan(self, plan: ResourcePlan, decision: str) -> None:
        """Request a plan from the operator; return at once. A repeated call changes nothing."""
        ...

    def observed(self) -> OperatorManagedJob | None:
        """Return the job's state by the operator; None while it is unknown."""
        ...

    def node_of(self, pod: str) -> str:
        """Return the node of a pod, by the pod's name."""
        ...


class OperatorManagedInputs(ExternalInputs):
    """Observes the operator's state, and passes the plan to the backend; see `ExternalInputs`.

    Parameters
    ----------
    master, backend, logs, around
        The master that decides, the backend, the programs' logs, and where the job runs.
    recorded
        Controller that has the decision behind the plan.
    """

    def __init__(
        self,
        master: OperatorManagedMaster,
        backend: OperatorManagedBackend,
        *,
        logs: ExternalLogs,
        around: Surroundings,
        recorded: RecordedController,
    ) -> None:
        super().__init__(
            master, backend, logs=logs, reports=around.reports, calls=around.calls, clock=around.clock
        )
        self._managed, self._operator, self._recorded = master, backend, recorded

    def observe(self, at_s: float) -> tuple[ExternalOrder, ...]:
        """Report the operator's state to the master, and pass the plan to the operator."""
        shown, master = self._operator.observed(), self._managed
        if shown is None:
            return ()
        before = {node.id for node in master.nodes}
        orders = master.observe(shown, at_s)
        for node in sorted(before - {each.id for each in shown.nodes}):
            self._logs.finish_node(node, at_s)
        if not master.phase.is_final:
            self._operator.apply_plan(master.target, self._recorded.last_decision)
        return orders

    def _on_report(self, report: StepsDone | TrainerReport) -> tuple[ExternalOrder, ...]:
        """Pass on what is reported: the program names its pod."""
        return super()._on_report(replace(report, node=self._operator.node_of(report.node)))

    def _of_node(self, call: ServiceCall) -> ServiceCall:
        """Return the call as one of a node: the program names its pod."""
        node = self._operator.node_of(call.caller.node)
        return replace(call, caller=replace(call.caller, node=node))


def begin(spec: JobSpec, backend: OperatorManagedBackend, around: Surroundings) -> ExternalJob:
    """Return the loop of a new job; raises as `external_job.begin`."""
    return begin_composed(spec, backend, around, _composing(backend))


def resume(backend: OperatorManagedBackend, around: Surroundings) -> ExternalJob:
    """Return the loop that continues the job of a run folder; raises as `external_job.resume`."""
    return resume_composed(backend, around, _composing(backend))


def _composing(backend: OperatorManagedBackend) -> Compose:
    def compose(
        spec: JobSpec, capacity: Capacity, recorded: RecordedController, around: Surroundings
    ) -> Composed:
        master = OperatorManagedMaster(spec, capacity)
        logs = ExternalLogs(spec, around.folder, lambda: master.told)
        inputs = OperatorManagedInputs(master, backend, logs=logs, around=around, recorded=recorded)
        return master, logs, inputs

    return compose
