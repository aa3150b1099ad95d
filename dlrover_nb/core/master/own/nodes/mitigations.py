"""Actions against stragglers, on a job that runs: begun when decided, and ended when in effect or given up.

What concerns all workers (batch sizes, rates, backup workers) is in effect with the orders to the nodes. The
others take time. A node that is replaced gets a mark by which it has no shape of any plan (`Node.has_shape`):
so `worker_set` and `ps_group` start another one beside it, and let it go when that trains or holds its
parameters. A worker goes after its iteration, not after its shard, for it is slow; what is left of its shard
others train. Buckets of a PS that serves too slowly move within the group (`rebalancing`). A node that gets
a size of its own is resized in place (`resizing`); where its cluster cannot do that, one of that size takes
its place. It is an exception from the plan (`Node.size`) until it goes or the plan changes the size of its
role.

Every action is answered by exactly one `MitigationEnded`. Level-triggered as the modules that carry it out:
what became of an action is read from the state, so deaths, newer plans and a restarted master need no code of
their own. An action never costs more than it promises: no checkpoint is loaded for the want of room, and no
last worker stops before its successor trains. Where that is not possible the mark is taken away again, and
the job goes on as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.checkpoints import leaving
from dlrover_nb.core.master.own.nodes import worker_set
from dlrover_nb.core.master.own.servers import rebalancing
from dlrover_nb.core.master.own.state import batch_sizes
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.own.state.state_records import OpenMitigation
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    OwnAction,
    SetSize,
)
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.capacity import fits
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import MitigationEnded
from dlrover_nb.core.structs.wire.mitigation_messages import Backups, SetRate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice


def begin(state: JobState, choice: MitigationChoice, at_s: float) -> None:
    """Begin an action; nothing happens where it is under way, as when another master continues the job.

    Raises
    ------
    InvalidValueError
        When it names other nodes than there are, or does not fit the job.
    StaleDecisionError
        When it cannot be done now: the plan is not in place, parameters move, the job is about to end.
    """
    if any(each.decision == choice.decision for each in state.mitigations):
        return
    action = choice.action.action
    if state.applied is None or rebalancing.is_ending(state):
        raise _stale(state, "it is not training" if state.applied is None else "it is about to end")
    match action:
        case AdjustBatches():
            _adjust(state, action, choice, at_s)
        case BackupWorkers():
            _set_backups(state, action, choice, at_s)
        case AdjustRates():
            _set_rates(state, action, choice, at_s)
        case KillRestart():
            _replace(state, action, choice, at_s)
        case MoveBuckets():
            _move(state, action, choice, at_s)
        case SetSize():
            _resize(state, action, choice, at_s)
        case OwnAction():
            raise InvalidValueError(f"{action.words} is carried out beside the job master, not by it")
        case _ as never:
            assert_never(never)


def give_up_hopeless(state: JobState, at_s: float) -> None:
    """Give up actions that cannot come to an end, before others act on their marks."""
    for each in state.mitigations:
        if why := _why_hopeless(state, each):
            node = state.roster.get(each.node)
            if node is not None and not each.ps_epoch:
                node.is_replaced = node.is_replaced and not each.replaces
                state.note(f"{each.node} stays: {why}", at_s)
            _end(state, each, at_s, why)


def end_done(state: JobState, at_s: float) -> None:
    """End actions that are in effect."""
    for each in state.mitigations:
        if each.ps_epoch:
            is_done = state.group is not None and state.group.ps_epoch == each.ps_epoch
        elif each.in_place:
            node = state.roster.get(each.node)
            is_done = node is not None and node.resizing is None and (node.cpu, node.memory_mib) == each.size
        else:
            is_done = state.roster.get(each.node) is None and state.steady_since_s is not None
            if is_done:
                state.note(f"{each.node} was replaced", at_s)
        if is_done:
            _end(state, each, at_s, _why_other_size(state, each))


def _end(state: JobState, each: OpenMitigation, at_s: float, why_not: str = "") -> None:
    state.mitigations = tuple(other for other in state.mitigations if other is not each)
    state.orders.append(Emit(MitigationEnded(at_s, each.decision, why_not)))


# what concerns all workers


def _adjust(state: JobState, action: AdjustBatches, choice: MitigationChoice, at_s: float) -> None:
    if state.change is not None or state.mitigations:
        raise _stale(state, "its nodes are changing")
    batch_sizes.check_may_differ(state)
    sizes, present = dict(action.samples), {worker.id for worker in _present_workers(state)}
    if sizes.keys() != present:
        raise InvalidValueError(
            f"expected a batch size of each of {_listed(present)}, got those of {_listed(sizes)}"
        )
    _note(state, choice, at_s)
    batch_sizes.set_sizes(state, sizes, dict(action.accumulate))
    _in_effect(state, choice, at_s)


def _set_backups(state: JobState, action: BackupWorkers, choice: MitigationChoice, at_s: float) -> None:
    batch_sizes.check_may_differ(state)
    if state.spec.sync is not Sync.BSP:
        raise InvalidValueError(
            f"backup workers are for bulk-synchronous training (bsp), got a job with {state.spec.sync}"
        )
    n_worker = state.target.worker.count
    if action.n >= n_worker:
        raise InvalidValueError(
            f"expected fewer backup workers than the {n_worker} workers of the plan, got {action.n}"
        )
    _note(state, choice, at_s)
    state.backups = action.n
    state.coordinate(Backups(action.n))
    _in_effect(state, choice, at_s)


def _set_rates(state: JobState, action: AdjustRates, choice: MitigationChoice, at_s: float) -> None:
    if state.spec.sync is Sync.BSP:
        raise InvalidValueError(
            "learning rates of single workers are for sync asp, ssp or gba, got a job with bsp, where all "
            "gradients of a round make one step"
        )
    factors, present = dict(action.factors), {worker.id: worker for worker in _present_workers(state)}
    if not factors.keys() <= present.keys():
        raise InvalidValueError(f"expected factors of {_listed(present)}, got those of {_listed(factors)}")
    _note(state, choice, at_s)
    state.rates = {name: f for name, f in state.rates.items() if state.roster.get(name)} | factors
    for name, factor in factors.items():
        state.send(present[name], SetRate(factor))
    _in_effect(state, choice, at_s)


def _in_effect(state: JobState, choice: MitigationChoice, at_s: float) -> None:
    state.orders.append(Emit(MitigationEnded(at_s, choice.decision)))


def _present_workers(state: JobState) -> tuple[Node, ...]:
    up = (worker for worker in state.roster.workers if worker.is_up or worker.is_adopted)
    return tuple(worker for worker in up if not worker.is_draining)


# single nodes


def _replace(state: JobState, action: KillRestart, choice: MitigationChoice, at_s: float) -> None:
    node = _node_of(state, action.node, action.role)
    if node.is_going or node.is_draining:
        raise _stale(state, f"{node.id} is already leaving")
    if action.role is Role.WORKER:
        _check_worker(state, node)
    else:
        _check_ps(state, node)
    node.is_replaced = True
    state.note(f"{choice.by} decided to replace {node.id}" + _because(choice), at_s)
    state.steady_since_s, state.last_step_s = None, at_s
    _open(state, OpenMitigation(choice.decision, node.id, action.role, at_s))


def _check_worker(state: JobState, node: Node) -> None:
    is_alone = all(each.role is Role.WORKER for each in state.mitigations)
    if state.move is not None or not is_alone:
        raise _stale(state, "parameters move")
    if state.steady_since_s is None and not state.mitigations:
        raise _stale(state, "its plan is not in place")
    if worker_set.is_last_without_room(state, node):
        raise _stale(state, f"no other worker is training, and there is no room for one beside {node.id}")


def _check_ps(state: JobState, node: Node) -> None:
    if state.move is not None:
        raise _stale(state, "parameters move")
    if state.steady_since_s is None or node not in state.group_nodes:
        raise _stale(state, "its plan is not in place")
    if leaving.lacks_room_beside(state):
        raise _stale(state, f"there is no room for another parameter server beside {node.id}")


def _move(state: JobState, action: MoveBuckets, choice: MitigationChoice, at_s: float) -> None:
    node = _node_of(state, action.ps, Role.PS)
    group = state.group
    if state.mitigations or group is None or node not in state.group_nodes:
        raise _stale(state, "its plan is not in place")
    owner, index = rebalancing.balanced_owner(state), group.nodes.index(node.id)
    if owner is None:
        raise _stale(state, "the loads of its parameter servers are balanced, or not measured yet")
    owner, n_before = rebalancing.within_memory(state, owner), group.bucket_owner.count(index)
    if owner.count(index) >= n_before:
        raise _stale(
            state,
            f"the measured loads do not ask for fewer buckets than the {n_before} of {node.id}, "
            "or the others have no memory for them",
        )
    rebalancing.rebalance(state, owner, at_s)
    assert state.move is not None
    _note(state, choice, at_s)
    _open(state, OpenMitigation(choice.decision, node.id, Role.PS, at_s, state.move.group.ps_epoch))


def _resize(state: JobState, action: SetSize, choice: MitigationChoice, at_s: float) -> None:
    node, need = _node_of(state, action.node, action.role), (action.cpu, action.memory_mib)
    if need == (node.cpu, node.memory_mib):
        raise InvalidValueError(
            f"{node.id} has {need[0]:g} cores and {need[1]} MiB already; give another size"
        )
    in_place = state.resizes_in_place
    if in_place is None or state.mitigations or state.steady_since_s is None or node.is_going:
        raise _stale(state, "its plan is not in place")
    if not in_place:
        _check_worker(state, node) if node.role is Role.WORKER else _check_ps(state, node)
    others = [each.need for each in state.roster.nodes if not (in_place and each is node)]
    if not fits(state.capacity, [node.need_with(need), *others]):
        raise _stale(state, f"no machine has room for {node.id} with that size beside the others")
    if in_place:
        plan = state.target.role(node.role)
        node.size = None if need == (plan.cpu, plan.memory_mib) else need
    else:
        node.is_replaced = True
    _note(state, choice, at_s)
    state.steady_since_s, state.last_step_s = None, at_s
    opened = OpenMitigation(choice.decision, node.id, node.role, at_s, size=need, in_place=in_place)
    _open(state, opened)


def _node_of(state: JobState, name: str, role: Role) -> Node:
    node = state.roster.get(name)
    if node is None or node.role is not role:
        ids = [each.id for each in state.roster.nodes if each.role is role]
        raise InvalidValueError(f"expected one of {_listed(ids)}, got {name}")
    return node


def _open(state: JobState, mitigation: OpenMitigation) -> None:
    state.mitigations = (*state.mitigations, mitigation)


def _why_hopeless(state: JobState, each: OpenMitigation) -> str:
    """Return why an action cannot come to an end; empty: it may."""
    node = state.roster.get(each.node)
    if each.ps_epoch:
        is_moving = state.move is not None and state.move.group.ps_epoch == each.ps_epoch
        is_there = state.group is not None and state.group.ps_epoch == each.ps_epoch
        return "" if is_moving or is_there else each.failed or "something else happened first"
    if rebalancing.is_ending(state):
        return "the job is about to end"
    if each.in_place:
        return each.failed or _why_no_size(state, node, each)
    if node is None or node.is_draining or state.stage is Stage.SWITCHING:
        lost_ps = node is None and each.role is Role.PS
        return each.failed if lost_ps else ""
    return each.failed or _why_no_room(state, node)


def _why_no_size(state: JobState, node: Node | None, each: OpenMitigation) -> str:
    if node is None or node.is_draining or node.is_going:
        return "it leaves"
    is_wanted = node.size_in(state.target.role(node.role)) == each.size
    return "" if is_wanted else "the plan gives its role another size"


def _why_other_size(state: JobState, each: OpenMitigation) -> str:
    """Return why no node has the size that one was to have; empty: one has it, or none was to."""
    sizes = {(node.cpu, node.memory_mib) for node in state.roster.nodes if node.role is each.role}
    return "" if each.size is None or each.size in sizes else "the plan changed before"


def _why_no_room(state: JobState, node: Node) -> str:
    if state.stage not in {Stage.SERVING, Stage.PAUSING} or not state.roster.is_complete:
        return ""
    if node.role is Role.WORKER:
        is_stuck = state.stage is Stage.SERVING and worker_set.is_last_without_room(state, node)
        return "no other worker is training, and there is no room for one beside it" if is_stuck else ""
    if node.is_leaving or not leaving.lacks_room_beside(state):
        return ""
    return "there is no room for another parameter server beside it"


# words


def _stale(state: JobState, why: str) -> StaleDecisionError:
    return StaleDecisionError(
        f"an action needs a job that trains with all nodes of its plan, but job {state.spec.name} cannot "
        f"take one now: {why}; measure again, then decide"
    )


def _note(state: JobState, choice: MitigationChoice, at_s: float) -> None:
    state.note(f"{choice.by} decided to {choice.action.words}" + _because(choice), at_s)


def _because(choice: MitigationChoice) -> str:
    return f": {choice.why}" if choice.why else ""


def _listed(names: Iterable[str]) -> str:
    return and_list(sorted(names)) or "no node"
