"""Compute the batch of one update as several mini-batches, one after the other (gradient accumulation).

Memory and caches then hold one mini-batch at a time, and the update is what one batch gives: the mean of the
gradients over all of its rows. To the PS, the barrier and the ledger it is one batch with one push, so that
each row still counts once, whatever dies between two mini-batches. An exchange for each mini-batch was
rejected: it would move parameters between the parts of one update, and cost as many exchanges.

Running averages get the mean of what their mini-batches give, as in any program that accumulates.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.models.learner import Gradients
from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.runtime.store.batches import with_padding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.models.learner import Learner
    from dlrover_nb.core.runtime.store.batches import PreparedBatch

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]


def step_by_parts(learner: Learner, rows: Floats, batch: PreparedBatch, most_at_once: int) -> Gradients:
    """Return loss and row gradients of a batch; the learner holds the dense ones afterwards.

    Parameters
    ----------
    rows
        Values of its distinct rows, [u, row_width].
    most_at_once
        Rows of a mini-batch at most; all are of about one size, since a small last one would cost as much
        overhead as a full one.
    """
    n_row = len(batch.labels)
    n_part = -(-n_row // most_at_once)
    if n_part < 2:
        return learner.step(rows, batch.inverse, batch.dense, batch.labels)
    loss, of_rows, dense = 0.0, np.zeros_like(rows), np.zeros_like(learner.gradients)
    n_slot = len(batch.inverse) // n_row
    for start, stop in pairwise(n_row * i // n_part for i in range(n_part + 1)):
        places, inverse = _distinct(batch.inverse[start * n_slot : stop * n_slot], len(rows))
        part = learner.step(rows[places], inverse, batch.dense[start:stop], batch.labels[start:stop])
        share = np.float32((stop - start) / n_row)
        of_rows[places] += share * part.rows
        dense += share * learner.gradients
        loss += float(share) * part.loss
    learner.gradients[:] = dense
    return Gradients(loss, of_rows)


def _distinct(places: Ids, n_row: int) -> tuple[Ids, Ids]:
    """Return the distinct places among `n_row` rows, and where each of `places` is among those.

    The place of padding, `n_row`, is behind the last of them there too.
    """
    is_row = places < n_row
    has_padding = not is_row.all()
    distinct, inverse = kernel().distinct(places[is_row] if has_padding else places)
    return distinct, with_padding(inverse, is_row, len(distinct)) if has_padding else inverse
