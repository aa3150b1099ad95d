"""Workers that were given up and may be alive: their shards are granted again when no PS listens to them.

A worker without heartbeats may be paused, or on the other side of a broken network, and go on to push its
gradients when it comes back. Were its shards with others by then, rows would be applied twice without a
count. So each PS of the group is ordered to refuse the worker (Forget), and the worker keeps its shards until
all of them have confirmed that (Forgotten). An order or an answer that is lost is repeated at the next tick.
A PS that is lost takes its group along, whose epoch no PS serves any more. A refused worker learns so by the
answer and ends; a new one, under a new name, was started in its place.

A worker whose process is known to have ended needs no fence: its shards are free at once.

That a worker was silent says nothing of its rows: the machine may have been busy. They are suspected only
where its process is seen to have crashed by itself (`sharding.deaths`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.rows import quarantine
from dlrover_nb.core.master.own.state.state_records import Fence
from dlrover_nb.core.sharding.deaths import MAX_DEATHS
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import Forget

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState


def begin(state: JobState, node: Node, why: str, at_s: float) -> None:
    """Remove a worker that may be alive; its shards stay with it until it is refused everywhere."""
    state.remove_node(node, at_s, why)
    epoch = state.group.ps_epoch if state.group is not None else 0
    state.fences = (*state.fences, Fence(node.id, epoch))


def on_forgotten(state: JobState, ps: Node, worker: str) -> None:
    """Record that a PS refuses a worker."""
    state.fences = tuple(
        replace(each, confirmed=(*each.confirmed, ps.id)) if each.worker == worker else each
        for each in state.fences
    )


def on_gone(state: JobState, worker: str, at_s: float, *, crashed: bool) -> None:
    """Take back the shards of a worker whose process has ended after all; whether it `crashed` by itself."""
    _open(state, [each for each in state.fences if each.worker == worker], at_s, crashed=crashed)


def advance(state: JobState, at_s: float) -> None:
    """Take back the shards of workers that every PS of their group refuses."""
    if state.fences:
        _open(state, [each for each in state.fences if not _missing(state, each)], at_s, crashed=False)


def repeat(state: JobState) -> None:
    """Repeat the orders that no PS has confirmed yet."""
    for fence in state.fences:
        for ps in _missing(state, fence):
            state.send(ps, Forget(fence.worker))


def _missing(state: JobState, fence: Fence) -> tuple[Node, ...]:
    """Return the PS that may still listen to a worker."""
    if state.group is None or state.group.ps_epoch != fence.ps_epoch:
        return ()
    return tuple(ps for ps in state.group_nodes if ps.id not in fence.confirmed)


def _open(state: JobState, fences: list[Fence], at_s: float, *, crashed: bool) -> None:
    state.fences = tuple(each for each in state.fences if each not in fences)
    for fence in fences:
        n_done, before = state.n_sample_done, quarantine.isolated(state)
        state.take_back(fence.worker, killed=crashed)
        if isolated := quarantine.describe_new(state, before):
            state.restarts[Role.WORKER].forgive(MAX_DEATHS, n_sample_done=n_done)
            state.note(isolated, at_s)
