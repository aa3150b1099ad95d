"""Buckets that move between the PS of an unchanged group, by an ordered table of owners.

A PS that serves more than others, or works more slowly, gives buckets away. The way is that of every
migration (`migration_coordinator`): rows are copied while workers train, one pause ends the move, and until
then nothing has changed. The members are those of before, under another epoch.

An order begins at once or is refused: nothing waits for its turn. It is given up where a change of plan, the
end of the job or a lost PS comes between; then loads are measured again and decided on anew. So a table is
never applied to another group than that for which it was made, and nothing of it is in the recovery record:
a master that restarts cancels the move, or ends it when PS had begun to take over.

A capacity is what a PS served per second in which it did not wait for requests. That includes what a request
costs whatever its rows (decoding, the dense slice), so a PS of few rows seems slower than it is, and gets
less at first than it could; the next measurement shows it faster.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.servers import migration_coordinator
from dlrover_nb.core.master.own.servers.load_placement import assign_by_load, within_room
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.own.state.state_records import failed
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.master.own.state.state import JobState, PsGroup
    from dlrover_nb.core.structs.training.bucket_loads import BucketLoad


SPARE_MEMORY = 0.2  # share of a PS's memory that rows which move to it leave free


def rebalance(state: JobState, owner: Sequence[int], at_s: float) -> None:
    """Begin to move buckets to these owners, as indices of the present group.

    Raises
    ------
    InvalidValueError
        When it is no table of the present group, or leaves a PS without a bucket.
    StaleDecisionError
        When the plan is not in place, parameters move already, or the job is about to end.
    """
    group = state.group
    if group is None or state.stage is not Stage.SERVING or state.steady_since_s is None or is_ending(state):
        raise StaleDecisionError(
            f"buckets move between PS while the plan of job {state.spec.name} runs; it does not now "
            f"({state.stage}), so measure again and order later"
        )
    _check(owner, group)
    n_moved = sum(a != b for a, b in zip(owner, group.bucket_owner, strict=True))
    if n_moved:
        migration_coordinator.start_rebalance(state, tuple(owner), at_s)
        state.steady_since_s, state.last_step_s = None, at_s
        state.note(f"{n_moved} of {N_BUCKET} buckets move: {_counts(group, owner)}", at_s)


def keeps_on(state: JobState, at_s: float) -> Stage | None:
    """Go on with a move within the group, or give it up; return the stage that completes it, once ready."""
    if state.move is None:
        return None
    if is_ending(state):
        give_up(state, "the job is about to end", at_s)
        return None
    return Stage.SWITCHING if migration_coordinator.is_ready(state) else None


def is_under_way(state: JobState) -> bool:
    """Whether buckets move within the group, and PS have not begun to take over."""
    return state.move is not None and state.move.is_rebalance and state.stage is not Stage.SWITCHING


def give_up(state: JobState, why: str, at_s: float) -> None:
    """Cancel a move within the group."""
    migration_coordinator.cancel_migration(state)
    state.mitigations = failed(state.mitigations, why, of_moves=True)
    state.note(f"the buckets stay where they are: {why}", at_s)


def balanced_owner(state: JobState) -> tuple[int, ...] | None:
    """Return the owners that balance the measured loads; None: not measured yet, or too little to gain."""
    group, loads = state.group, _measured(state)
    if group is None or loads is None or len(loads) < 2:
        return None
    speeds = [sum(load.n_served) / load.busy_s if load.busy_s else 0.0 for load in loads]
    positive = [speed for speed in speeds if speed]
    if not positive:
        return None
    capacity = [speed or median(positive) for speed in speeds]
    owner = assign_by_load(group.bucket_owner, _rows_per_s(loads), capacity)
    return None if owner == group.bucket_owner else owner


def within_memory(state: JobState, owner: Sequence[int]) -> tuple[int, ...]:
    """Return owners like these, without the moves for which a PS has no memory.

    A PS has its own rows until a move has ended, so those that it gets come on top of what it uses now. What
    is not measured counts as nothing.
    """
    group, mib = state.group, [0.0] * N_BUCKET
    assert group is not None
    for node in state.group_nodes:
        load, used_mib = node.load, node.last.parameter_mib if node.last is not None else 0.0
        n_row = 0 if load is None else sum(load.n_held)
        if load is not None and n_row:
            row_mib = used_mib / n_row
            for bucket, n_held in zip(load.buckets, load.n_held, strict=True):
                mib[bucket] = n_held * row_mib
    room = [
        (1 - SPARE_MEMORY) * node.memory_mib - (node.last.memory_mib if node.last is not None else 0.0)
        for node in state.group_nodes
    ]
    return within_room(group.bucket_owner, owner, mib, room)


def _measured(state: JobState) -> list[BucketLoad] | None:
    """Return the last load of each member of the group, measured under its epoch; None: one is missing."""
    group, loads = state.group, [node.load for node in state.group_nodes]
    current = [
        load for load in loads if group is not None and load is not None and load.ps_epoch == group.ps_epoch
    ]
    return current if group is not None and len(current) == len(group.nodes) else None


def _rows_per_s(loads: Sequence[BucketLoad]) -> list[float]:
    rows_per_s = [0.0] * N_BUCKET
    for load in loads:
        for bucket, n_served in zip(load.buckets, load.n_served, strict=True):
            rows_per_s[bucket] += n_served / load.window_s
    return rows_per_s


def is_ending(state: JobState) -> bool:
    """Whether the job trains no more rows, or is to stop."""
    return bool(state.is_ended or state.is_evaluating or state.train.finished or state.stop_reason)


def _check(owner: Sequence[int], group: PsGroup) -> None:
    if len(owner) != N_BUCKET or set(owner) != set(range(len(group.nodes))):
        raise InvalidValueError(
            f"expected the owner of each of {N_BUCKET} buckets, as indices of {', '.join(group.nodes)}, and "
            f"a bucket at least for each, got {len(owner)} owners: {dict(Counter(owner))}"
        )


def _counts(group: PsGroup, owner: Sequence[int]) -> str:
    before, after = Counter(group.bucket_owner), Counter(owner)
    return ", ".join(f"{name} {before[i]} -> {after[i]}" for i, name in enumerate(group.nodes))
