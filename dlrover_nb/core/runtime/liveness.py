"""Limits of time of the job master: silent nodes, stages and plans without progress, and the phase.

All limits of time are defined here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.runtime import checkpoint_coordinator, migration_coordinator, ps_group, quarantine
from dlrover_nb.core.runtime.state import Stage
from dlrover_nb.core.sharding.deaths import MAX_DEATHS
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.messages import Stop
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.snapshot import ROOM, is_for_room

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.runtime.roster import Node
    from dlrover_nb.core.runtime.state import JobState

START_LIMIT_S = 90.0  # until Hello: a node has to find a place, start and import its libraries
DRAIN_LIMIT_S = 60.0  # for the shard at hand; what was acknowledged of it is not lost by ending it then
PAUSE_LIMIT_S = 60.0  # for one iteration
DISK_LIMIT_S = 300.0  # to save or load all parts
SWITCH_LIMIT_S = 60.0  # for the last parameters of a move
PLAN_LIMIT_S = 120.0  # without any node coming a step further
STOP_LIMIT_S = 20.0
ROOM_PATIENCE_S = 5.0  # that capacity which was just released takes to reach a new node


def node_lost(state: JobState, node: Node, why: str, at_s: float, *, retryable: bool = True) -> None:
    """Take back the shards of a lost node, and replace it within the restart budget."""
    was_leaving, n_done = node.is_draining and node.role is Role.WORKER, _n_sample_done(state)
    before = quarantine.isolated(state)
    state.send(node, Stop())  # it may be alive behind a broken connection
    state.stop_node(node, killed=True)
    isolated = quarantine.describe_new(state, before)
    ps_group.ps_lost(state, node.id, at_s)
    if was_leaving:
        if isolated:
            state.note(isolated, at_s)
        return
    if not retryable:
        state.end(JobPhase.FAILED, f"{node.id} cannot go on: {why}", at_s)
        return
    budget, n_planned = state.restarts[node.role], state.target.role(node.role).count
    has_worked = node.has_worked or (node.role is Role.PS and node.loaded_epoch > 0)
    budget.record(at_s, has_worked=has_worked, n_sample_done=n_done)
    if isolated:
        budget.forgive(MAX_DEATHS, n_sample_done=n_done)
    if budget.exhausted(at_s, n_planned):
        state.fail_plan(f"{node.role} nodes are lost again and again, the last one, {node.id}: {why}", at_s)
    else:
        went_back = state.stage is Stage.ASSEMBLING and node.role is Role.PS
        where = f"going on from {checkpoint_coordinator.source_name(state)}" if went_back else ""
        text = "; ".join(part for part in (why, where, isolated) if part)
        _emit_loss(state, f"{node.id} was lost: {text}", at_s)


def _n_sample_done(state: JobState) -> int:
    """Return the progress of the job in samples trained and evaluated."""
    return state.train.counts().n_sample_done + state.evaluate.counts().n_sample_done


def _emit_loss(state: JobState, text: str, at_s: float) -> None:
    """Emit a loss once: with the phase that it causes, or by itself."""
    before, state.message = state.phase, text
    update_phase(state, at_s)
    if state.phase is before:
        state.note(text, at_s)


def check_time(state: JobState, at_s: float) -> None:
    """Give up nodes, stages and plans that exceed their limits of time."""
    for node in state.roster.nodes:
        why = _overdue(state, node, at_s)
        if why and state.roster.get(node.id) is node:
            state.silent[node.id] = node
            node_lost(state, node, why, at_s)
    _check_stage(state, at_s)
    _check_plan(state, at_s)


def _check_plan(state: JobState, at_s: float) -> None:
    """End a stop or a change of plan that makes no progress."""
    if state.is_ended:
        return
    stop_limit_s = DISK_LIMIT_S if state.stage in {Stage.COPYING, Stage.SAVING} else STOP_LIMIT_S
    if state.stop_reason and at_s > state.last_step_s + stop_limit_s:
        state.end(JobPhase.STOPPED, f"{state.stop_reason}; there was no time to save", at_s)
    elif state.change is not None and at_s > state.last_step_s + PLAN_LIMIT_S:
        state.fail_plan(_why_stuck(state), at_s)


def _why_stuck(state: JobState) -> str:
    nodes = [node for node in state.roster.nodes if node.waits_for]
    if nodes and all(node.waits_for == ROOM for node in nodes):
        return f"no room was found within {PLAN_LIMIT_S:g} s: it {_needs(nodes)}; choose a smaller plan"
    late = f"its nodes did not come up within {PLAN_LIMIT_S:g} s"
    if nodes:
        return f"{late}, {_told(nodes)}; resolve that, or choose a smaller plan"
    return f"{late}; check their logs, or choose a smaller plan"


def set_waiting(state: JobState, reasons: Mapping[str, str], at_s: float) -> None:
    """Record which nodes the cluster cannot start now, and why; their start-up limit does not run meanwhile.

    A job without a plan to fall back to waits for capacity without a limit; a change of plan is given up
    after the usual limit. Before that, nodes of the old plan make room for it (`worker_set`, `ps_group`).
    """
    nodes = [node for node in state.roster.nodes if node.id in reasons and not node.is_up]
    for node in state.roster.nodes:
        node.waits_for, node.lacks_room = "", False
    for node in nodes:
        node.asked_s, node.waits_for = at_s, reasons[node.id] or ROOM
        node.lacks_room = is_for_room(node.waits_for) and at_s >= node.since_s + ROOM_PATIENCE_S
    if state.is_ended or state.stop_reason:
        return
    if nodes and (state.applied is None or state.change is None or state.change.is_fallback):
        state.last_step_s = at_s
    before, state.waits_for = state.waits_for, _told(nodes)
    if state.waits_for not in {"", before}:
        state.note(state.waits_for, at_s)
    elif before and not nodes:
        state.note(
            "room was found"
            if before.startswith(f"waiting for {ROOM}")
            else "what nodes waited for is there",
            at_s,
        )


def _told(nodes: Sequence[Node]) -> str:
    """Return as text what nodes wait for: each reason with its nodes."""
    reasons = dict.fromkeys(node.waits_for for node in nodes)
    return "; ".join(_told_of(why, [n for n in nodes if n.waits_for == why]) for why in reasons)


def _told_of(why: str, nodes: Sequence[Node]) -> str:
    if why == ROOM:
        return f"waiting for {ROOM}: {_needs(nodes)}"
    return f"waiting: {why} ({', '.join(n.id for n in nodes)})"


def _needs(nodes: Sequence[Node]) -> str:
    cpu, memory_mib = sum(n.cpu for n in nodes), sum(n.memory_mib for n in nodes)
    return f"needs {cpu:g} cores and {memory_mib} MiB for {', '.join(n.id for n in nodes)}"


def _overdue(state: JobState, node: Node, at_s: float) -> str:
    """Return why a node counts as lost; empty: it does not."""
    if node.is_adopted:
        is_gone = at_s > node.asked_s + state.spec.heartbeat_timeout_s
        return "it did not come back to the master" if is_gone else ""
    if not node.is_up:
        is_late = at_s > node.asked_s + START_LIMIT_S
        return f"it did not come up within {START_LIMIT_S:g} s" if is_late else ""
    silence_s = at_s - node.last_message_s
    if silence_s > state.spec.heartbeat_timeout_s:
        return f"it was silent for {silence_s:.0f} s"
    if node.is_draining and node.role is Role.WORKER and at_s > node.since_s + DRAIN_LIMIT_S:
        return f"it did not finish its shard within {DRAIN_LIMIT_S:g} s"
    if state.stage is Stage.PAUSING and node.is_training and at_s > state.stage_since_s + PAUSE_LIMIT_S:
        return f"it did not pause within {PAUSE_LIMIT_S:g} s"
    return ""


def _check_stage(state: JobState, at_s: float) -> None:
    """Give up PS that do not load or take over, and checkpoints that are not written."""
    checkpoint_coordinator.check_time(state, DISK_LIMIT_S, at_s)
    since_s = at_s - state.stage_since_s
    if state.stage is Stage.LOADING and since_s > DISK_LIMIT_S:
        _lose(state, ps_group.not_loaded(state), f"it did not load its part within {DISK_LIMIT_S:g} s", at_s)
    elif state.stage is Stage.SWITCHING and since_s > SWITCH_LIMIT_S:
        _lose(
            state,
            migration_coordinator.not_switched(state),
            f"it did not take over within {SWITCH_LIMIT_S:g} s",
            at_s,
        )


def _lose(state: JobState, nodes: Sequence[Node], why: str, at_s: float) -> None:
    for node in nodes:
        if not state.is_ended:
            node_lost(state, node, why, at_s)


def update_phase(state: JobState, at_s: float) -> None:
    """Set the phase that follows from the state."""
    if state.is_ended:
        return
    trains = any(w.is_training for w in state.roster.workers)
    if state.is_evaluating:
        state.set_phase(JobPhase.EVALUATING, at_s)
    elif state.change is not None and state.applied is not None:
        state.set_phase(JobPhase.RESCALING, at_s, f"changing to {state.target.short}")
    elif state.stage in {Stage.ASSEMBLING, Stage.LOADING} or (state.applied is None and not trains):
        state.set_phase(JobPhase.STARTING, at_s, state.message)
    else:
        state.set_phase(JobPhase.TRAINING, at_s)
