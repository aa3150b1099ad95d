"""PS that their cluster ends soon: what they hold moves to others in the seconds that they have left.

A drained machine, a preemption or a deleted pod ends a PS with SIGTERM. It serves on and says in each report
that it leaves; `ps_group` then treats it as of no shape, so that a replacement starts beside it and takes its
buckets over by the usual migration. When that is not done in time, the PS is lost as any other: parameters
and queue roll back to the last checkpoint.

The node itself says so, not its backend: SIGTERM exists on every kind of cluster, and Kubernetes'
`deletionTimestamp` is not seen while the API server is away. It says so in every report, not in one message:
nothing is lost with a message or a master.

Nothing moves once the job is to stop, as all is saved then anyway, nor between the last row and the final
checkpoint, which comes at once. In the final evaluation it does: in pods without storage no checkpoint
outlives the PS.

A PS that is replaced, as it is slow, goes the same way (`mitigations`); but it need not go, so it stays where
nothing has room beside it.

The replacement of one that leaves is started without a look at the job's capacity. The target fits by itself,
but the machine of a PS that is drained is no part of the capacity any more. The cluster says whether there is
room; where there is none, the change goes through a checkpoint on the disk, unless the last one could not be
written. Where no checkpoint outlives a pod, the PS serves to its end, and its replacement waits for its room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.capacity import n_more

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState


def on_leaving(state: JobState, node: Node, at_s: float) -> None:
    """Record that a node leaves."""
    if node.is_leaving:
        return
    node.is_leaving = True
    state.steady_since_s = None  # what is measured from now on is not of the plan alone
    state.note(f"{node.id} is being evicted: it got a SIGTERM that its master did not send", at_s)


def loses_members(state: JobState) -> bool:
    """Whether PS of the group leave whose parameters are needed elsewhere."""
    is_ending = state.stop_reason or checkpoint_coordinator.final_is_due(state)
    return not is_ending and bool(_leaving(state))


def is_forced(state: JobState) -> bool:
    """Whether PS of the group leave in any case: their cluster ends them."""
    return loses_members(state) and any(node.is_leaving for node in state.group_nodes)


def may_restart(state: JobState) -> bool:
    """Whether PS that leave can be replaced through a checkpoint: not again after one that failed."""
    is_wanted = is_forced(state) or state.spec.migration is Migration.RESTART
    return is_wanted and loses_members(state) and state.keeps_checkpoints and not state.n_checkpoint_failed


def lacks_room_beside(state: JobState) -> bool:
    """Whether no PS fits beside those that serve, where it must: a change may go through a checkpoint."""
    if state.spec.migration is Migration.RESTART and state.keeps_checkpoints:
        return False
    members = () if state.group is None else state.group.nodes
    want, standby = state.target.ps, [node for node in state.roster.ps if node.id not in members]
    if standby:
        return any(node.lacks_room for node in standby)
    present = [node.need for node in state.roster.nodes if not node.is_leaving]
    return not n_more(state.capacity, present, want.need, at_most=1)


def note_move(state: JobState, at_s: float) -> None:
    """Emit to which PS the parameters of those that leave move."""
    assert state.group is not None
    assert state.move is not None
    members = state.move.group.nodes
    there = [name for name in members if name not in state.group.nodes] or members
    _note(state, f"move to {and_list(there)}", at_s)


def note_restart(state: JobState, at_s: float) -> None:
    """Emit that the parameters of PS that leave are saved and loaded by others."""
    is_wanted = state.spec.migration is Migration.RESTART
    why = "the job wants restarts" if is_wanted else "there is no room beside the running ones"
    _note(state, f"move through a checkpoint, as {why}", at_s)


def _note(state: JobState, what: str, at_s: float) -> None:
    nodes = _leaving(state)
    if nodes and loses_members(state):
        verb, whose = ("is", "its") if len(nodes) == 1 else ("are", "their")
        done = "being evicted" if any(node.is_leaving for node in nodes) else "replaced"
        names = and_list(node.id for node in nodes)
        state.note(f"{names} {verb} {done}; {whose} parameters {what}", at_s)


def _leaving(state: JobState) -> tuple[Node, ...]:
    return tuple(node for node in state.group_nodes if node.is_going)
