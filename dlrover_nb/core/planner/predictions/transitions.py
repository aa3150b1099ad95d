"""What a change of plan costs: seconds without training, by how it must be made.

Workers that come and go stop the others for a moment. Other parameter servers (PS) or sizes are handed over
at once where the new nodes start beside the old ones. Where nothing has room for both, the old PS save and
leave before the new ones start and load: minutes, on a cluster. So the three kinds are told apart, each by
what this job, else jobs of its cluster, have measured.

Rejected: one median of the last two kinds. It promised seconds for a change that takes minutes.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.capacity import change_needs, fits, n_more_of_each
from dlrover_nb.core.structs.plan.resources import Need
from dlrover_nb.core.structs.views.past_jobs import TransitionKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

HORIZON_S = 3600.0  # longest time over which a transition is paid off (Eq. 8)
PAUSE_S = {  # until transitions of this kind have been measured
    TransitionKind.WORKERS: 0.5,
    TransitionKind.MOVES: 0.5,
    TransitionKind.RESTARTS: 6.0,
}


def transition_kind(
    before: ResourcePlan, after: ResourcePlan, migration: Migration, capacity: Capacity
) -> TransitionKind:
    """Return how a change is made, on machines of which the job may take all."""
    if before.ps == after.ps and before.worker.need == after.worker.need:
        return TransitionKind.WORKERS
    is_seamless = migration is Migration.SEAMLESS and fits(capacity, change_needs(before, after))
    return TransitionKind.MOVES if is_seamless else TransitionKind.RESTARTS


def transition_s(plan: ResourcePlan, s: Situation) -> float:
    """Return the seconds without training until another plan runs, to expect."""
    return 0.0 if plan == s.plan else _usual_s(transition_kind(s.plan, plan, s.spec.migration, s.capacity), s)


def _usual_s(kind: TransitionKind, s: Situation) -> float:
    """Return the median so far, or a default: no restart is expected to be faster than other moves."""
    pauses_s = [seconds for measured, seconds in s.pauses if measured == kind]
    if pauses_s:
        return median(pauses_s)
    least_s = _usual_s(TransitionKind.MOVES, s) if kind is TransitionKind.RESTARTS else 0.0
    return max(least_s, PAUSE_S[kind])


def transitions_s(axes: Array, memory_mib: tuple[int | Array, int | Array], s: Situation) -> Array:
    """Return `transition_s` from the present plan to each of many: shape (n_plans,).

    Parameters
    ----------
    axes
        ndarray of shape (n_plans, 4): workers, PS, cores per worker, cores per PS.
    memory_mib
        Of each worker, and of each PS: each for all plans or for each.
    """
    now = s.plan
    worker_mib, ps_mib = (np.broadcast_to(np.asarray(mib), len(axes)) for mib in memory_mib)
    same_worker = (axes[:, 2] == now.worker.cpu) & (worker_mib == now.worker.memory_mib)
    same_ps = (axes[:, 3] == now.ps.cpu) & (ps_mib == now.ps.memory_mib)
    joins = same_worker & same_ps & (axes[:, 1] == now.ps.count)
    workers_s, moves_s, restarts_s = (_usual_s(kind, s) for kind in TransitionKind)
    is_now = joins & (axes[:, 0] == now.worker.count)
    is_decided_by_room = s.spec.migration is not Migration.RESTART and restarts_s != moves_s
    if joins.all() or not is_decided_by_room:
        return np.select([is_now, joins], [0.0, workers_s], restarts_s)
    moves = np.flatnonzero(~joins)
    lacks_room = np.zeros(len(axes), dtype=bool)
    lacks_room[moves] = _lacks_room(axes[moves], ps_mib[moves], same_worker[moves], same_ps[moves], s)
    return np.select([is_now, joins, lacks_room], [0.0, workers_s, restarts_s], moves_s)


def _lacks_room(axes: Array, ps_mib: Array, same_worker: Mask, same_ps: Mask, s: Situation) -> Mask:
    """Return of which plans the new PS find no room beside the present ones; asks once for plans alike."""
    now = s.plan
    n_new = axes[:, 1] - np.where(same_ps, np.minimum(axes[:, 1], now.ps.count), 0)
    n_worker = np.where(same_worker, np.minimum(axes[:, 0], now.worker.count), now.worker.count)
    first, which = _alike(n_worker, axes[:, 3], ps_mib)
    most = np.zeros(len(first))
    np.maximum.at(most, which, n_new)
    serving = [now.ps.need] * now.ps.count
    room = np.zeros(len(first))
    for n in np.unique(n_worker[first]).tolist():
        cases = np.flatnonzero(n_worker[first] == n)
        rows = first[cases]
        sizes = zip(axes[rows, 3].tolist(), ps_mib[rows].tolist(), most[cases].tolist(), strict=True)
        kinds = [(Need(cpu, int(mib), now.ps.gpu), int(at_most)) for cpu, mib, at_most in sizes]
        room[cases] = n_more_of_each(s.capacity, [now.worker.need] * int(n) + serving, kinds)
    return np.asarray(n_new > room[which])


def _alike(*columns: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first of the rows that are alike, and of which of these each row is.

    As `np.unique` of whole rows, which compares them as bytes and takes ten times as long.
    """
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        code = code * len(values) + place
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which


def gains(speed: Array, now: float, pause_s: Array, left_s: Array) -> Array:
    """Return TG(A): throughput gained less the transition's loss, spread over the rest of the run (Eq. 8)."""
    horizon_s = np.clip(left_s, 1.0, HORIZON_S)
    return np.asarray(speed - now - pause_s * now / horizon_s)  # (eq. 8)
