"""Policies that know the true speed: FA-BF and the well-tuned oracle.

Both search offline over a speed that was measured plan by plan before the job runs. FA-BF (NEARCHUS section
V) keeps the CPU of each node as it is and searches (p, w): the best that Optimus could ever reach. The oracle
searches the CPU sizes too: DLRover-RM's "well-tuned" configuration (section 6.1). Neither is available to a
user; they are upper bounds for any policy.
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


def fixed_allocation(state: JobState, *, measure: Measure) -> ResourcePlan | None:
    """Return the fastest (p, w) at the present CPU per node; None where it runs already."""
    return _best(state, ((state.plan.worker.cpu,), (state.plan.ps.cpu,)), measure)


def well_tuned(state: JobState, *, measure: Measure) -> ResourcePlan | None:
    """Return the fastest plan of the bounds; None where it runs already."""
    return _best(state, (state.bounds.worker_cpus, state.bounds.ps_cpus), measure)


def _best(
    state: JobState, cpus: tuple[tuple[float, ...], tuple[float, ...]], measure: Measure
) -> ResourcePlan | None:
    """Return the fastest plan that fits; of equally fast ones that with the fewest cores."""
    rows = _grid(state, cpus)
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


def _grid(state: JobState, cpus: tuple[tuple[float, ...], tuple[float, ...]]) -> Array:
    """Return all rows of the bounds: shape (n_plans, 4)."""
    counts = (np.arange(1, most + 1) for most in state.bounds.counts)
    grid = np.meshgrid(*counts, *cpus, indexing="ij")
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
