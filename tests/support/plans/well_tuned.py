"""The policy that knows the true speed: the well-tuned oracle, an upper bound for any policy.

It searches offline over a speed that was measured plan by plan before the job runs: DLRover-RM's "well-tuned"
configuration (section 6.1). No user has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.plan.resources import CPU_STEP, ResourcePlan, RolePlan

if TYPE_CHECKING:
    from dlrover_nb.core.baselines.state import JobState

Array = NDArray[np.float64]
Measure = Callable[[Array], Array]  # rows (w, p, lambda_w, lambda_p) -> samples/s of each


def well_tuned(state: JobState, *, measure: Measure) -> ResourcePlan | None:
    """Return the fastest plan of the bounds, of equal ones that with the fewest cores; None: it runs."""
    rows = _grid(state)
    rows = rows[_within_sums(state, rows)]
    speed = np.asarray(measure(rows), dtype=np.float64)
    if speed.shape != (len(rows),) or np.isnan(speed).any():
        raise InvalidValueError(
            f"measure must return {len(rows)} speeds, got shape {speed.shape} "
            f"with {int(np.isnan(speed).sum())} NaN; return 0 for a plan that does not run"
        )
    cores = rows[:, 0] * rows[:, 2] + rows[:, 1] * rows[:, 3]
    ordered = (_plan(state, rows[i]) for i in np.lexsort((cores, -speed)))
    best = next((plan for plan in ordered if state.allows(plan)), None)
    return None if best == state.plan else best


def _grid(state: JobState) -> Array:
    """Return all rows of the bounds: shape (n_plans, 4)."""
    counts = (np.arange(1, most + 1) for most in state.bounds.counts)
    grid = np.meshgrid(*counts, state.bounds.worker_cpus, state.bounds.ps_cpus, indexing="ij")
    return np.column_stack([g.ravel() for g in grid]).astype(np.float64)


def _within_sums(state: JobState, rows: Array) -> NDArray[np.bool_]:
    """Return which rows need no more cores and memory than available: a quick test before placing nodes."""
    w, p, worker_cpu, ps_cpu = rows.T
    memory_mib = w * state.plan.worker.memory_mib + p * state.plan.ps.memory_mib
    cores = w * worker_cpu + p * ps_cpu
    return np.asarray(
        (cores <= state.capacity.total_cpu + CPU_STEP) & (memory_mib <= state.capacity.total_memory_mib)
    )


def _plan(state: JobState, row: Array) -> ResourcePlan:
    """Return the record of one row, with the present memory per node."""
    w, p, worker_cpu, ps_cpu = row
    return ResourcePlan(
        worker=RolePlan(int(w), float(worker_cpu), state.plan.worker.memory_mib),
        ps=RolePlan(int(p), float(ps_cpu), state.plan.ps.memory_mib),
    )
