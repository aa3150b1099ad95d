"""More memory for the role of a node that ran out of memory, in every mode and for the rest of the job.

This is recovery, not advice: a node restarted with the same memory would be killed again, and no plan that a
user could prefer has less. The new target is reported like any plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.nodes import liveness
from dlrover_nb.core.master.own.state import target_plan
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.memory import after_oom_mib
from dlrover_nb.core.structs.plan.capacity import fits, plan_needs
from dlrover_nb.core.structs.views.events import NodeOutOfMemory

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
    from dlrover_nb.core.structs.wire.messages import NodeFailed

FULL = 0.95  # of the limit: a node with an advisory limit that was killed above it ran out of memory


def is_suspect(node: Node) -> bool:
    """Whether a node that was killed for an unknown reason used as much memory as its limit."""
    used_mib = node.last.memory_mib if node.last is not None else 0.0
    return not node.memory_enforced and used_mib >= FULL * node.memory_mib


def node_failed(state: JobState, node: Node, failed: NodeFailed, at_s: float) -> None:
    """Handle the failure of a node by its own report: one that ran out of memory is replaced with more."""
    liveness.node_lost(
        state,
        node,
        failed.why,
        at_s,
        retryable=failed.retryable,
        by_its_work=failed.by_its_work,
        error=failed.error,
    )
    if failed.out_of_memory:
        raise_memory(state, node, at_s)


def raise_memory(state: JobState, node: Node, at_s: float) -> None:
    """Emit that a node ran out of memory and raise its role's target; the roster has dropped the node."""
    reached_mib = max(float(node.memory_mib), node.last.memory_mib if node.last is not None else 0.0)
    state.orders.append(Emit(NodeOutOfMemory(at_s, node.id, node.role, reached_mib)))
    if state.is_ended or state.stop_reason or state.target.role(node.role).memory_mib > node.memory_mib:
        return
    target = _more(state, node.role, reached_mib)
    if target is None:
        state.note(f"{node.id} ran out of memory, and there is no more memory for {node.role} nodes", at_s)
        return
    target_plan.give_up(state, f"{node.id} ran out of memory", at_s)
    budget = state.restarts[node.role]
    state.set_target(target, at_s)
    state.restarts[node.role] = budget
    state.note(
        f"{node.id} ran out of memory at {reached_mib:.0f} MiB; "
        f"{node.role} nodes get {target.role(node.role).memory_mib} MiB from now on",
        at_s,
    )


def _more(state: JobState, role: Role, reached_mib: float) -> ResourcePlan | None:
    """Return the target with more memory for a role: half as much again, or what the machines have."""
    own = state.target.role(role)
    cap = state.capacity.most_memory_mib
    most = after_oom_mib(own.memory_mib, reached_mib, cap_mib=cap)
    for mib in (most, (own.memory_mib + most) // 2):
        raised = replace(own, memory_mib=mib)
        plan = replace(state.target, **{str(role): raised})
        if mib > own.memory_mib and fits(state.capacity, plan_needs(plan)):
            return plan
    return None
