"""The master of an external job in DLRover's pods: it plans and measures, but starts and ends no pod.

DLRover's operator keeps the pods running, replaces lost ones and gives them their peers. So nothing is
reconciled here: the operator's state is taken over unchanged, and the only desired state is the plan
(`target`), which the driver passes to the backend. A plan is in place once the operator's pods match it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.job.node_set import ExternalNode
from dlrover_nb.core.master.external.master import START_LIMIT_S, ExternalMaster
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.events import PlanApplied
from dlrover_nb.core.structs.views.snapshot import NodePhase

if TYPE_CHECKING:
    from dlrover_nb.core.master.external.orders import ExternalOrder
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import NodeView


@dataclass(frozen=True, slots=True)
class OperatorManagedJob:
    """A job under an operator at one moment.

    Parameters
    ----------
    phase
        The job's phase by the operator.
    why
        The operator's last message on it.
    nodes
        Its pods; a replacement has another name.
    in_place
        The plan that its pods have; None while they have none, or are being changed.
    refused
        A plan that the operator did not accept, and why; None: there is none.
    """

    phase: JobPhase
    why: str
    nodes: tuple[NodeView, ...]
    in_place: ResourcePlan | None = None
    refused: tuple[ResourcePlan, str] | None = None


class OperatorManagedMaster(ExternalMaster):
    """Plans and measures one job from its first node to its end; see `ExternalMaster`."""

    _in_place: ResourcePlan | None = None

    def observe(self, job: OperatorManagedJob, at_s: float) -> tuple[ExternalOrder, ...]:
        """Handle the job's state reported by the operator."""
        if self.phase.is_final:
            return self._settle(at_s)
        self._update_nodes(job.nodes)
        self._in_place = job.in_place
        if job.phase.is_final and self._stop is not None:
            self._end(JobPhase.STOPPED, self._stop.message, at_s)
        elif job.phase.is_final:
            self._end(job.phase, job.why, at_s)
        elif job.refused is not None and job.refused[0] == self.target:
            self._fail_plan(f"DLRover's operator did not take it: {job.refused[1]}", at_s)
        return self._settle(at_s)

    @property
    def starts_nodes(self) -> bool:
        """The operator does."""
        return False

    def _update_nodes(self, nodes: tuple[NodeView, ...]) -> None:
        """Take over the operator's pods: training ones are members, successful ones have finished."""
        there = {node.id for node in nodes}
        for name in [node.id for node in self._node_set.nodes if node.id not in there]:
            self._node_set.remove(name)
            self.account.release_node(name)
            self._meter.forget(name)
        for node in nodes:
            self._node_set.follow(_followed(node, self._node_set.get(node.id)))
        self._members = tuple(node.id for node in nodes if node.phase is NodePhase.READY)

    def _settle(self, at_s: float) -> tuple[ExternalOrder, ...]:
        if self._stop is not None:
            self._check_end(at_s)
        if not self.phase.is_final:
            self._check_plan_applied(at_s)
        orders, self._orders = tuple(self._orders), []
        return orders

    def _check_plan_applied(self, at_s: float) -> None:
        self._is_in_place = self._in_place == self.target
        if self._is_in_place and self._change_since_s is not None:
            pause_s = 0.0 if self._applied is None else self._pause_s
            if not self._is_fallback:
                self.emit(PlanApplied(at_s, self.target, pause_s))
            self._applied, self._change_since_s = self.target, None
        if self._is_in_place:
            self._note_training(at_s)
        elif self._applied is not None and self._change_since_s is not None:
            self._set_phase(JobPhase.RESCALING, at_s)

    def _check_late_nodes(self, at_s: float) -> None:
        """Give up a plan that the operator does not apply; it decides about a first plan itself."""
        late = self._change_since_s is not None and at_s > self._change_since_s + START_LIMIT_S
        if late and self._applied is not None and not self._is_fallback:
            self._fail_plan(f"DLRover's operator did not carry it out within {START_LIMIT_S:g} s", at_s)

    def _send_environments(self) -> None:
        """Send programs nothing: they get their peers from the operator."""


def _followed(view: NodeView, before: ExternalNode | None) -> ExternalNode:
    """Return a node from the operator's state, with what is already known of it."""
    node = before or ExternalNode(view.id, view.role, view.cpu, view.memory_mib, view.since_s, view.since_s)
    node.address = "" if view.phase is NodePhase.PENDING else view.id  # only the operator knows its place
    node.is_finished = view.phase is NodePhase.GONE
    node.cpu, node.memory_mib = view.cpu, view.memory_mib
    return node
