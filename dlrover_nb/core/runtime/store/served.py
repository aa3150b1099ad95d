"""Counts rows by bucket: what a PS holds, and what it serves.

To count each request would cost some percent of the time of the store, so one request in `SAMPLE_EVERY` is
counted; all rows are added up, and divided as those of the sample. Which requests are sampled follows a Weyl
sequence (multiples of the golden ratio), not a fixed stride: requests of workers come in turn, and a stride
that divides their number would sample the same workers for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.bell_requests import Parameters
    from dlrover_nb.core.runtime.store.partition import Ids

SAMPLE_EVERY = 16
_GOLDEN, _TURN = 2_654_435_769, 1 << 32  # 2^32 / golden ratio: its multiples fill [0, 2^32) evenly
_SAMPLED_BELOW = _TURN // SAMPLE_EVERY


def bucket_counts(ids: Ids) -> NDArray[np.int64]:
    """Return how many ids are in each bucket, int64 [N_BUCKET]."""
    return np.bincount(ids & (N_BUCKET - 1), minlength=N_BUCKET)  # `%` takes three times as long


class ServedRows:
    """Rows that were served since the last `take`."""

    def __init__(self) -> None:
        self._counts = np.zeros(3, np.int64)  # requests, rows, and whether one was sampled
        self._sampled = np.zeros(N_BUCKET, np.int64)
        self._at = int(self._counts.ctypes.data), int(self._sampled.ctypes.data)

    def count(self, ids: Ids) -> None:
        """Count one request; an empty one does not count."""
        if not len(ids):
            return
        self._counts[:2] += 1, len(ids)
        n_request, _, has_sample = self._counts.tolist()
        if not has_sample or n_request * _GOLDEN % _TURN < _SAMPLED_BELOW:
            self._sampled += bucket_counts(ids)
            self._counts[2] = 1

    def describe(self, parameters: Parameters) -> None:
        """Say where a kernel counts."""
        parameters.served, parameters.sampled = self._at
        parameters.n_bucket, parameters.sample_below = N_BUCKET, _SAMPLED_BELOW

    def take(self) -> NDArray[np.int64]:
        """Return the rows by bucket, which sum to all that were served, and begin anew."""
        n_sampled = max(1, int(self._sampled.sum()))
        up_to = np.rint(np.cumsum(self._sampled) * (int(self._counts[1]) / n_sampled)).astype(np.int64)
        self._counts[1:] = 0
        self._sampled[:] = 0
        rows: NDArray[np.int64] = np.diff(up_to, prepend=0)
        return rows
