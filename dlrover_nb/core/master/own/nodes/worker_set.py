"""Which workers to start, drain and stop so that the worker set matches the plan.

Workers join and leave while training goes on, so this is a pure function of the actual and the wanted set
(level-triggered): after any lost message the next call finds the difference again. New workers start before
old ones leave, as far as capacity allows. Only where not a single new worker fits is an old one drained
first, one at a time. Whether one fits is known by the capacity, and by the cluster: a new worker that waits
for room is not about to start, however much the capacity promises (a placement group that holds what one of
its nodes has left, pieces on several machines, another job).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.nodes.liveness import ROOM_PATIENCE_S
from dlrover_nb.core.master.own.state import resizing
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.plan.capacity import n_more
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import Drain

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.plan.resources import RolePlan


@dataclass(frozen=True, slots=True)
class WorkerSetChange:
    """How many workers to start, and which ones to remove (drain those that train, stop the others)."""

    n_start: int = 0
    leave: tuple[Node, ...] = ()


def worker_set_change(
    workers: Sequence[Node],
    want: RolePlan,
    room: int,
    coming: Collection[str] = (),
    *,
    none_trains: bool = False,
) -> WorkerSetChange:
    """Return the next step from `workers` (oldest first) to `want`.

    Parameters
    ----------
    room
        How many more workers of the wanted shape fit into the cluster now.
    coming
        Names of workers that get the wanted shape in place: they stay.
    none_trains
        Whether no worker can train, as there are no PS: then one that is up replaces another as well. Else an
        outdated one would wait for a replacement that trains, and keep the room that the PS need.

    Notes
    -----
    A worker of the wanted shape is surplus beyond the count: the newest leaves first, and one that is not
    up yet before one that trains. A worker of another shape stays until its replacement trains.
    """
    staying = [w for w in workers if not w.is_draining]
    fitting = [w for w in staying if w.has_shape(want) or w.id in coming]
    outdated = [w for w in staying if not w.has_shape(want) and w.id not in coming]
    missing = want.count - len(fitting)
    n_start = max(0, min(missing, room))
    surplus = _leaving_order(fitting)[: max(0, -missing)]
    n_ready = sum(w.is_training or (none_trains and w.is_up) for w in fitting)
    n_replaced = min(len(outdated), max(0, n_ready + len(outdated) - want.count))
    if not n_replaced and _is_stuck(workers, fitting, n_missing=missing, n_start=n_start):
        n_replaced = min(1, len(outdated))
    leave = surplus + _leaving_order(outdated)[:n_replaced]
    return WorkerSetChange(n_start, tuple(w for w in leave if not _is_needed(w, staying)))


def _is_needed(worker: Node, staying: Sequence[Node]) -> bool:
    """Whether it trains alone, and is replaced only as it is slow."""
    trains = [each for each in staying if each.is_training]
    return worker.is_replaced and trains == [worker]


def is_last_without_room(state: JobState, worker: Node) -> bool:
    """Whether no other worker trains, and no other one can start beside it."""
    want, others = state.target.worker, [w for w in state.roster.workers if w is not worker]
    if any(w.is_training and not w.is_draining for w in others):
        return False
    coming = [w for w in others if w.has_shape(want) and not w.is_draining]
    return any(w.lacks_room for w in coming) or (not coming and not _room(state, want))


def _leaving_order(workers: Sequence[Node]) -> list[Node]:
    newest_first = list(reversed(workers))
    return sorted(newest_first, key=lambda w: w.is_training)


def _is_stuck(workers: Sequence[Node], fitting: Sequence[Node], *, n_missing: int, n_start: int) -> bool:
    """Whether workers are missing, none can be started, and no capacity is about to become free."""
    someone_moves = any(w.is_draining for w in workers)
    someone_starts = n_start > 0 or any(not w.is_up and not w.lacks_room for w in fitting)
    is_short = n_missing > 0 or any(w.lacks_room for w in fitting)
    return is_short and not someone_moves and not someone_starts


def reconcile_workers(state: JobState, at_s: float) -> None:
    """Take the next step towards the workers of the target.

    During a change of PS, paused workers of an outdated shape may be stopped: their position is known
    exactly. In an evaluation, which is short, only a lost last worker is replaced. While a PS lacks room, no
    worker starts: it would take what the PS waits for.
    """
    if state.stage not in {Stage.SERVING, Stage.ASSEMBLING} or state.stop_reason:
        return
    if not state.roster.is_complete:
        return  # an adopted worker may train before its Hello arrives
    want = state.target.worker
    if state.is_evaluating:
        state.start_nodes(Role.WORKER, 0 if state.roster.workers else 1, at_s)
        return
    workers = state.roster.workers
    if any(ps.lacks_room for ps in state.roster.ps):
        _make_room(state, at_s)
        return
    if len(workers) == want.count and all(w.has_shape(want) and not w.is_draining for w in workers):
        return  # complete, or starting
    coming = {worker.id for worker in resizing.awaited(state, Role.WORKER)}
    none_trains = state.stage is Stage.ASSEMBLING
    change = worker_set_change(workers, want, _room(state, want), coming, none_trains=none_trains)
    state.start_nodes(Role.WORKER, change.n_start, at_s)
    for worker in change.leave:
        _let_go(state, worker, at_s)


def _make_room(state: JobState, at_s: float) -> None:
    """Without a group of PS no worker trains: stop the newest, one at a time, for a PS that lacks room."""
    is_recent = at_s < state.made_room_s + ROOM_PATIENCE_S
    if state.stage is not Stage.ASSEMBLING or state.applied is None or is_recent:
        return
    if state.roster.workers:
        state.made_room_s = at_s
        state.stop_node(state.roster.workers[-1], at_s)


def _room(state: JobState, want: RolePlan) -> int:
    """Return how many workers fit, with capacity reserved for missing PS."""
    ps = state.target.ps
    n_coming = ps.count - sum(node.has_shape(ps) for node in state.roster.ps)
    needs = [*state.roster.needs, *[ps.need] * max(0, n_coming)]
    return n_more(state.capacity, needs, want.need, at_most=want.count)


def _let_go(state: JobState, worker: Node, at_s: float) -> None:
    if worker.is_training:
        worker.is_draining, worker.since_s = True, at_s
        state.send(worker, Drain(at_once=worker.is_replaced))
    else:
        state.stop_node(worker, at_s)
