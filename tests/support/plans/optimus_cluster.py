"""Optimus for several jobs of one cluster: one decision per job, the largest gain first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.baselines.optimus import fit_speed, n_measured, optimus, seconds_saved
from dlrover_nb.core.structs.plan.capacity import fits, plan_needs
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.baselines.state import JobState
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def optimus_cluster(
    jobs: Mapping[str, JobState], capacity: Capacity, *, step: int = 1, n_probe: int = 3
) -> dict[str, ResourcePlan]:
    """Make one decision per job while all plans fit on the machines, largest gain first.

    Parameters
    ----------
    capacity
        The whole cluster, which the jobs share; each state's own capacity bounds that job alone.

    Returns
    -------
    dict
        New plans of the jobs that get one.

    Notes
    -----
    Optimus section 4.1: the gain of a node is the time saved over its dominant share of the cluster. Returned
    nodes and probes, whose gain is not known yet, go first.
    """
    wanted = {name: optimus(state, step=step, n_probe=n_probe) for name, state in jobs.items()}
    asked = {name: plan for name, plan in wanted.items() if plan is not None}
    order = sorted(asked, key=lambda name: -_gain(jobs[name], asked[name], capacity, n_probe))
    plans, granted = {name: state.plan for name, state in jobs.items()}, {}
    for name in order:
        trial = {**plans, name: asked[name]}
        if fits(capacity, [need for plan in trial.values() for need in plan_needs(plan)]):
            plans, granted[name] = trial, asked[name]
    return granted


def _gain(state: JobState, plan: ResourcePlan, capacity: Capacity, n_probe: int) -> float:
    """Return the seconds that a plan saves over the dominant share of the cluster that it adds."""
    cores = (plan.total_cpu - state.plan.total_cpu) / max(capacity.total_cpu, CPU_STEP)
    mib = (plan.total_memory_mib - state.plan.total_memory_mib) / max(capacity.total_memory_mib, 1)
    share = max(cores, mib)
    if share <= 0 or n_measured(state) < n_probe:
        return math.inf
    return seconds_saved(state, fit_speed(state.samples, global_batch=state.global_batch), plan) / share
