"""U, the utilisation of a cluster as Qore-DL weighs it: how much room the next node would find.

Light hosts count most. The weight of a host falls geometrically with its rank in load, so that the lightest
third of the hosts holds 95 % of the weight. The paper says that much of its Eq. 16 and does not give it.
Weights go by rank, not by load itself: so the lightest third has its 95 % whatever the loads are. Hosts of
equal load share their ranks' weights equally, so the order of the list decides nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.tuning import ClusterLoads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

CPU_WEIGHT = ClusterLoads().cpu_weight  # alpha 1 of the paper
LIGHT_PART, LIGHT_WEIGHT = 1 / 3, 0.95  # of the hosts, of the weight
_HALVINGS = 50  # of an interval of length 1: about the precision of a float


def host_load(cpu: float, memory: float, cpu_weight: float = CPU_WEIGHT) -> float:
    """Return U_l of a host from the used shares of its cores and its memory: 0 to 1."""
    return cpu_weight * cpu + (1 - cpu_weight) * memory  # (eq. 17)


def host_weights(loads: Sequence[float]) -> Array:
    """Return beta, the weight of each host: shape (n_hosts,), sum 1, falling with the load.

    Raises
    ------
    InvalidValueError
        Where there is no host, or a load is not finite.
    """
    load = np.asarray(loads, dtype=np.float64)
    if not len(load) or not np.isfinite(load).all():
        raise InvalidValueError(f"the loads of >= 1 host must be finite numbers, got {list(loads)}")
    by_rank = _ratio(len(load)) ** np.arange(len(load))
    by_rank /= by_rank.sum()
    _, which, n_equal = np.unique(load, return_inverse=True, return_counts=True)
    ends = np.cumsum(n_equal)
    sums = np.add.reduceat(by_rank, ends - n_equal)
    return np.asarray((sums / n_equal)[which])  # (eq. 16)


@lru_cache(maxsize=64)
def _ratio(n_host: int) -> float:
    """Return the q by which the first third of n terms of 1, q, q**2... holds `LIGHT_WEIGHT` of the sum.

    That share falls in q, so halving an interval finds it; SciPy would cost a master its import.
    """
    n_light = light_hosts(n_host)
    if n_light == n_host:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        powers = middle ** np.arange(n_host)
        if powers[:n_light].sum() > LIGHT_WEIGHT * powers.sum():
            low = middle
        else:
            high = middle
    return (low + high) / 2


def light_hosts(n_host: int) -> int:
    """Return how many hosts the lightest third is, rounded up."""
    return -int(-n_host * LIGHT_PART // 1)


def utilisation(loads: Sequence[float]) -> float:
    """Return U of a cluster from the loads of its hosts: 0 to 1."""
    return float(host_weights(loads) @ np.asarray(loads, dtype=np.float64))  # (eq. 1)
