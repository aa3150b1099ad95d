"""Whether plans fit on the machines: first fit, largest first, for all plans at once.

The definition is `structs.capacity.holds`, node by node. Here a plan's nodes are two groups and the machines
a few shapes, so placing is arithmetic on counts. Most plans of a large grid are decided by sums alone: those
that need more than all machines together are excluded before anything is placed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.plan.capacity import Capacity, NodeLimits, in_steps
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def fits(
    axes: Array,
    capacity: Capacity,
    *,
    worker_memory_mib: int,
    ps_memory_mib: int | Array,
    gpus: tuple[int, int] = (0, 0),
) -> NDArray[np.bool_]:
    """Return which plans fit, as `structs.capacity.holds` would for each: shape (n_plans,).

    Parameters
    ----------
    worker_memory_mib, ps_memory_mib
        Of each node, the latter for all plans or for each.
    gpus
        Of each worker and of each PS.
    """
    each_worker = np.full(len(axes), worker_memory_mib)
    each_ps = np.broadcast_to(np.asarray(ps_memory_mib), len(axes))
    w, p = axes[:, 0], axes[:, 1]
    worker_cpu, ps_cpu = np.floor(axes[:, 2:].T / CPU_STEP + 1e-6)
    total_cpu = max(sum(in_steps(s.cpu) * s.count for s in capacity.shapes), 1)
    total_mib = max(capacity.total_memory_mib, 1)
    within = (w * worker_cpu + p * ps_cpu <= total_cpu) & (
        w * worker_memory_mib + p * ps_memory_mib <= total_mib
    )
    within &= _allowed(axes[:, 2], each_worker, capacity) & _allowed(axes[:, 3], each_ps, capacity)
    within &= w * gpus[0] + p * gpus[1] <= capacity.total_gpu
    worker, ps = (w, worker_cpu, each_worker), (p, ps_cpu, each_ps)
    worker_size = (gpus[0] > 0) + np.maximum(worker_cpu / total_cpu, worker_memory_mib / total_mib)
    ps_size = (gpus[1] > 0) + np.maximum(ps_cpu / total_cpu, ps_memory_mib / total_mib)
    for index, order in (
        (np.flatnonzero(within & (worker_size >= ps_size)), ((*worker, gpus[0]), (*ps, gpus[1]))),
        (np.flatnonzero(within & (worker_size < ps_size)), ((*ps, gpus[1]), (*worker, gpus[0]))),
    ):
        if not len(index):
            continue
        large, small = ((count[index], cpu[index], mib[index], gpu) for count, cpu, mib, gpu in order)
        within[index] = _placed(large, small, capacity)
    return np.asarray(within)


def _allowed(cpu: Array, memory_mib: Array, capacity: Capacity) -> NDArray[np.bool_]:
    """Return which sizes of a node the cluster's limits allow: shape (n_plans,)."""
    limits, allowed = capacity.node_limits or NodeLimits(), np.ones(len(cpu), dtype=bool)
    for value, least in ((cpu, limits.least_cpu), (memory_mib, limits.least_memory_mib)):
        allowed &= True if least is None else value >= least - 1e-9
    for value, most in ((cpu, limits.most_cpu), (memory_mib, limits.most_memory_mib)):
        allowed &= True if most is None else value <= most + 1e-9
    return allowed


Group = tuple["Array", "Array", "Array", int]  # number of nodes, CPU steps and MiB of each, per plan; GPUs


def _placed(large: Group, small: Group, capacity: Capacity) -> NDArray[np.bool_]:
    """Return for which plans all large nodes fit and, beside them, all small ones."""
    left, room = large[0], np.zeros(len(large[0]))
    for shape in capacity.shapes:
        cpu = in_steps(shape.cpu)
        each = _how_many((cpu, shape.memory_mib, shape.gpu), large)
        full = np.minimum(left // np.maximum(each, 1), shape.count) * (each > 0)
        rest = np.where(full < shape.count, np.minimum(left - full * each, each), 0)
        empty = shape.count - full - (rest > 0)
        left = left - full * each - rest
        for machines, used in ((full, each), (rest > 0, rest)):
            free = cpu - used * large[1], shape.memory_mib - used * large[2], shape.gpu - used * large[3]
            room = room + machines * _how_many(free, small)
        room = room + empty * _how_many((cpu, shape.memory_mib, shape.gpu), small)
    return np.asarray((left == 0) & (room >= small[0]))


def _how_many(free: tuple[Array | float, Array | float, Array | float], node: Group) -> Array:
    """Return how many nodes of a group fit on a machine with these free CPU steps, MiB and GPUs."""
    n = np.minimum(free[0] // node[1], free[1] // node[2])
    return np.asarray(np.maximum(np.minimum(n, free[2] // node[3]) if node[3] else n, 0))
