"""The slice of the flat dense vector that one PS holds, with its optimizer's state.

State lies in rows of its own, one float for each element (also Adam's count of steps): so any slice can be
cut from any others when the number of PS changes.

The last elements of the vector may be running averages (`models.batch_norms`): no optimizer updates these,
and no learning rate or clipping applies to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.store.partition import Floats, dense_slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.runtime.kernels.bell_requests import Parameters
    from dlrover_nb.core.runtime.kernels.rule import Rule
    from dlrover_nb.core.structs.job.job import Averages


class DenseSlice:
    """Elements of PS `index` of `n_ps`.

    Attributes
    ----------
    range
        Where they lie in the vector.
    table
        float32 [1 + state, m]: values, then state.
    n_trained
        The first elements, which are parameters; averages follow.
    ready
        Whether every element has a value.
    """

    def __init__(
        self, rule: Rule, length: int, index: int, n_ps: int, averages: Sequence[Averages] = ()
    ) -> None:
        self._rule, self._length = rule, length
        counts, weights = [each.n for each in averages], [each.weight for each in averages]
        self._all_decay = 1 - np.repeat(np.array(weights, np.float64), counts)
        self._clear(index, n_ps)

    @property
    def n_byte(self) -> int:
        """Bytes allocated."""
        return self.table.nbytes + self._filled.nbytes

    @property
    def n_average(self) -> int:
        """The last elements, which are averages."""
        return len(self._decay)

    def describe(self, parameters: Parameters) -> None:
        """Say where the slice lies."""
        parameters.dense, parameters.decay = self._at
        parameters.n_dense, parameters.n_trained = self.table.shape[1], self.n_trained

    def average(self, shares: Floats) -> None:
        """Take the shares of a batch into the averages: each becomes decay * value + share."""
        values = self.table[0, self.n_trained :]
        values[:] = self._decay * values + shares

    def init(self, values: Floats) -> bool:
        """Start from `values`, of this length, unless there are some; whether it did."""
        if self.ready:
            return False
        self.table[0] = values
        self.table[1:] = self._rule.first_state
        self._fill(slice(0, len(values)))
        return True

    def place(self, index: int, n_ps: int) -> None:
        """Hold another slice from now on; what both have in common stays."""
        offset, table, ready = self.range.start, self.table, self.ready
        self._clear(index, n_ps)
        if ready:
            self.load(offset, table)

    def load(self, offset: int, table: Floats) -> None:
        """Take what a slice that begins at `offset` has in common with this one."""
        start = max(self.range.start, offset)
        stop = min(self.range.stop, offset + table.shape[1])
        if start < stop:
            here = slice(start - self.range.start, stop - self.range.start)
            self.table[:, here] = table[:, start - offset : stop - offset]
            self._fill(here)

    def _clear(self, index: int, n_ps: int) -> None:
        self.range = dense_slice(self._length, index, n_ps)
        n = self.range.stop - self.range.start
        self.table = np.zeros((1 + self._rule.dense_state, n), np.float32)
        first = self._length - len(self._all_decay)  # of all averages
        self.n_trained = min(max(first - self.range.start, 0), n)
        self._decay = self._all_decay[max(self.range.start - first, 0) :][: n - self.n_trained]
        self._at = int(self.table.ctypes.data), int(self._decay.ctypes.data)
        self._filled = np.zeros(n, np.bool_)
        self.ready = not n

    def _fill(self, where: slice) -> None:
        if not self.ready:
            self._filled[where] = True
            self.ready = bool(self._filled.all())
        if self.ready:
            self._filled = np.empty(0, np.bool_)
