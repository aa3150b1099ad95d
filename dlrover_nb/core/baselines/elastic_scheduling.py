"""ES: search the number of workers by fixed steps; nothing else changes.

Elastic Scheduler as DLRover-RM (section 6) compares with it: a fixed number of workers is added or removed
each time, PS and CPU stay as they are. The rule is that of Or et al. (Resource Elasticity in Distributed Deep
Learning, MLSys 2020): continue while the last step still gained a fair share of the speed per worker before
it, else go back to the best count that was measured and stay there. The threshold is ours; the papers give
none that holds for parameter servers.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.baselines.state import with_count
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.baselines.state import JobState
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def elastic_scheduling(state: JobState, *, step: int = 1, min_efficiency: float = 0.1) -> ResourcePlan | None:
    """Add `step` workers while that pays, else go back to the best count measured.

    Parameters
    ----------
    min_efficiency
        Least gain of the last step, as a share of linear scaling, that makes another step worth trying.
    """
    _check.at_least("step", step, 1)
    speeds = _speeds(state)
    here = state.plan.worker.count
    if here not in speeds:
        return None  # wait for a steady window of what runs
    best = max(speeds, key=lambda w: (speeds[w], -w))
    if _pays(speeds, here, min_efficiency) and here + step not in speeds:
        wider = with_count(state.plan, Role.WORKER, here + step)
        if state.allows(wider):
            return wider
    plan = with_count(state.plan, Role.WORKER, best)
    return plan if best != here and state.allows(plan) else None


def _speeds(state: JobState) -> dict[int, float]:
    """Return the median measured samples/s of each number of workers, all else as now."""
    seen: dict[int, list[float]] = {}
    for sample in state.samples:
        count = sample.plan.worker.count
        if with_count(sample.plan, Role.WORKER, state.plan.worker.count) == state.plan:
            seen.setdefault(count, []).append(sample.samples_per_s)
    return {count: median(values) for count, values in seen.items()}


def _pays(speeds: dict[int, float], here: int, min_efficiency: float) -> bool:
    """Whether the last step up to `here` gained enough; the first step is always tried."""
    below = [w for w in speeds if w < here]
    if not below:
        return True
    before = max(below)
    return (speeds[here] / speeds[before] - 1) / (here / before - 1) >= min_efficiency
