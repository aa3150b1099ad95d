"""What a plan would do here and now: the model's prediction within what physics and the host allow.

The most that a change can bring: a part of an iteration that it does not touch does not become shorter.
Workers report which part of an iteration they compute and which they wait for PS. By Eqs. 2-5 of DLRover-RM
computing depends on the batch and the cores of a worker alone, and the waits on workers and PS. So at most
all waits go away by more PS: the speed grows by at most 1 / (1 - their share), whatever a fit to few plans
says (one promised +154 % for one more PS where waits were 8 % of an iteration). The rest, such as waits for
peers and data, can only shrink with fewer workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.predictions.batch import batch_sizes
from dlrover_nb.core.planner.predictions.host import host_factors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.perf.evidence import Evidence
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.perf.predictions import Predictions
    from dlrover_nb.core.planner.situation import Situation

    Array = NDArray[np.float64]

SLACK = 0.03  # of an iteration: shares are means over windows that differ


def predict_here(model: ThroughputModel, situation: Situation, axes: Array) -> Predictions:
    """Predict plans given as rows (w, p, lambda_w, lambda_p) for the job's hosts as they are now.

    A plan that was measured is known by its windows; any other is at most as much faster than the present one
    as the parts of an iteration allow that it shortens.
    """
    now, batch = axes_of([situation.plan]), batch_sizes(situation.spec, axes)
    now_batch, evidence, load = batch_sizes(situation.spec, now), model.evidence_, situation.host
    predictions, row = model.predict(axes, batch), int(evidence.index_of(now, now_batch)[0])
    if row < 0 and (load is None or not load.is_felt):
        return predictions
    if row >= 0:  # then the model predicts just that
        speed = float(now[0, 0] * now_batch[0] / np.exp(evidence.log_iter[row]))  # (eq. 1)
        most = speed * most_over_now(axes, batch, now[0], float(now_batch[0]), evidence.shares[row])
        most[evidence.index_of(axes, batch) >= 0] = np.inf
        predictions = predictions.at_most(most)
    else:
        speed = float(model.predict(now, now_batch).samples_per_s[0])
    if load is None or not load.is_felt:
        return predictions
    n_core, over_now = situation.capacity.total_cpu, predictions.samples_per_s / speed
    measured = measured_cores(evidence, axes, evidence.index_of(axes, batch))
    wanted = np.where(np.isnan(measured), load.wanted_cores * over_now, measured)
    return predictions.on_host(host_factors(axes, over_now, wanted, load, n_core))


def measured_cores(evidence: Evidence, axes: Array, rows: NDArray[np.intp]) -> Array:
    """Return the cores that plans use on an idle host, by their windows: shape (n_plans,), NaN: not known.

    Parameters
    ----------
    rows
        Of each plan in `evidence`; -1: it was not measured.
    """
    if not len(evidence):
        return np.full(len(axes), np.nan)
    cores = axes[:, 0] * evidence.cpu_s[rows] / np.exp(evidence.log_iter[rows])
    return np.where(rows >= 0, cores, np.nan)


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
