"""Gradients that a PS keeps until their round has ended (BSP), and their sum.

The gradients of a worker are of the mean loss of its own batch. Weighted by the rows of each batch they sum
to the gradients of the mean loss of all batches together: a round of n workers is one step with a batch that
is the union of theirs, without those that were skipped. The coordinator alone decides
who took part (`round_barrier`); other gradients are dropped, with the round of which they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.push_pull import FinishedRound
    from dlrover_nb.core.runtime.store import ParameterStore

    Floats = NDArray[np.float32]
    Gradients = tuple[NDArray[np.int64], Floats, Floats]  # distinct rows, their gradients, the dense gradient

_FIRST = np.zeros(1, np.int64)


class Rounds:
    """Gradients of the open round on one PS."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], Gradients | None] = {}
        self._n_applied = 0

    @property
    def n_applied(self) -> int:
        """Number of the round after the last one that was applied."""
        return self._n_applied

    def keep(self, number: int, worker: str, gradients: Gradients | None) -> None:
        """Keep the gradients of a worker in a round, None of a skipped batch; a repetition replaces them."""
        if number >= self._n_applied:
            self._kept[number, worker] = gradients

    def apply(self, done: FinishedRound, store: ParameterStore) -> bool:
        """Apply a round to the store unless it was applied before; return whether it did.

        Raises
        ------
        WireError
            When a contributor pushed nothing here, which it must do before it arrives.
        """
        if done.number < self._n_applied:
            return False
        missing = [name for name, _ in done.contributors if (done.number, name) not in self._kept]
        if missing:
            raise WireError(f"round {done.number} is to hold gradients of {missing}, which sent none here")
        parts = [(self._kept[done.number, name], n_row) for name, n_row in done.contributors]
        used = [(part, n_row) for part, n_row in parts if part is not None]
        if used:
            total = sum(n_row for _, n_row in used)
            rows, gradients, dense = weighted_sum(
                [part for part, _ in used], [n_row / total for _, n_row in used]
            )
            store.push(rows, gradients)
            if len(dense):
                store.push_dense(dense)
        self._n_applied = done.number + 1
        self._kept = {key: part for key, part in self._kept.items() if key[0] >= self._n_applied}
        return True


def weighted_sum(parts: Sequence[Gradients], weights: Sequence[float]) -> Gradients:
    """Return the sum of gradients, each times its weight, over the distinct rows of all.

    Of one part with weight 1 it is the part itself.
    """
    if len(parts) == 1 and weights[0] == 1.0:
        return parts[0]
    own_kernel = kernel()
    rows, inverse = own_kernel.distinct(np.concatenate([part[0] for part in parts]))
    gradients = np.zeros((len(rows), parts[0][1].shape[1]), np.float32)
    dense, start = np.zeros_like(parts[0][2]), 0
    for (own_rows, own, own_dense), share in zip(parts, weights, strict=True):
        weight = np.float32(share)
        if len(own_rows):
            places = inverse[start : start + len(own_rows)]  # distinct within one worker
            own_kernel.add_rows(gradients, places, own, weight)
        if len(own_dense):
            own_kernel.add_rows(dense[None], _FIRST, own_dense[None], weight)
        start += len(own_rows)
    return rows, gradients, dense
