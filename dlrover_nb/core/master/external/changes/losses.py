"""What the loss of a node changes of the state, beside its successor: errors, memory, and its peers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.changes.elastic_state import ElasticState
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.master.own.nodes import refusals
from dlrover_nb.core.master.shared import crash_loops
from dlrover_nb.core.memory import after_oom_mib
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.training.failures import counted
from dlrover_nb.core.structs.views.events import NodeOutOfMemory

if TYPE_CHECKING:
    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.structs.plan.capacity import NodeLimits
    from dlrover_nb.core.structs.training.failures import ProgramError


class LossState(ElasticState):
    """See `ExternalState`."""

    def _count(self, node: ExternalNode, error: ProgramError, at_s: float) -> str:
        """Count an error; return why the job ends by it, or an empty text."""
        self._errors = counted(self._errors, error, role=node.role, node=node.id, at_s=at_s)
        return crash_loops.why_ended(self._spec, self._errors[-1], self._plan_of(node.role).count)

    def _hopeless(
        self, node: ExternalNode, why: str, limits: NodeLimits | None, at_s: float, *, never_ran: bool
    ) -> None:
        """Do as `refusals.hopeless` about a node in whose place a new one would fail in the same way."""
        need = node.cpu, node.memory_mib
        cannot_go_on = f"{node.id} cannot go on: {why}"
        if self._has_way_back and never_ran:
            self._fail_plan(cannot_go_on if limits is None else refusals.of_change(node.id, need, why), at_s)
        elif limits is None:
            self._end(JobPhase.FAILED, cannot_go_on, at_s)
        elif self._applied is None:
            self._end(JobPhase.FAILED, refusals.of_first_plan(node.role, need, why, limits), at_s)
        else:
            self._restarts[node.role].record(
                at_s, has_worked=False, n_sample_done=self.train_counts.n_sample_done
            )
            if (text := refusals.of_running_plan(node.role, need, why)) != self.message:
                self._note(text, at_s)

    def _part(self) -> None:
        """Handle the members that lost a peer: finished ones restart with the others; not those of worlds."""
        if self._external.framework is Framework.DDP or self._external.dynamic_workers:
            return
        self._forget_finished()
        if self._external.framework is Framework.TORCH:
            self._orders.extend(SendEnvironment(name, "") for name in self._workers)

    def _feed(self, node: ExternalNode, at_s: float) -> None:
        """Give a role more memory after one of its nodes ran out of it, so that it does not recur."""
        if self._external.fixed(node.role) is not None:
            self._note(
                f"{node.id} ran out of memory; more for it: memory_mib of its role, external.roles", at_s
            )
            return
        reached_mib = max(float(node.memory_mib), node.last.memory_mib if node.last else 0.0)
        self.emit(NodeOutOfMemory(at_s, node.id, node.role, reached_mib))
        own = self.target.role(node.role)
        if self.phase.is_final or own.memory_mib > node.memory_mib:
            return
        cap = self._capacity.most_memory_mib
        memory_mib = after_oom_mib(own.memory_mib, reached_mib, cap_mib=cap)
        if memory_mib <= own.memory_mib:
            self._note(
                f"{node.id} ran out of memory, and nothing more can be had for {node.role} nodes", at_s
            )
            return
        self._give_up(f"{node.id} ran out of memory", at_s)
        self._aim(replace(self.target, **{str(node.role): replace(own, memory_mib=memory_mib)}), at_s)
        self._note(f"{node.id} ran out of memory; {node.role} nodes get {memory_mib} MiB from now on", at_s)
