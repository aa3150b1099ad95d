"""Counts rows by bucket: what a PS holds, and what it serves.

To count each request would cost some percent of the time of the store, so one request in `SAMPLE_EVERY` is
counted; all rows are added up, and divided as those of the sample. Which requests are sampled follows a Weyl
sequence (multiples of the golden ratio), not a fixed stride: requests of workers come in turn, and a stride
that divides their number would sample the same workers for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.store.parts import Ids

SAMPLE_EVERY = 16
_GOLDEN, _TURN = 2_654_435_769, 1 << 32  # 2^32 / golden ratio: its multiples fill [0, 2^32) evenly


def bucket_counts(ids: Ids) -> NDArray[np.int64]:
    """Return how many ids are in each bucket, int64 [N_BUCKET]."""
    return np.bincount(ids & (N_BUCKET - 1), minlength=N_BUCKET)  # `%` takes three times as long


class ServedRows:
    """Rows that were served since the last `take`."""

    def __init__(self) -> None:
        self._n_request = self._n_row = 0
        self._sampled = np.zeros(N_BUCKET, np.int64)
        self._has_sample = False

    def count(self, ids: Ids) -> None:
        """Count one request; an empty one does not count."""
        if not len(ids):
            return
        self._n_row += len(ids)
        self._n_request += 1
        if not self._has_sample or self._n_request * _GOLDEN % _TURN < _TURN // SAMPLE_EVERY:
            self._sampled += bucket_counts(ids)
            self._has_sample = True

    def take(self) -> NDArray[np.int64]:
        """Return the rows by bucket, which sum to all that were served, and begin anew."""
        n_sampled = max(1, int(self._sampled.sum()))
        up_to = np.rint(np.cumsum(self._sampled) * (self._n_row / n_sampled)).astype(np.int64)
        self._n_row, self._has_sample = 0, False
        self._sampled = np.zeros(N_BUCKET, np.int64)
        rows: NDArray[np.int64] = np.diff(up_to, prepend=0)
        return rows
