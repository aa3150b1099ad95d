"""What changes of the state when nodes are lost, or come and go in an elastic job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.master.external.changes import elastic_worlds
from dlrover_nb.core.master.external.job.node_set import plan_of
from dlrover_nb.core.master.external.job.reported_state import ReportedState
from dlrover_nb.core.master.external.launch.rendezvous import Member, environment
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.master.own.nodes import refusals
from dlrover_nb.core.master.shared import crash_loops
from dlrover_nb.core.memory import after_oom_mib
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Need, Role
from dlrover_nb.core.structs.training.failures import counted
from dlrover_nb.core.structs.views.events import BatchSizesSet, NodeOutOfMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.structs.plan.capacity import NodeLimits
    from dlrover_nb.core.structs.plan.resources import RolePlan
    from dlrover_nb.core.structs.training.failures import ProgramError


class ElasticState(ReportedState):
    """See `ExternalState`."""

    _late_since_s: float | None = None  # since when processes wait for others
    _has_told_late = False

    def _plan_of(self, role: Role) -> RolePlan:
        return plan_of(self._external, self.target, role)

    def _is_beside(self, node: ExternalNode) -> bool:
        return node.role not in self._external.world

    def settle_world(self, at_s: float) -> None:
        """Make the next world of an elastic job, if it can be made, and end the nodes that are not in it."""
        if elastic_worlds.advance(self, at_s):
            self._met_at_s, self._n_rendezvous = at_s, self.worlds.now.number
            self._heard, self._before = set(), set()
            self._drop_shares(at_s)
        self._tell_late(at_s)
        self._members = elastic_worlds.members(self)
        wanted = elastic_worlds.wanted(self)
        for node in self._node_set.nodes:
            is_surplus = node.role is Role.WORKER and bool(node.address) and node.id not in wanted
            if is_surplus and self.worlds.now.number and node.id not in self._members:
                self._stop_node(node)

    def _tell_late(self, at_s: float) -> None:
        """Name the nodes that all others wait for, once, and say when that is over."""
        late = () if self._stop is not None or self.is_over else elastic_worlds.late(self)
        if not late:
            if self._has_told_late:
                self._note("no process is waiting for another one any more", at_s)
            self._late_since_s, self._has_told_late = None, False
            return
        if self._late_since_s is None:
            self._late_since_s = at_s
        if at_s > self._late_since_s + elastic_worlds.LATE_S and not self._has_told_late:
            self._has_told_late = True
            words = f"training waits for {and_list(late)}, whose processes have not joined the others"
            self._note(f"{words}: they have stopped, or cannot reach the master", at_s)

    def _drop_shares(self, at_s: float) -> None:
        """Drop parts of a global batch that were set for other workers: they would not sum to it."""
        is_of_others = {node for node, _ in self.batch_sizes} != set(self.worlds.now.members)
        if self.batch_sizes and is_of_others and self._spec.global_batch is not None:
            self.batch_sizes = self.batch_times = ()
            self.emit(BatchSizesSet(at_s, ()))

    def _send_environments(self) -> None:
        """Order the variables of the last rendezvous for all of its members."""
        if self._external.framework is Framework.DDP:
            self._orders += elastic_worlds.environments(self, self._node_set.nodes)
            return
        members = [node for name in self._members if (node := self._node_set.get(name)) is not None]
        if len(members) < len(self._members):
            return
        texts = self._texts(members, self._n_rendezvous)
        for node in members:
            node.told = texts[node.id]
            if not node.is_finished:
                self._orders.append(SendEnvironment(node.id, node.told))

    def _texts(self, members: Sequence[ExternalNode], number: int) -> dict[str, str]:
        """Return the variables of members by node, for the rendezvous of this number."""
        named, rendezvous_id = [Member(n.id, n.role, n.address) for n in members], f"{self.name}-{number}"
        return {
            each.node: environment(self._external, named, each.node, rendezvous_id=rendezvous_id)
            for each in named
        }

    def _new_texts(self, members: Sequence[ExternalNode], number: int) -> set[str]:
        """Return the members whose programs begin, or restart, with that rendezvous."""
        texts = self._texts(members, number)
        return {node.id for node in members if node.told != texts[node.id]}

    def _send_own_environment(self, node: ExternalNode) -> None:
        """Order the variables of a node of an elastic job, which do not depend on others."""
        if self._external.framework is Framework.DDP:
            self._orders += elastic_worlds.environments(self, [node])


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
        need = Need(node.cpu, node.memory_mib, self._spec.gpu_of(node.role))
        cannot_go_on = f"{node.id} cannot go on: {why}"
        if self._has_way_back and never_ran:
            self._fail_plan(cannot_go_on if limits is None else refusals.of_change(node.id, need, why), at_s)
        elif limits is None:
            self._end(JobPhase.FAILED, cannot_go_on, at_s)
        elif self._applied is None:
            self._end(JobPhase.FAILED, refusals.of_first_plan(node.role, need, why, limits), at_s)
        else:
            self._restarts[node.role].refuse(at_s)
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
                f"{node.id} ran out of memory; give it more: memory_mib of its role in external.roles", at_s
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
                f"{node.id} ran out of memory, and there is no more memory for {node.role} nodes", at_s
            )
            return
        self._give_up(f"{node.id} ran out of memory", at_s)
        self._aim(replace(self.target, **{str(node.role): replace(own, memory_mib=memory_mib)}), at_s)
        self._note(f"{node.id} ran out of memory; {node.role} nodes get {memory_mib} MiB from now on", at_s)
