"""What a plan would do here and now: the model's prediction within what physics and the host allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.predictions.batch import batch_sizes
from dlrover_nb.core.planner.predictions.host import host_factors
from dlrover_nb.core.planner.predictions.physics import most_over_now

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.perf.predictions import Predictions
    from dlrover_nb.core.planner.situation import Situation

    Array = NDArray[np.float64]


def predict_here(model: ThroughputModel, situation: Situation, axes: Array) -> Predictions:
    """Predict plans given as rows (w, p, lambda_w, lambda_p) for the job's hosts as they are now.

    A plan that was measured is known by its windows; any other is at most as much faster than the present one
    as the parts of an iteration allow that it shortens.
    """
    now, batch = axes_of([situation.plan]), batch_sizes(situation.spec, axes)
    now_batch, evidence, load = batch_sizes(situation.spec, now), model.evidence_, situation.host
    predictions, row = model.predict(axes, batch), int(evidence.index_of(now, now_batch)[0])
    is_busy = load is not None and load.is_felt
    if row < 0 and not is_busy:
        return predictions
    if row >= 0:  # then the model predicts just that
        speed = float(now[0, 0] * now_batch[0] / np.exp(evidence.log_iter[row]))  # (eq. 1)
        most = speed * most_over_now(axes, batch, now[0], float(now_batch[0]), evidence.shares[row])
        most[evidence.index_of(axes, batch) >= 0] = np.inf
        predictions = predictions.at_most(most)
    else:
        speed = float(model.predict(now, now_batch).samples_per_s[0])
    if not is_busy:
        return predictions
    n_core = situation.capacity.total_cpu
    return predictions.on_host(host_factors(axes, predictions.samples_per_s / speed, load, n_core))
