"""What a busy host makes of a plan: its speed here and now, by the processors that the job would get.

A model is fitted to what plans do by themselves (`controller.host_share`). On a host with other load every
plan loses the part of its time that the present one loses, and a faster one more where its nodes do not get
the processors for it: by those that the job has now we know the weight of the others, and a job whose nodes
weigh W gets C W / (W + L) of C cores where all want more. What a plan wants is known once it was measured.
Until then a sample costs as much processor time as now (measured: 11 to 15 ms a step while iterations went
from 29 to 95 ms).

Rejected: to let plans of more weight win time back from others. It is true, and makes jobs take nodes to hold
their own against each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf.terms import axes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.cluster.host_load import HostLoad
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]


def weight_of(plan: ResourcePlan) -> float:
    """Return the weight of a plan's nodes against other processes."""
    return float(weights(axes_of([plan]))[0])


def weights(axes: Array) -> Array:
    """Return the weight of each plan's nodes, as `runtime.limits` gives it to their common group."""
    w, p, worker_cpu, ps_cpu = axes.T
    return np.asarray(w * np.maximum(worker_cpu, 1.0) + p * np.maximum(ps_cpu, 1.0))


def host_factors(
    axes: Array, over_now: Array, wanted_cores: Array, load: HostLoad | None, n_core: float
) -> Array:
    """Return which part of its own speed each plan has on the host: shape (n_plans,), above 0 to 1.

    Parameters
    ----------
    axes
        ndarray of shape (n_plans, 4), as `terms.axes_of` makes it.
    over_now
        Speed of each plan over that of the present one, both on an idle host.
    wanted_cores
        What each plan would use there.
    load
        What the present plan gets; None: not known, and all get what they want.
    n_core
        Cores of the hosts.
    """
    if load is None or not load.is_felt or load.given_cores <= 0:
        return np.ones(len(axes))
    others = load.weight * max(n_core / load.given_cores - 1, 0.0)
    given = n_core * weights(axes) / (weights(axes) + others)
    part, now = given / np.asarray(wanted_cores), load.given_cores / load.wanted_cores
    bound = np.where(np.asarray(over_now) > 1, np.minimum(part / now, 1.0), 1.0)
    return np.asarray((1 - load.share) * bound)


def grows(axes: Array, plan: ResourcePlan) -> NDArray[np.bool_]:
    """Return which plans take more cores than the present one."""
    w, p, worker_cpu, ps_cpu = axes.T
    return np.asarray(w * worker_cpu + p * ps_cpu > plan.total_cpu + 1e-9)
