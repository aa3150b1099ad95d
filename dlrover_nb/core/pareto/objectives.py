"""Input of a solver: cost and throughput of plans.

It is a separate module, below the solvers and below `pareto.solve`, which calls them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dlrover_nb.core.pareto.space import Ladders

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Parts:
    """Cost and seconds per sample of all plans of a grid as sums of few numbers, none below zero.

    A plan is made of workers (w, lambda_w) and of PS (p, lambda_p). Each half has its cost, and no term of
    T_iter depends on the cores of both roles. So two small tables and one sum describe a million plans. They
    are right to some units in the last place: to decide what to leave out, not to order what is left.
    """

    worker_cost: Array  # (n_w, n_lambda_w)
    ps_cost: Array  # (n_p, n_lambda_p)
    worker_s: Array  # (n_w, n_lambda_w)
    ps_s: Array  # (n_w, n_p, n_lambda_p)


class Objectives(Protocol):
    """What a search minimizes and maximizes."""

    def __call__(self, axes: Array) -> tuple[Array, Array]:
        """Return cost and throughput of each row (w, p, lambda_w, lambda_p).

        The values of a row must not depend on the other rows, to the last bit.
        """

    def parts(self, ladders: Ladders) -> Parts:
        """Return the same of all plans between these values of the axes."""
