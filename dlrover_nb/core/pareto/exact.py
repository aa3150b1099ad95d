"""The exact Pareto front of cost and throughput over a plan space that is listed.

A small grid is compared whole (`pareto.dominance`). Of a large one not even cost and throughput are computed
for most plans. Both are sums of a number of a plan's workers and one of its PS (`objectives.Parts`), so a
million plans are two additions of small tables, in single precision and in pieces that stay in the cache. A
plan is left out when the k-th front of a sample has a plan that costs clearly less and is clearly faster:
beneath that stand k - 1 others, each dominated by the one before, so that the plan belongs to no front before
the k+1-st. What is left, some percent, is evaluated in full; nothing that is left out can change its order.

Why single precision changes nothing: a dominating plan has to be cheaper by a whole bin of cost, a
hundred times the rounding, and faster by `MARGIN`. Within that, plans are kept.

Rejected: dominance between workers of one kind and between PS of one kind first. A plan that dominates may
not fit on the machines where the dominated one does, so it needs a second way where machines are scarce.
DLRover-RM uses NSGA-II (section 4.3), needed only where the space cannot be listed (`pareto.nsga2`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.dominance import FEW, layers, peeled, until
from dlrover_nb.core.pareto.space import allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.pareto.objectives import Array, Objectives, Parts
    from dlrover_nb.core.pareto.space import PlanGrid

    Single = NDArray[np.float32]

DEPTH = 4  # fronts that are sought at first, where more than one may be wanted


def exact_search(
    grid: PlanGrid, objectives: Objectives, *, rng: np.random.Generator | None = None, least: int = 1
) -> tuple[Array, int]:
    """Return all plans that no other dominates, cheapest first, and how many plans there are (Eq. 9).

    Parameters
    ----------
    rng
        Not used: the front is exact. It is part of the signature that all solvers share.
    least
        How many plans to return, or all: after the front that of the rest, and so on (`layers`).

    Returns
    -------
    tuple of ndarray of shape (n_found, 4) and int
        Rows (w, p, lambda_w, lambda_p), and the number of plans that are allowed.
    """
    del rng
    reach = grid.reach()
    n_plan, depth = int(reach.sum()), 1 if least == 1 else DEPTH
    if n_plan <= FEW:
        rows = np.concatenate(list(grid.chunks()))
        return rows[layers(*objectives(rows), least)], n_plan
    while True:
        rows = _of_first(depth, grid, objectives, reach)
        fronts = peeled(*objectives(rows))
        ranks = list(fronts if len(rows) == n_plan else itertools.islice(fronts, depth))
        if len(rows) == n_plan or sum(map(len, ranks)) >= least:
            return rows[until(ranks, least)], n_plan
        depth *= 2


def _of_first(depth: int, grid: PlanGrid, objectives: Objectives, reach: NDArray[np.intp]) -> Array:
    """Return rows among which are the first `depth` fronts of a grid."""
    cost, gain = objectives(grid.rows_at(sample(grid, reach)))
    deepest = next(itertools.islice(peeled(cost, gain), depth - 1, None), np.empty(0, dtype=np.intp))
    parts = objectives.parts(grid.ladders)
    limits = Limits.of(parts, cost[deepest], gain[deepest])
    index = np.concatenate(list(contenders(parts, limits)))
    return grid.rows_at(index[allowed(index, reach)])


N_BIN = 1 << 13  # of cost
BLOCK = 1 << 16  # plans at once
MARGIN = 1e-5  # of a time in single precision: a hundred times its rounding
N_SAMPLE = 1 << 14
MOST_STEPS = 1 << 20  # of a grid that are tried for a sample, most of which may not fit


@dataclass(frozen=True, slots=True)
class Limits:
    """The most seconds per sample that a plan may need to stay, by bin of cost: shape (N_BIN + 2,)."""

    low: float
    width: float
    seconds: Single

    @classmethod
    def of(cls, parts: Parts, cost: Array, gain: Array) -> Limits:
        """Return what plans of this cost and throughput leave to the rest of a grid."""
        ends = [(table.min(), table.max()) for table in (parts.worker_cost, parts.ps_cost)]
        low, high = (float(a + b) for a, b in zip(*ends, strict=True))
        if not all(np.isfinite(table).all() for table in (parts.worker_s, parts.ps_s, (low, high))):
            raise InvalidValueError(
                "cost and throughput of every plan must be finite, got NaN or inf; check prices and fit"
            )
        width = (high - low) / N_BIN or np.inf
        best = np.zeros(N_BIN + 2)
        bins = ((cost - low) / width).astype(np.intp).clip(0, N_BIN - 1)
        np.maximum.at(best, bins + 2, gain)  # cheaper by a bin at least, however costs were rounded
        with np.errstate(divide="ignore"):
            seconds = (1 + MARGIN) / np.maximum.accumulate(best)
        return cls(low, width, seconds.astype(np.float32))


def sample(grid: PlanGrid, reach: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the positions of about `N_SAMPLE` plans that are allowed, from all over the grid."""
    stride = max(int(reach.sum()) // N_SAMPLE, grid.n_plan // MOST_STEPS, 1)
    stride += 1 - stride % 2  # odd, as ladders are often of even length: else the sample fixes an axis
    index = np.arange(0, grid.n_plan, stride)
    return index[allowed(index, reach)]


def contenders(parts: Parts, limits: Limits) -> Iterator[NDArray[np.intp]]:
    """Yield the positions on the grid of plans that keep to the limits, whether they fit or not."""
    worker_s, ps_s = parts.worker_s.astype(np.float32), parts.ps_s.astype(np.float32)
    worker_bin = ((parts.worker_cost - limits.low) / limits.width).astype(np.float32)
    ps_bin = (parts.ps_cost / limits.width).astype(np.float32)
    (n_w, n_p, n_b), n_a = ps_s.shape, worker_s.shape[1]
    n_cell = n_p * n_a * n_b
    step = max(BLOCK // n_cell, 1)
    step_p = n_p if step > 1 else max(BLOCK // (n_a * n_b), 1)
    for w in range(0, n_w, step):
        for p in range(0, n_p, step_p):
            cost = worker_bin[w : w + step, None, :, None] + ps_bin[None, p : p + step_p, None, :]
            seconds = worker_s[w : w + step, None, :, None] + ps_s[w : w + step, p : p + step_p, None, :]
            limit = limits.seconds.take(cost.astype(np.intp), mode="clip")
            yield np.flatnonzero(seconds <= limit) + w * n_cell + p * n_a * n_b
