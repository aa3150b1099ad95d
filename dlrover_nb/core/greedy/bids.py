"""Bids of jobs as columns: ten thousand jobs with fifty candidates each are six arrays, not records.

Candidates of one job are adjacent; `offsets` holds where each job begins. Keeping the present plan needs no
candidate: every job has this option, with a gain and a cost of zero, and a job that does not run yet keeps
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

Array = NDArray[np.float64]
Index = NDArray[np.intp]

LEAST_COST = 0.01  # of the median |RC|: the floor of Eq. 11's denominator where none is given


@dataclass(frozen=True, slots=True, eq=False)
class Bids:
    """Candidate plans of many jobs.

    Parameters
    ----------
    offsets
        ndarray of shape (n_job + 1,): candidates of job j are ``offsets[j]:offsets[j + 1]``.
    demands
        ndarray of shape (n_candidate, n_resource): the whole need of a plan, not the difference from the
        present one.
    gains
        TG of Eq. 8, samples/s against staying.
    costs
        RC of Eq. 7, money per hour against staying; below zero for cheaper plans.
    samples_per_s
        Psi of Eq. 14 under the candidate, > 0.
    samples_left
        Phi of Eq. 14, of shape (n_job,).
    present
        ndarray of shape (n_job, n_resource): what each job holds now; zeros for a job that waits.
    resources
        Names of the resources, for messages.
    priority, deadline_s, owner
        Of shape (n_job,), for the weights that need them; deadlines in seconds from now.
    least_cost
        Floor of the added cost in RE; None: a hundredth of the median added or saved cost.
    """

    offsets: Index
    demands: Array
    gains: Array
    costs: Array
    samples_per_s: Array
    samples_left: Array
    present: Array
    resources: tuple[str, ...] = ("cpu", "memory_mib")
    priority: Array | None = None
    deadline_s: Array | None = None
    owner: Index | None = None
    least_cost: float | None = None

    def __post_init__(self) -> None:
        _check_offsets(self.offsets, len(self.gains))
        n_job, n_candidate, n_resource = self.n_job, len(self.gains), len(self.resources)
        _check_column("demands", self.demands, (n_candidate, n_resource), least=0.0)
        for name in ("gains", "costs"):
            _check_column(name, getattr(self, name), (n_candidate,))
        _check_column("samples_per_s", self.samples_per_s, (n_candidate,), least=np.nextafter(0.0, 1.0))
        _check_column("samples_left", self.samples_left, (n_job,), least=0.0)
        _check_column("present", self.present, (n_job, n_resource), least=0.0)
        for name in ("priority", "deadline_s", "owner"):
            if getattr(self, name) is not None:
                _check_column(name, getattr(self, name), (n_job,), least=0.0)
        if self.least_cost is not None:
            _check.above_zero("least_cost", self.least_cost)

    @property
    def n_job(self) -> int:
        """Number of jobs."""
        return len(self.offsets) - 1

    @property
    def job(self) -> Index:
        """Job of each candidate: shape (n_candidate,)."""
        return np.repeat(np.arange(self.n_job), np.diff(self.offsets))

    @property
    def remaining_s(self) -> Array:
        """Seconds that each candidate's job would still run: Phi/Psi (Eq. 14)."""
        return np.asarray(self.samples_left[self.job] / self.samples_per_s)


def efficiency(bids: Bids) -> Array:
    """Return RE = TG/RC of each candidate, limited to finite values: shape (n_candidate,) (Eq. 11).

    Notes
    -----
    Eq. 11 is infinite for a plan that gains and costs nothing more, and a sum over jobs cannot hold that. We
    take max(RC, floor) for plans that gain: a faster plan that costs no more ranks above every more expensive
    one of the same gain, and among such plans the larger gain wins. A plan that loses throughput is worth
    TG/max(|RC|, floor) < 0, the loss per money saved: two negative numbers must not make an efficient plan.
    """
    floor = bids.least_cost or _floor(bids.costs)
    cost = np.where(bids.gains > 0, bids.costs, np.abs(bids.costs))  # RC (eq. 7)
    return np.asarray(bids.gains / np.maximum(cost, floor))  # (eq. 11)


def _floor(costs: Array) -> float:
    changed = np.abs(costs[costs != 0])
    return LEAST_COST * float(np.median(changed)) if len(changed) else 1.0


def _check_offsets(offsets: Index, n_candidate: int) -> None:
    whole = np.issubdtype(np.asarray(offsets).dtype, np.integer) and np.ndim(offsets) == 1
    right = whole and len(offsets) >= 1 and offsets[0] == 0 and offsets[-1] == n_candidate
    if not right or (np.diff(offsets) < 0).any():
        raise InvalidValueError(
            f"offsets must be whole numbers that rise from 0 to the number of candidates ({n_candidate}), "
            f"got {np.asarray(offsets).tolist()[:5]}…; give one more than there are jobs"
        )


def _check_column(
    name: str, values: Array | Index, shape: tuple[int, ...], *, least: float = -np.inf
) -> None:
    if np.shape(values) != shape:
        raise InvalidValueError(f"{name} must have shape {shape}, got {np.shape(values)}")
    if not np.isfinite(values).all():
        raise InvalidValueError(f"{name} must be finite, got NaN or infinity; leave such candidates out")
    if (np.asarray(values) < least).any():
        limit = ">= 0" if least == 0 else "> 0"
        raise InvalidValueError(f"{name} must be {limit}, got {float(np.min(values)):g}")
