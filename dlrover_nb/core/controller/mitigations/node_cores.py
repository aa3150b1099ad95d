"""What single nodes use of their cores, and how these may change: for actions that set the size of one node.

Under the policy `nearchus` cores move within a role. What a user decided about a node's size stays until
the plan changes, and so does what its cluster could not change: else the same action would be proposed again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck import is_stable, node_moves
from dlrover_nb.core.controller.mitigations.node_room import NodeRoom
from dlrover_nb.core.planner.policies.nearchus import NAME
from dlrover_nb.core.straggler.situation import PsState
from dlrover_nb.core.structs.decisions.actions import Proposed, SetSize
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.controller.measured.measurement import Measurement
    from dlrover_nb.core.controller.mitigations.slow_nodes import SlowNodes
    from dlrover_nb.core.controller.plans.auto_mode import AutoMode
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.planner.advising.advice import Limits
    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.decisions.decisions import Mitigation
    from dlrover_nb.core.structs.views.events import NodeSizesSet


class NodeCores:
    """The cores of the nodes of one job.

    Parameters
    ----------
    state, auto, measured
        The job, what auto mode may do with it, and what its nodes use.
    nodes
        Its nodes.
    """

    def __init__(self, state: JobState, auto: AutoMode, measured: Measurement, nodes: SlowNodes) -> None:
        self._state, self._auto, self._measured, self._nodes = state, auto, measured, nodes

    def sizes_set(self, event: NodeSizesSet) -> None:
        """Take the sizes of all nodes that do not have their role's."""
        self._measured.resize(event.sizes, event.at_s)

    def keep(self, action: Action) -> None:
        """Keep the size of a node until the plan changes, if that is what an action is about."""
        if isinstance(action, SetSize):
            self._measured.keep_size(action.node)

    def room(self, limits: Limits | None) -> NodeRoom | None:
        """Return what limits the size of a node; None before the first plan is steady."""
        plan, state = self._nodes.plan, self._state
        if plan is None:
            return None
        return NodeRoom(plan, self._nodes.own_sizes, state.spec, state.pins, state.job.capacity, limits)

    def ps_states(self, at_s: float) -> tuple[PsState, ...]:
        """Return the cores of the PS that have reported."""
        use, room = self._measured.use, self.room(self._auto.limits(at_s))
        if use is None or room is None:
            return ()
        states = []
        for node in use.of({Role.PS}):
            size = SetSize(node.node, Role.PS, node.allocated_cores, node.memory_mib)
            sizes = (replace(size, cpu=cpu) for cpu in self._state.spec.bounds.ps_cpus if cpu > size.cpu)
            may_grow = node.node not in use.pinned
            larger = tuple(each for each in sizes if may_grow and room.allows(each))
            states.append(PsState(node.node, size, node.cores() if node.used_cores else None, larger))
        return tuple(states)

    def moves(self, opened: Mitigation | None, at_s: float) -> tuple[Proposed, ...]:
        """Return the sizes by which cores move within a role; none under another policy.

        While the job is not stable, a size that waits for a decision stands.
        """
        use, room = self._measured.use, self.room(self._auto.limits(at_s))
        if self._state.spec.policy != NAME or use is None or room is None:
            return ()
        if not is_stable(use):
            action = None if opened is None else opened.action.action
            return (Proposed(action, opened.why),) if opened and isinstance(action, SetSize) else ()
        moves = node_moves(use, self._state.spec.bounds, self._state.pins)
        return tuple(e for e in moves if isinstance(e.action, SetSize) and room.allows(e.action))
