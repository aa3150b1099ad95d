"""The most that a change can bring: a part of an iteration that it does not touch does not become shorter.

Workers report which part of an iteration they compute and which they wait for PS. By Eqs. 2-5 of DLRover-RM
computing depends on the batch and the cores of a worker alone, and the waits on workers and PS. So at most
all waits go away by more PS: the speed grows by at most 1 / (1 - their share), whatever a fit to few plans
says (one promised +154 % for one more PS where waits were 8 % of an iteration). The rest, such as waits for
peers and data, can only shrink with fewer workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SLACK = 0.03  # of an iteration: shares are means over windows that differ


def most_over_now(axes: Array, batch_size: Array, now: Array, now_batch: float, shares: Array) -> Array:
    """Return the most that each plan's speed may be over the present one's: shape (n_plans,).

    Parameters
    ----------
    axes, batch_size
        ndarrays of shape (n_plans, 4) and (n_plans,): the plans and m of Eq. 1.
    now, now_batch
        The present plan as a row of `axes`, and its m.
    shares
        Parts of an iteration of the present plan that workers compute and wait for PS; NaN: not known, and
        nothing is bounded.
    """
    if np.isnan(shares).any():
        return np.full(len(axes), np.inf)
    compute, wait = shares
    w, p, worker_cpu, ps_cpu = axes.T
    fewer = w < now[0]
    computing = compute * np.minimum((batch_size / now_batch) * (now[2] / worker_cpu), 1.0)  # (eq. 2)
    same_ps = (p == now[1]) & (ps_cpu == now[3]) & ~fewer & (batch_size >= now_batch)
    waiting = np.where(same_ps, wait, 0.0)  # (eqs. 3-5)
    rest = np.where(fewer, 0.0, max(1 - compute - wait, 0.0))
    least = np.maximum(computing + waiting + rest - SLACK, SLACK)
    return np.asarray(w * batch_size / (now[0] * now_batch) / least)
