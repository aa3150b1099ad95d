"""What a PS reports of its buckets every ten seconds.

Only windows that lie within one epoch are reported: in another group a PS has other buckets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.training.bucket_loads import BucketLoad

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.training.samples import NodeSample

EVERY_S = 10.0  # about 1 KiB each


class LoadWindow:
    """The window of one PS; it is extended by each of its reports."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._window_s = self._busy_s = 0.0

    def extend(self, sample: NodeSample, store: ParameterStore | None, epoch: int) -> BucketLoad | None:
        """Add the window of a sample; return the load when it is due.

        Parameters
        ----------
        sample
            Of the time since the last call.
        store, epoch
            What the PS serves now; a `store` of None: nothing.
        """
        if store is None or epoch != self._epoch:
            self._begin(store, epoch)
            return None
        self._window_s += sample.window_s
        self._busy_s += busy_s(sample)
        if self._window_s < EVERY_S:
            return None
        load = _load(store, epoch, self._window_s, self._busy_s)
        self._window_s = self._busy_s = 0.0
        return load

    def _begin(self, store: ParameterStore | None, epoch: int) -> None:
        self._epoch = None if store is None else epoch
        self._window_s = self._busy_s = 0.0
        if store is not None:
            store.served.take()


def busy_s(sample: NodeSample) -> float:
    """Return the seconds of a window in which a PS did not wait for requests."""
    return max(0.0, sample.n_iter * (sample.split.total_s - sample.split.idle_s))


def _load(store: ParameterStore, epoch: int, window_s: float, busy: float) -> BucketLoad:
    n_row, n_served = store.n_held, store.served.take()
    buckets = np.flatnonzero(n_row + n_served)
    counts = (tuple(map(int, each)) for each in (buckets, n_row[buckets], n_served[buckets]))
    return BucketLoad(epoch, window_s, busy, *counts)
