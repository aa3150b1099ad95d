"""Limits of time of the job master: silent nodes, stages and plans without progress, and the phase.

All limits of time are defined here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator, copy_coordinator, leaving
from dlrover_nb.core.master.own.nodes import fencing, refusals
from dlrover_nb.core.master.own.rows import quarantine
from dlrover_nb.core.master.own.servers import migration_coordinator, ps_group, rebalancing
from dlrover_nb.core.master.own.state import learning_rate, resizing
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.own.state.state_records import after_loss, failed
from dlrover_nb.core.master.shared import crash_loops
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.sharding.deaths import MAX_DEATHS
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import machines, n_more
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.failures import counted
from dlrover_nb.core.structs.views.events import NodeStarted
from dlrover_nb.core.structs.views.snapshot import ROOM, is_for_room
from dlrover_nb.core.structs.wire.messages import Adjust, Alive, Drain, Report
from dlrover_nb.core.structs.wire.mitigation_messages import SetRate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.plan.capacity import NodeLimits
    from dlrover_nb.core.structs.training.failures import ProgramError
    from dlrover_nb.core.structs.wire.messages import FromNode, Hello

START_LIMIT_S = 90.0  # until Hello: a node has to find a place, start and import its libraries
DRAIN_LIMIT_S = 60.0  # for the shard at hand; what was acknowledged of it is not lost by ending it then
PAUSE_LIMIT_S = 60.0  # for one iteration
DISK_LIMIT_S = 300.0  # to save all parts; to load without progress; for one piece of either
SWITCH_LIMIT_S = 60.0  # for the last parameters of a move
PLAN_LIMIT_S = 120.0  # without any node coming a step further
STARVED_LIMIT_S = 300.0  # that a node may get no processor, beside the usual limit
SILENT_S = 3.0  # without a word, though each node speaks every second: its host is asked for the reason
LATE_PART = 0.25  # of the heartbeat's limit: a heartbeat that had to wait so long tells what its host is like
LATE_FOR_S = 300.0  # that it does
RESIZE_LIMIT_S = 60.0  # for one node to get another size in place; the backend gives up before
STOP_LIMIT_S = 20.0
ROOM_PATIENCE_S = 5.0  # that capacity which was just released takes to reach a new node
LONGEST_TURN_S = 5.0  # of the master: it was away if it takes longer


def record_message(state: JobState, node: Node, message: FromNode, at_s: float) -> None:
    """Record that a node lives, and whether its main thread works: a heartbeat alone does not prove that.

    A PS that loads its part is progress of the plan, however long it takes.
    """
    node.last_message_s = at_s
    if isinstance(message, Alive | Report):
        _note_late(state, node, message.late_s, at_s)
    node.waited_s = 0.0
    if isinstance(message, Alive):
        has_progressed, node.n_step, node.doing = message.n_step != node.n_step, message.n_step, message.doing
        _note_starved(state, node, 0.0 if has_progressed else message.starved_s, at_s)
    else:
        has_progressed = True
        node.doing = message.doing if isinstance(message, Report) else node.doing
    if isinstance(message, Report) and message.is_leaving:
        leaving.on_leaving(state, node, at_s)
    if has_progressed:
        node.progressed_s = at_s
    if has_progressed and node.doing and state.stage is Stage.LOADING and node in ps_group.not_loaded(state):
        state.last_step_s = at_s


def on_hello(state: JobState, node: Node, hello: Hello, at_s: float) -> None:
    """Record that a node is up, and repeat what may have been lost with an earlier master or a connection."""
    if node.is_up:  # it has connected again, and what was on its way is lost
        _repeat_orders(state, node)
        node.resize_asked_s = None
        copy_coordinator.on_connected_again(state, node)
        if node.role is Role.WORKER:
            ps_group.repeat_order(state, node)
        else:
            checkpoint_coordinator.on_connected_again(state, node, at_s)
            ps_group.repeat_load(state, node, hello)
        return
    if node.is_adopted:
        _repeat_orders(state, node)
    else:
        state.orders.append(Emit(NodeStarted(at_s, node.id, node.role, node.asked_s - node.since_s)))
    state.roster.register(node, hello, at_s)
    state.last_step_s = at_s


def _repeat_orders(state: JobState, node: Node) -> None:
    """Send orders again that may have been lost with an earlier master or a connection."""
    if node.role is Role.PS:
        migration_coordinator.resend_outcome(state, node)
        learning_rate.repeat(state, node)
        if node is state.coordinator:
            state.instruct_coordinator()
        return
    if node.is_draining:
        state.send(node, Drain(at_once=node.is_replaced))
    if not state.spec.sync.waits and node.id in state.batch_sizes:
        times = state.batch_times.get(node.id)
        accumulate = ((node.id, times),) if times else ()
        state.send(node, Adjust(((node.id, state.batch_sizes[node.id]),), accumulate))
    if state.rates.get(node.id, 1.0) != 1.0:
        state.send(node, SetRate(state.rates[node.id]))


def node_lost(  # noqa: PLR0913 - what is known of its end, by keyword
    state: JobState,
    node: Node,
    why: str,
    at_s: float,
    *,
    retryable: bool = True,
    refused: NodeLimits | None = None,
    may_live: bool = False,
    by_its_work: bool = False,
    error: ProgramError | None = None,
) -> None:
    """Take back the shards of a lost node, and replace it within the restart budget.

    Parameters
    ----------
    retryable
        False when a new node would fail in the same way. One of a change of plan that never came up ends the
        change alone: the plan before runs without it.
    refused
        Why the cluster did not let it be made, see `refusals`; None: it did.
    may_live
        Whether its process may still run: its shards are taken back when PS refuse it.
    by_its_work
        Whether the rows at hand may be the reason (`sharding.deaths`).
    error
        The error of its program; None: its program is not known to have failed.
    """
    was_leaving, n_done = node.is_draining and node.role is Role.WORKER, state.n_sample_done
    before = quarantine.isolated(state)
    state.mitigations = after_loss(state.mitigations, node, why)
    if may_live and node.role is Role.WORKER:
        fencing.begin(state, node, why, at_s)
    else:
        state.remove_node(node, at_s, why, is_retryable=retryable)
        state.take_back(node.id, killed=by_its_work)
    isolated = quarantine.describe_new(state, before)
    ps_group.ps_lost(state, node.id, at_s)
    if was_leaving:
        if isolated:
            state.note(isolated, at_s)
        return
    if not retryable:
        never_ran = not node.is_up and error is None
        refusals.hopeless(state, node, why, refused, at_s, never_ran=never_ran)
        return
    if error is not None and error.place and error.place not in why:
        why = f"{why} ({error.place})"
    if error is not None and (loop := _count(state, node, error, at_s)):
        state.fail_plan(loop, at_s)
        return
    budget, n_planned = state.restarts[node.role], state.target.role(node.role).count
    has_worked = node.has_worked or (node.role is Role.PS and node.loaded_epoch > 0)
    budget.record(at_s, has_worked=has_worked, n_sample_done=n_done)
    if isolated:
        budget.forgive(MAX_DEATHS, n_sample_done=n_done)
    if budget.exhausted(at_s, n_planned):
        state.fail_plan(f"{node.role} nodes keep failing; last {node.id}: {why}", at_s)
    else:
        went_back = state.stage is Stage.ASSEMBLING and node.role is Role.PS
        where = f"continuing from {checkpoint_coordinator.source_name(state)}" if went_back else ""
        text = "; ".join(part for part in (why, where, isolated) if part)
        lost = "was lost" if node.is_up or node.is_adopted else "did not start"
        _emit_loss(state, f"{node.id} {lost}: {text}", at_s)


def _count(state: JobState, node: Node, error: ProgramError, at_s: float) -> str:
    """Count an error; return why the job ends by it, or an empty text."""
    state.errors = counted(state.errors, error, role=node.role, node=node.id, at_s=at_s)
    return crash_loops.why_ended(state.spec, state.errors[-1], state.target.role(node.role).count)


def _emit_loss(state: JobState, text: str, at_s: float) -> None:
    """Emit a loss once: with the phase that it causes, or by itself."""
    before, state.message = state.phase, text
    update_phase(state, at_s)
    if state.phase is before:
        state.note(text, at_s)


def _note_starved(state: JobState, node: Node, starved_s: float, at_s: float) -> None:
    """Record how long a node got no processor; say so once, when it would be given up without this."""
    limit_s, stuck_s = state.spec.heartbeat_timeout_s, at_s - node.progressed_s
    starved_s = min(starved_s, stuck_s)  # it may count from before a report
    before_s, node.starved_s = node.starved_s, starved_s
    is_news = before_s < limit_s / 2 <= starved_s
    if is_news and not state.is_ended:
        where = f" on {node.machine}" if node.machine else ""
        state.note(
            f"{node.id} got no processor for {starved_s:.0f} of {stuck_s:.0f} s, because of other "
            f"work{where} "
            "or too few cores; we give it more time",
            at_s,
        )


class SilentNode(NamedTuple):
    """A node without a word since `since_s`: its process on its host."""

    id: str
    host: str
    pid: int
    since_s: float


def silent_nodes(state: JobState, at_s: float) -> tuple[SilentNode, ...]:
    """Return the nodes that have missed some heartbeats, also those that shall reconnect to a new master."""
    return tuple(
        SilentNode(node.id, node.host, node.pid, _last_word_s(node))
        for node in state.roster.nodes
        if (node.is_up or node.is_adopted) and node.pid is not None and at_s > _last_word_s(node) + SILENT_S
    )


def record_waits(state: JobState, waits: Mapping[str, float], pressure: float | None, at_s: float) -> None:
    """Record for how long silent nodes of one host got no processor; say so, before they would be lost.

    Parameters
    ----------
    waits
        Seconds by node. Those of a stopped, hung or dead process do not grow.
    pressure
        Share of the last seconds in which processes of the host waited for processors; None: not known.
    """
    nodes, limit_s = [each for each in state.roster.nodes if each.id in waits], state.spec.heartbeat_timeout_s
    for node in nodes:
        node.waited_s = waits[node.id]
    starved = [node for node in nodes if node.waited_s >= limit_s / 2]
    if not starved:
        return
    worst = max(starved, key=lambda node: node.waited_s)
    share = "" if pressure is None else f"; some process there waits for one {percent(pressure)} of the time"
    figures = (
        f"{and_list(node.id for node in starved)} got no processor for {worst.waited_s:.0f} of the "
        f"{at_s - _last_word_s(worst):.0f} s since the last report{share}"
    )
    _tell_busy(state, worst, figures, STARVED_LIMIT_S, at_s)


def _note_late(state: JobState, node: Node, late_s: float, at_s: float) -> None:
    """Record that a heartbeat had to wait for a processor, and say so."""
    if late_s >= state.spec.heartbeat_timeout_s * LATE_PART:
        node.late_s, node.late_at_s = late_s, at_s
        figures = f"the heartbeat of {node.id} had to wait for a processor for {late_s:.0f} s"
        _tell_busy(state, node, figures, _patience_s(state, node, at_s), at_s)


def _tell_busy(state: JobState, node: Node, figures: str, patience_s: float, at_s: float) -> None:
    """Say that the host of a node is too busy, unless that was said a while ago."""
    limit_s, beside = state.spec.heartbeat_timeout_s, _beside(state, node)
    if state.is_ended or any(at_s <= each.busy_told_s + LATE_FOR_S for each in beside):
        return
    node.busy_told_s = at_s
    host = f"host {node.machine}" if node.machine else "the host"
    state.note(
        f"{host} is too busy for its nodes to answer in time: {figures}; "
        f"we wait up to {limit_s + patience_s:.0f} s instead of {limit_s:g} s",
        at_s,
    )


def _beside(state: JobState, node: Node) -> list[Node]:
    """Return the nodes of the host of a node, itself among them."""
    return [each for each in state.roster.nodes if each.machine == node.machine]


def _late_before(state: JobState, node: Node, at_s: float) -> float:
    """Return for how long a heartbeat from the host of a node had to wait of late; 0: none had to."""
    return max(
        (each.late_s for each in _beside(state, node) if at_s <= each.late_at_s + LATE_FOR_S), default=0.0
    )


def _patience_s(state: JobState, node: Node, at_s: float) -> float:
    """Return how much more time a node gets as its host is busy: its waits, or twice one of late."""
    waited_s = max(node.waited_s, node.starved_s)
    return min(max(waited_s, 2 * _late_before(state, node, at_s)), STARVED_LIMIT_S)


def _last_word_s(node: Node) -> float:
    """Return since when a node is silent; of one that shall reconnect, since it was asked to."""
    return node.asked_s if node.is_adopted else node.last_message_s


def _excuse_absence(state: JobState, at_s: float) -> None:
    """Extend the limits of time by one in which the master itself did nothing.

    A master that was stopped, swapped out or waited for a disk has not read what its nodes sent meanwhile.
    Who was silent then is not known, and all of them must not be replaced for it.
    """
    absent_s, state.ticked_s = at_s - state.ticked_s, at_s
    if absent_s <= LONGEST_TURN_S or state.is_ended:
        return
    for node in state.roster.nodes:
        node.last_message_s = min(node.last_message_s + absent_s, at_s)
        node.progressed_s = min(node.progressed_s + absent_s, at_s)
        node.asked_s = min(node.asked_s + absent_s, at_s)
        if node.resize_asked_s is not None:
            node.resize_asked_s = min(node.resize_asked_s + absent_s, at_s)
    state.stage_since_s = min(state.stage_since_s + absent_s, at_s)
    state.last_step_s = min(state.last_step_s + absent_s, at_s)
    state.note(f"the controller was stalled for {absent_s:.0f} s; nodes are fine", at_s)


def check_time(state: JobState, at_s: float) -> None:
    """Give up nodes, stages and plans that exceed their limits of time."""
    _excuse_absence(state, at_s)
    if state.is_held and not state.stop_reason:
        state.last_step_s = at_s  # it may wait in the queue for as long as that takes
    for node in state.roster.nodes:
        why = _overdue(state, node, at_s)
        if why and state.roster.get(node.id) is node:
            state.silent[node.id] = node
            node_lost(state, node, why, at_s, may_live=True)
    resizing.check_time(state, RESIZE_LIMIT_S, at_s)
    _check_stage(state, at_s)
    _check_plan(state, at_s)


def _check_plan(state: JobState, at_s: float) -> None:
    """End a stop or a change of plan that makes no progress."""
    if state.is_ended:
        return
    stop_limit_s = DISK_LIMIT_S if state.stage in {Stage.COPYING, Stage.SAVING} else STOP_LIMIT_S
    if state.stop_reason and at_s > state.last_step_s + stop_limit_s:
        state.end(JobPhase.STOPPED, f"{state.stop_reason}; no checkpoint was saved in time", at_s)
    elif state.change is not None and at_s > state.last_step_s + PLAN_LIMIT_S:
        state.fail_plan(_why_stuck(state), at_s)
    elif rebalancing.is_under_way(state) and at_s > state.last_step_s + PLAN_LIMIT_S:
        rebalancing.give_up(state, f"no rows moved within {PLAN_LIMIT_S:g} s", at_s)
    elif at_s > state.last_step_s + PLAN_LIMIT_S:
        why = f"no node made progress within {PLAN_LIMIT_S:g} s"
        state.mitigations = failed(state.mitigations, why, of_moves=False)


def _why_stuck(state: JobState) -> str:
    nodes = [node for node in state.roster.nodes if node.waits_for]
    if state.waits_for_step:
        return (
            f"it begins between two steps, and no step was complete within {PLAN_LIMIT_S:g} s; choose it "
            "again once steps go on, or set a smaller global_batch"
        )
    if nodes and all(node.waits_for == ROOM for node in nodes):
        return f"no room was found within {PLAN_LIMIT_S:g} s: it {_needs(nodes)}; choose a smaller plan"
    late = f"its nodes did not start within {PLAN_LIMIT_S:g} s"
    if nodes:
        return f"{late}, {_told(nodes)}; resolve that, or choose a smaller plan"
    return f"{late}; check their logs, or choose a smaller plan"


def set_waiting(state: JobState, reasons: Mapping[str, str], at_s: float) -> None:
    """Record which nodes the cluster cannot start now, and why; their start-up limit does not run meanwhile.

    A job without a plan to fall back to waits for capacity without a limit; a change of plan is given up
    after the usual limit. Before that, nodes of the old plan make room for it (`worker_set`, `ps_group`).
    Nodes that are not even asked for, as the capacity has become too small for them, are waited for likewise.
    """
    nodes = [node for node in state.roster.nodes if node.id in reasons and not node.is_up]
    is_awaited = any(node.waits_for for node in state.roster.nodes)  # else who waited is gone
    for node in state.roster.nodes:
        node.waits_for, node.lacks_room = "", False
    for node in nodes:
        node.asked_s, node.waits_for = at_s, reasons[node.id] or ROOM
        node.lacks_room = is_for_room(node.waits_for) and at_s >= node.since_s + ROOM_PATIENCE_S
    if state.is_ended or state.stop_reason:
        return
    lack = "" if nodes else _lack(state, at_s)
    if (nodes or lack) and not state.has_way_back:
        state.last_step_s = at_s
    before, state.waits_for = state.waits_for, _told(nodes) or lack
    if state.waits_for not in {"", before}:
        state.note(state.waits_for, at_s)
    elif before and not state.waits_for:
        was_for_room = before.startswith(f"waiting for {ROOM}")
        available = "room was found" if was_for_room else "nodes have what they waited for"
        state.note(available if is_awaited else "no node is waiting any more", at_s)


def _lack(state: JobState, at_s: float) -> str:
    """Return which nodes are missing that the capacity has no room for; empty: none, or not for long.

    A change of plan from one that ran is given up by itself: only what that plan lacks is waited for.
    """
    is_ending = state.is_evaluating or state.train.finished or state.is_held
    role = None if is_ending or state.has_way_back or not state.roster.is_complete else _short_role(state)
    state.short_since_s = None if role is None else (state.short_since_s or at_s)
    if role is None or at_s < (state.short_since_s or at_s) + ROOM_PATIENCE_S:
        return ""
    want = state.target.role(role)
    return (
        f"waiting for {ROOM}: a {role} node needs {want.need.words} beside the "
        f"job's other nodes, and the job may now use {machines(state.capacity)}"
    )


def _short_role(state: JobState) -> Role | None:
    """Return a role that misses nodes of which not one more fits; None: there is none."""
    for role in Role:
        want = state.target.role(role)
        n_there = sum(node.role is role and not node.is_draining for node in state.roster.nodes)
        if n_there < want.count and not n_more(state.capacity, state.roster.needs, want.need, at_most=1):
            return role
    return None


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
    return f"needs {cpu:g} cores and {memory_mib} MiB for {and_list(n.id for n in nodes)}"


def _overdue(state: JobState, node: Node, at_s: float) -> str:
    """Return why a node counts as lost; empty: it does not."""
    if not (node.is_up or node.is_adopted):
        is_late = at_s > node.asked_s + START_LIMIT_S
        return f"it did not start within {START_LIMIT_S:g} s" if is_late else ""
    late_s = at_s - _last_word_s(node) - state.spec.heartbeat_timeout_s
    if late_s > 0 and late_s > _patience_s(state, node, at_s):
        return _why_silent(node, at_s)
    if node.is_adopted:
        return ""
    return _hung(state, node, at_s) or _late(state, node, at_s)


def _why_silent(node: Node, at_s: float) -> str:
    waited = f", and got no processor for {node.waited_s:.0f} s of it" if node.waited_s >= 1 else ""
    if node.is_adopted:
        return f"it did not reconnect to the master{waited and f' for {at_s - node.asked_s:.0f} s'}{waited}"
    return f"it sent no report for {at_s - node.last_message_s:.0f} s{waited}"


def _late(state: JobState, node: Node, at_s: float) -> str:
    """Return what a worker that works has not done in time; empty: nothing."""
    is_draining = node.is_draining and node.role is Role.WORKER
    drains_s, pauses_s = at_s - node.since_s - DRAIN_LIMIT_S, at_s - state.stage_since_s - PAUSE_LIMIT_S
    if is_draining and drains_s > 0 and drains_s > _patience_s(state, node, at_s):
        return f"it did not finish its shard within {DRAIN_LIMIT_S:g} s"
    is_pausing = state.stage is Stage.PAUSING and node.is_training
    if is_pausing and pauses_s > 0 and pauses_s > _patience_s(state, node, at_s):
        return f"it did not pause within {PAUSE_LIMIT_S:g} s"
    return ""


def _hung(state: JobState, node: Node, at_s: float) -> str:
    """Return why the main thread of a living node counts as hung; empty: it does not."""
    stuck_s, limit_s = at_s - node.progressed_s, state.spec.heartbeat_timeout_s
    if node.doing:
        limit_s = max(limit_s, DISK_LIMIT_S)
    if stuck_s <= limit_s or stuck_s <= limit_s + _patience_s(state, node, at_s):
        return ""
    while_ = f" while it {node.doing}" if node.doing else ""
    starved = f", and got no processor for {node.starved_s:.0f} s of it" if node.starved_s >= 1 else ""
    return f"it is alive, but has made no progress for {stuck_s:.0f} s{while_}{starved}"


def _check_stage(state: JobState, at_s: float) -> None:
    """Give up PS that do not load or take over, and checkpoints that are not written."""
    checkpoint_coordinator.check_time(state, DISK_LIMIT_S, at_s)
    since_s = at_s - state.stage_since_s
    if state.stage is Stage.LOADING and since_s > DISK_LIMIT_S:
        late = [node for node in ps_group.not_loaded(state) if not node.doing]  # else see `_hung`
        _lose(state, late, f"it did not load its part within {DISK_LIMIT_S:g} s", at_s)
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
    blocked = quarantine.why_blocked(state)
    if state.is_evaluating and not blocked:
        state.set_phase(JobPhase.EVALUATING, at_s)
    elif state.change is not None and state.applied is not None:
        state.set_phase(JobPhase.RESCALING, at_s, f"changing to {state.target.short}")
    elif state.stage in {Stage.ASSEMBLING, Stage.LOADING} or (state.applied is None and not trains):
        state.set_phase(JobPhase.STARTING, at_s, state.message)
    elif blocked:
        state.set_phase(JobPhase.BLOCKED, at_s, blocked)
    else:
        state.set_phase(JobPhase.TRAINING, at_s)
