"""Gradients that are gathered until a global batch is full, and applied then as one step (GBA).

Workers train as in asynchronous training: each sends the gradients of its batch and goes on at once. The
optimizer sees what it sees in synchronous training, the mean gradient of a global batch, so the learning rate
and the other settings of one fit the other (Su et al. 2022, "GBA", NeurIPS, arXiv 2205.11048). The age of a
gradient is the number of steps between the moment when its parameters were read and the step that it is in.

A gradient that is older than a tolerance counts less. In the paper it counts nothing from there on. We let
it count in inverse proportion to its age instead, from the tolerance on without a jump: a worker that is slow
for good would otherwise train none of its rows, and a job has to train each row of a pass. The mean is over
all rows of the global batch, so what an old gradient lacks is missing from the step, and the others do not
count more for it.

The gradients of a batch are in one step as a whole: a global batch may be larger than its size by less than
one batch, and no row is ever divided or left over. `flush` applies what has been gathered as a step of its
own, a smaller one; a batch that is the only one of its step is applied exactly as in asynchronous training.

Shares in running averages (batch normalization) are no gradients: each batch counts by its rows there.

Nothing here does input or output, or knows of workers or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.ps.gradient_rounds import weighted_sum
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.ps.gradient_rounds import Gradients


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a batch adds to a global batch.

    Parameters
    ----------
    age
        Steps between the read of its parameters and the step that is gathered now.
    n_row
        Rows of the batch; the gradients are those of its mean loss.
    gradients
        Distinct rows [n], their gradients [n, width], and the dense gradient [m]; they must not change.
    rate
        Factor of the learning rate.
    """

    age: int
    n_row: int
    gradients: Gradients
    rate: float = 1.0

    def __post_init__(self) -> None:
        _check.at_least("age", self.age, 0)
        _check.at_least("n_row", self.n_row, 1)


@dataclass(frozen=True, slots=True)
class GlobalStep:
    """One step of the optimizer: its gradients, and of how many rows they are the mean."""

    gradients: Gradients
    n_row: int


def weight_of_age(age: int, tolerance: int) -> float:
    """Return how much a gradient of an age counts: 1 up to the tolerance, then less with each step."""
    return 1.0 if age <= tolerance else (1 + tolerance) / (1 + age)


class GlobalBatch:
    """What has been gathered for the next step.

    Parameters
    ----------
    tolerance
        Age up to which gradients count in full, in steps.
    n_average
        The last elements of a dense gradient that are shares in running averages.
    """

    def __init__(self, *, tolerance: int, n_average: int = 0) -> None:
        _check.at_least("tolerance", tolerance, 0)
        self._tolerance, self._n_average = tolerance, n_average
        self._parts: list[Gathered] = []

    @property
    def n_row(self) -> int:
        """Rows that have been gathered and not applied."""
        return sum(part.n_row for part in self._parts)

    def add(self, part: Gathered, size: int) -> GlobalStep | None:
        """Gather the gradients of a batch; return the step to apply now if it completes `size` rows."""
        self._parts.append(part)
        return self.flush() if self.n_row >= size else None

    def flush(self) -> GlobalStep | None:
        """Return what has been gathered as one step, to apply now; None: nothing."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        n_row = sum(part.n_row for part in parts)
        gradients = [part.gradients for part in parts]
        shares = [part.n_row / n_row for part in parts]
        weights = [share * self._factor(part) for share, part in zip(shares, parts, strict=True)]
        rows, row_gradients, dense = weighted_sum(gradients, weights)
        if self._n_average and len(dense) and weights != shares:  # here nothing is of one part itself
            averages = [each[2][-self._n_average :] for each in gradients]
            dense[-self._n_average :] = sum(
                np.float32(n) * each for n, each in zip(shares, averages, strict=True)
            )
        return GlobalStep((rows, row_gradients, dense), n_row)

    def _factor(self, part: Gathered) -> float:
        return part.rate * weight_of_age(part.age, self._tolerance)
