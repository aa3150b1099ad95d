"""The greedy of the paper, as it is written: candidates by descending RE * WG, taken where they fit (Eq. 12).

Kept to compare with: `select` reaches more of the optimum in nearly the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.greedy.bids import efficiency
from dlrover_nb.core.greedy.selection import ROUNDING, Selection, checked_capacity, overfull

if TYPE_CHECKING:
    from dlrover_nb.core.greedy.bids import Array, Bids
    from dlrover_nb.core.greedy.weights import Weight


def literal(bids: Bids, capacity: Array, *, weight: Weight, shrink: bool = False) -> Selection:
    """Choose at most one candidate per job; parameters and errors as of `select`.

    Nothing bounds how far from the optimum it is: `bound` is its own objective, and `prices` are zero.
    """
    capacity = checked_capacity(capacity, bids)
    values = efficiency(bids) * weight(bids, capacity)
    used, job = bids.present.sum(axis=0), bids.job
    most = capacity * (1 + ROUNDING)
    if (used > most).any():
        raise overfull(bids, capacity, shrink=shrink)
    chosen, objective = np.full(bids.n_job, -1, dtype=np.intp), 0.0
    for i in np.argsort(-values, kind="stable").tolist():
        if values[i] <= 0:
            break
        own = job[i]
        if chosen[own] >= 0 or (bids.gains[i] < 0 and not shrink):
            continue
        need = used + bids.demands[i] - bids.present[own]
        if (need <= most).all():
            used, objective = need, objective + float(values[i])
            chosen[own] = i - bids.offsets[own]
    free = np.maximum(capacity - used, 0.0)
    return Selection(chosen, objective, objective, used, free, np.zeros(len(capacity)), values)
