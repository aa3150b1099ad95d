"""The selection problem in its basic form: a value and a need per option, one option per job.

It is a multiple-choice knapsack in several dimensions: NP-hard, but with thousands of jobs and few resources
its linear relaxation is almost integral (at most as many jobs are split as there are resources), which is why
prices work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dlrover_nb.core.greedy.bids import Array, Index


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Options of all jobs, adjacent by job; each job's first one keeps the present plan (value 0, need 0).

    Parameters
    ----------
    value
        ndarray of shape (n_option,).
    need
        ndarray of shape (n_resource, n_option): against staying, below zero where room is freed.
    job
        ndarray of shape (n_option,), ascending.
    start
        ndarray of shape (n_job,): each job's first option.
    room
        ndarray of shape (n_resource,): capacity less what all jobs hold.
    """

    value: Array
    need: Array
    job: Index
    start: Index
    room: Array

    def best(self, score: Array) -> Index:
        """Return each job's option of the highest score, the first of equal ones: shape (n_job,)."""
        top = np.maximum.reduceat(score, self.start)
        position = np.where(score == top[self.job], np.arange(len(score)), len(score))
        return np.asarray(np.minimum.reduceat(position, self.start))

    def priced(self, prices: Array) -> Array:
        """Return each option's value less what its need costs at these prices."""
        return np.asarray(self.value - prices @ self.need)

    def free(self, chosen: Index) -> Array:
        """Return the remaining room."""
        return np.asarray(self.room - self.need[:, chosen].sum(axis=1))

    def holds(self, chosen: Index) -> bool:
        """Whether a choice is within the room."""
        return bool((self.free(chosen) >= 0).all())

    def total(self, chosen: Index) -> float:
        """Return the value of a choice."""
        return float(self.value[chosen].sum())
