"""Whether the nodes of all jobs find a place: first fit decreasing, group by group.

`structs.capacity.fits` is the definition, node by node. Here equal nodes are placed at once on arrays of
machines, for thousands of jobs; the answers are the same, with equal nodes adjacent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.plan.capacity import in_steps
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.capacity import Capacity

    Array = NDArray[np.float64]


def all_fit(groups: Array, capacity: Capacity) -> bool:
    """Whether nodes fit on the machines.

    Parameters
    ----------
    groups
        ndarray of shape (n_group, 4): count, cores, MiB and GPUs of each node.
    """
    counts = [shape.count for shape in capacity.shapes]
    free_cpu = np.repeat([float(in_steps(shape.cpu)) for shape in capacity.shapes], counts)
    free_mib = np.repeat([float(shape.memory_mib) for shape in capacity.shapes], counts)
    free_gpu = np.repeat([float(shape.gpu) for shape in capacity.shapes], counts)
    groups = _merged(groups)
    cpu, mib, gpu = np.floor(groups[:, 1] / CPU_STEP + 1e-6), groups[:, 2], groups[:, 3]
    total_cpu, total_mib = max(free_cpu.sum(), 1.0), max(free_mib.sum(), 1.0)
    if (groups[:, 0] * cpu).sum() > total_cpu or (groups[:, 0] * mib).sum() > total_mib:
        return False
    sizes = np.maximum(cpu / total_cpu, mib / total_mib) + (gpu > 0)
    for i in np.argsort(-sizes, kind="stable").tolist():
        left = groups[i, 0]
        if left <= 0:
            continue
        each = np.floor(np.minimum(free_cpu / max(cpu[i], 1.0), free_mib / max(mib[i], 1.0)) + 1e-9)
        if gpu[i]:
            each = np.minimum(each, free_gpu // gpu[i])
        before = np.cumsum(each) - each
        placed = np.clip(left - before, 0, each)
        if placed.sum() < left:
            return False
        free_cpu -= placed * cpu[i]
        free_mib -= placed * mib[i]
        free_gpu -= placed * gpu[i]
    return True


def _merged(groups: Array) -> Array:
    """Return one group for each kind of node, in the order in which they first occur."""
    if not len(groups):
        return groups
    kinds, first, which = np.unique(groups[:, 1:], axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(which.reshape(-1), weights=groups[:, 0], minlength=len(kinds))
    return np.asarray(np.column_stack((counts, kinds))[np.argsort(first)], dtype=np.float64)
