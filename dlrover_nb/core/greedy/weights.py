"""Weights of jobs' gains: WG of Eq. 12, functions of one signature.

`remaining_time` is the paper's (Eq. 14); its other weights are "tailored to the cluster's preference". All
are weights of candidates, because the paper's depends on the candidate's own throughput.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.greedy.bids import Array, Bids
from dlrover_nb.core.structs.job.tuning import RemainingTime

if TYPE_CHECKING:
    from dlrover_nb.core.greedy.bids import Index

Weight = Callable[[Bids, Array], Array]  # bids and capacity to >= 0 per candidate: shape (n_candidate,)

REMAINING_TIME = "remaining time"
PAPER = RemainingTime()
SHARE = 0.01  # added to a dominant share, so that an owner who holds nothing has a finite weight


def remaining_time(rho: float = PAPER.rho, epsilon: float = PAPER.epsilon_s) -> Weight:
    """Return WG = 1/(Phi/Psi + epsilon)^rho: rho > 0 favors short jobs, 0 none, < 0 long ones (Eq. 14).

    Parameters
    ----------
    epsilon
        Seconds, > 0: jobs that end sooner are equally urgent.

    Raises
    ------
    InvalidValueError
        When rho is beyond +-20 or epsilon is not above zero.
    """
    RemainingTime(rho, epsilon)  # checks them

    def weight(bids: Bids, capacity: Array) -> Array:
        del capacity
        return np.asarray((bids.remaining_s + epsilon) ** -rho)  # (eq. 14)

    return weight


def equal(bids: Bids, capacity: Array) -> Array:
    """Weight all jobs equally."""
    del capacity
    return np.ones(len(bids.gains))


def priority(bids: Bids, capacity: Array) -> Array:
    """Weight each job by its priority, a number >= 0."""
    del capacity
    return _of_job(bids, bids.priority, "priority")


def deadline(bids: Bids, capacity: Array) -> Array:
    """Weight by 1/seconds to the deadline: the earliest first; a missed one counts as one second."""
    del capacity
    return 1 / np.maximum(_of_job(bids, bids.deadline_s, "deadline_s"), 1.0)


def fair_share(bids: Bids, capacity: Array) -> Array:
    """Weight by 1/dominant share of the job's owner (DRF); without owners each job counts as its own."""
    owner: Index = (
        np.arange(bids.n_job) if bids.owner is None else np.unique(bids.owner, return_inverse=True)[1]
    )
    by_owner = np.stack([np.bincount(owner, weights=column) for column in bids.present.T], axis=1)
    share = (by_owner / np.maximum(capacity, np.finfo(float).tiny)).max(axis=1)
    return np.asarray(1 / (share[owner][bids.job] + SHARE))


WEIGHTS: Mapping[str, Weight] = MappingProxyType(
    {
        REMAINING_TIME: remaining_time(),
        "equal": equal,
        "priority": priority,
        "deadline": deadline,
        "fair share": fair_share,
    }
)


def weight_of(name: str) -> Weight:
    """Return a weight by its name, ours or one that an installed package adds.

    Raises
    ------
    InvalidValueError
        When there is none, with the nearest name, or the package that adds it is broken. The weight of a
        package raises it where its numbers cannot be.
    """
    if name in WEIGHTS:
        return WEIGHTS[name]
    added = extensions.find_function(extensions.WEIGHTS, name, WEIGHTS)

    def weight(bids: Bids, capacity: Array) -> Array:
        weights = np.asarray(added(bids, capacity), dtype=np.float64)
        if weights.shape != bids.gains.shape or not (np.isfinite(weights) & (weights >= 0)).all():
            raise InvalidValueError(
                f"weight {name} must return {len(bids.gains)} finite numbers >= 0, one for each candidate; "
                "repair its package"
            )
        return weights

    return weight


def _of_job(bids: Bids, values: Array | None, name: str) -> Array:
    if values is None:
        raise InvalidValueError(f"this weight needs {name} of each job, got none; give bids.{name}")
    return np.asarray(values[bids.job], dtype=np.float64)
