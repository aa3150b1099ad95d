"""The plans that a job may be given: the integer grid within its bounds, cut to what is feasible.

Four things cut it: the user's pins (they replace an axis of the grid by one value, also one outside the
bounds), the quota of the job, what the machines hold, and the memory that each node needs (one value per
role, from the forecast: it sizes the nodes and is not an axis, because more memory makes no plan faster;
parameter servers share what they hold, so each of fewer gets a larger part of it).

`PlanGrid` is the definition and takes no memory; `PlanSpace` is a list of plans. The two are separate because
a grid may span more plans than fit in memory, and is then searched without being listed.

Whether a plan fits is defined in `structs.capacity.fits`, node by node. A plan has only two kinds of node and
machines come in shapes, so the same placing is arithmetic on whole groups here and runs over all plans at
once; a property test checks that the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.bin_packing import fits
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeLimits, machines
from dlrover_nb.core.structs.plan.resources import (
    MEMORY_STEP_MIB,
    PsShare,
    ResourcePlan,
    RolePlan,
    amount_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.capacity import Capacity

    Array = NDArray[np.float64]

MAX_PLANS = 10_000_000  # beyond it listing all plans takes too long, and a search replaces it
LESS = 0.75  # of the present memory: a request that is not this much smaller is no change
CHUNK = 1 << 17  # plans evaluated at once: their columns fit in or near the processor's cache
CACHED_PLANS = 1 << 13  # spaces up to this size are kept: jobs of one queue share bounds and machines

Ladders = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class PlanSpace:
    """Plans as rows (w, p, lambda_w, lambda_p) of `axes`; memory per node is as in `PlanGrid`."""

    axes: Array  # (n_plans, 4)
    worker_memory_mib: int
    ps_memory_mib: int
    ps_share: PsShare = field(default_factory=PsShare)
    gpus: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.axes)

    def plan(self, index: int) -> ResourcePlan:
        """Return one plan as a record."""
        row = self.axes[index]
        each = ps_memory(row[1:2], self.ps_memory_mib, self.ps_share)
        return plan_of(row, self.worker_memory_mib, int(each[0]), self.gpus)

    @property
    def memory_mib(self) -> tuple[int, Array]:
        """Memory of each worker, and of each PS of each plan: shape (n_plans,)."""
        return self.worker_memory_mib, ps_memory(self.axes[:, 1], self.ps_memory_mib, self.ps_share)

    def at(self, rows: Array) -> PlanSpace:
        """Return other plans of the same sizes: ndarray of shape (n, 4)."""
        return replace(self, axes=rows)


@dataclass(frozen=True, slots=True)
class PlanGrid:
    """All plans that a job may be given, by what limits them; `plan_grid` makes it.

    Parameters
    ----------
    ladders
        Allowed values of each axis (w, p, lambda_w, lambda_p), ascending, none empty.
    capacity
        What the machines hold.
    worker_memory_mib, ps_memory_mib
        Of each node.
    ps_share
        What each PS needs by the number of them, where that is known.
    quota_cpu, quota_memory_mib
        The most that the whole job may use; None means no quota.
    pins
        The user's pins: `ladders` and memory contain them already, they are kept for error messages.
    gpus
        Of each worker and of each PS, in all plans.
    """

    ladders: Ladders
    capacity: Capacity
    worker_memory_mib: int
    ps_memory_mib: int
    quota_cpu: float | None = None
    quota_memory_mib: int | None = None
    pins: Pins = field(default_factory=Pins)
    ps_share: PsShare = field(default_factory=PsShare)
    gpus: tuple[int, int] = (0, 0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values on each axis."""
        return tuple(len(ladder) for ladder in self.ladders)

    @property
    def n_plan(self) -> int:
        """Plans that the ladders span, whether they fit or not."""
        return prod(self.shape)

    @property
    def smallest(self) -> ResourcePlan:
        """The plan with the least of everything."""
        return self.sized(np.array([[ladder[0] for ladder in self.ladders]])).plan(0)

    def sized(self, axes: Array) -> PlanSpace:
        """Return plans as a space with the memory of this grid: ndarray of shape (n, 4)."""
        return PlanSpace(axes, self.worker_memory_mib, self.ps_memory_mib, self.ps_share, self.gpus)

    def rows(self, steps: NDArray[np.intp]) -> Array:
        """Return the plans at these positions on the ladders: both of shape (n, 4)."""
        columns = np.empty((4, len(steps)))
        for column, ladder, position in zip(columns, self.ladders, steps.T, strict=True):
            column[:] = np.asarray(ladder)[position]
        return columns.T

    def allows(self, axes: Array) -> NDArray[np.bool_]:
        """Return which plans are within the quota and fit on the machines: shape (n_plans,)."""
        w, p, worker_cpu, ps_cpu = axes.T
        is_allowed = np.ones(len(axes), dtype=bool)
        if self.quota_cpu is not None:
            is_allowed &= w * worker_cpu + p * ps_cpu <= self.quota_cpu + 1e-9
        worker_mib, ps_mib = self.sized(axes).memory_mib
        if self.quota_memory_mib is not None:
            is_allowed &= w * worker_mib + p * ps_mib <= self.quota_memory_mib
        if is_allowed.all():
            return self._fits(axes, worker_mib, ps_mib)
        is_allowed[is_allowed] = self._fits(axes[is_allowed], worker_mib, ps_mib[is_allowed])
        return is_allowed

    def _fits(self, axes: Array, worker_mib: int, ps_mib: Array) -> NDArray[np.bool_]:
        return fits(axes, self.capacity, worker_memory_mib=worker_mib, ps_memory_mib=ps_mib, gpus=self.gpus)

    def contains(self, axes: Array) -> NDArray[np.bool_]:
        """Return which plans are on the ladders, regardless of quota and machines: shape (n_plans,)."""
        on = [np.isin(column, ladder) for column, ladder in zip(axes.T, self.ladders, strict=True)]
        return np.asarray(np.logical_and.reduce(on))

    def reach(self) -> NDArray[np.intp]:
        """Return how many counts of workers, from the least on, each (p, lambda_w, lambda_p) allows.

        One more worker never makes room: it needs more of the quota, and first fit leaves less beside it. So
        the allowed counts are the first ones, and bisection finds the last. Most grids end at its first step.
        """
        n_w, *shape = self.shape
        n_cell, reach = prod(shape), np.empty(prod(shape), dtype=np.intp)
        for start in range(0, n_cell, CHUNK):
            cell = np.arange(start, min(start + CHUNK, n_cell))
            most, tried = np.full(len(cell), n_w), np.full(len(cell), n_w)
            least = np.zeros(len(cell), dtype=np.intp)
            while (left := np.flatnonzero(least < most)).size:
                is_allowed = self.allows(self.rows_at((tried[left] - 1) * n_cell + cell[left]))
                least[left[is_allowed]] = tried[left[is_allowed]]
                most[left[~is_allowed]] = tried[left[~is_allowed]] - 1
                tried = (least + most + 1) // 2
            reach[start : start + len(cell)] = least
        return reach.reshape(shape)

    def rows_at(self, index: NDArray[np.intp]) -> Array:
        """Return the plans at these positions on the grid, in the order of the ladders: shape (n, 4)."""
        return self.rows(np.column_stack(np.unravel_index(index, self.shape)))

    def chunks(self) -> Iterator[Array]:
        """Yield all plans that are allowed, some 10^5 at a time, in the order of the ladders."""
        reach = self.reach()
        for start in range(0, self.n_plan, CHUNK):
            index = np.arange(start, min(start + CHUNK, self.n_plan))
            yield self.rows_at(index[allowed(index, reach)])


def allowed(index: NDArray[np.intp], reach: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which positions on a grid are allowed plans, given its `PlanGrid.reach`."""
    step, cell = np.divmod(index, reach.size)
    return np.asarray(step < reach.reshape(-1)[cell])


def ps_memory(n_ps: Array, now_mib: int, share: PsShare) -> Array:
    """Return the memory of each PS: as now, or what each needs where that is more, or clearly less.

    Parameters
    ----------
    n_ps
        Number of PS of each plan: ndarray of shape (n_plans,).
    """
    if not share.own_mib and not share.shared_mib:
        return np.full(len(n_ps), now_mib, dtype=np.float64)
    needed = np.maximum(share.own_mib + share.shared_mib / n_ps, share.least_mib)
    needed = np.ceil(needed / MEMORY_STEP_MIB) * MEMORY_STEP_MIB
    is_less = (needed <= LESS * now_mib) & (share.least_mib > 0)
    return np.where(is_less, needed, np.maximum(needed, now_mib))


def plan_of(
    row: Array, worker_memory_mib: int, ps_memory_mib: int, gpus: tuple[int, int] = (0, 0)
) -> ResourcePlan:
    """Return the record of one row (w, p, lambda_w, lambda_p)."""
    w, p, worker_cpu, ps_cpu = row
    return ResourcePlan(
        worker=RolePlan(int(w), float(worker_cpu), worker_memory_mib, gpus[0]),
        ps=RolePlan(int(p), float(ps_cpu), ps_memory_mib, gpus[1]),
    )


def plan_grid(
    bounds: PlanBounds,
    capacity: Capacity,
    *,
    worker_memory_mib: int,
    ps_memory_mib: int,
    pins: Pins | None = None,
    ps_share: PsShare | None = None,
) -> PlanGrid:
    """Return the grid of plans within the bounds; a pin replaces its axis or its role's memory.

    Counts of PS that no machine holds, since each would get too large a part, are left out where others are.
    """
    fixed = pins or Pins()
    share = PsShare() if fixed.ps_memory_mib or ps_share is None else ps_share
    w, p, *cpus = ladders(bounds, fixed)
    worker_cpus, ps_cpus = (_allowed(sizes, capacity) for sizes in cpus)
    most_mib = capacity.most_memory_mib
    counts = tuple(n for n, mib in zip(p, ps_memory(np.array(p), 0, share), strict=True) if mib <= most_mib)
    return PlanGrid(
        ladders=(w, counts or p, worker_cpus, ps_cpus),
        capacity=capacity,
        worker_memory_mib=fixed.worker_memory_mib or worker_memory_mib,
        ps_memory_mib=fixed.ps_memory_mib or ps_memory_mib,
        quota_cpu=bounds.quota_cpu,
        quota_memory_mib=bounds.quota_memory_mib,
        pins=fixed,
        ps_share=share,
    )


def _allowed(cpus: tuple[float, ...], capacity: Capacity) -> tuple[float, ...]:
    """Return the sizes that the cluster's limits of a node allow; all where they allow none."""
    limits = capacity.node_limits or NodeLimits()
    return tuple(cpu for cpu in cpus if "cpu" not in limits.broken((cpu, 0))) or cpus


def list_plans(grid: PlanGrid) -> PlanSpace:
    """Return all plans of the grid that are allowed.

    Raises
    ------
    InvalidValueError
        When the grid spans more than `MAX_PLANS` plans.
    """
    if grid.n_plan > MAX_PLANS:
        raise InvalidValueError(
            f"bounds must span <= {MAX_PLANS} plans to be listed, got {grid.n_plan}; "
            "search them, lower max_workers or list fewer CPU sizes"
        )
    return _cached(grid) if grid.n_plan <= CACHED_PLANS else _listed(grid)


def _listed(grid: PlanGrid) -> PlanSpace:
    axes = np.concatenate(list(grid.chunks()))
    axes.setflags(write=False)
    return grid.sized(axes)


_cached = lru_cache(maxsize=64)(_listed)


def nothing_left(grid: PlanGrid) -> str:
    """Say which constraint leaves no plan at all; empty when the smallest plan is allowed.

    The smallest plan needs the least of everything, so a constraint that forbids it forbids all others.
    """
    plan = grid.smallest
    advice = (
        f"; {grid.pins} is pinned, so release a pin" if grid.pins else "; choose smaller nodes or allow more"
    )
    amount = amount_words(plan.total_cpu, plan.total_memory_mib, plan.total_gpu)
    needs = f"the smallest plan, {plan.short}, needs {amount}"
    if grid.quota_cpu is not None and plan.total_cpu > grid.quota_cpu:
        return f"a plan must stay within the quota of {grid.quota_cpu:g} cores, but {needs}{advice}"
    if grid.quota_memory_mib is not None and plan.total_memory_mib > grid.quota_memory_mib:
        return f"a plan must stay within the quota of {grid.quota_memory_mib} MiB, but {needs}{advice}"
    row = np.array([[plan.worker.count, plan.ps.count, plan.worker.cpu, plan.ps.cpu]])
    if grid.allows(row)[0]:
        return ""
    nodes = f"{plan.worker.memory_mib} MiB per worker, {plan.ps.memory_mib} MiB per PS"
    return f"a plan must fit on the machines ({machines(grid.capacity)}), but {needs} ({nodes}){advice}"


def ladders(bounds: PlanBounds, pins: Pins | None = None) -> Ladders:
    """Return the allowed values of each axis (w, p, lambda_w, lambda_p), ascending; a pin is the only one."""
    fixed = pins or Pins()
    most_workers, most_ps = bounds.counts
    return (
        _pinned(fixed.workers, tuple(float(n) for n in range(1, most_workers + 1))),
        _pinned(fixed.ps, tuple(float(n) for n in range(1, most_ps + 1))),
        _pinned(fixed.worker_cpu, bounds.worker_cpus),
        _pinned(fixed.ps_cpu, bounds.ps_cpus),
    )


def _pinned(pin: float | None, ladder: tuple[float, ...]) -> tuple[float, ...]:
    return ladder if pin is None else (float(pin),)


STRIDES = (1.5, 2.0)


def neighbours(current: Array, bounds: PlanBounds, pins: Pins | None = None) -> Array:
    """Return the plans one step away on one axis, within bounds and pins: ndarray of shape (n <= 9, 4).

    Where the present plan breaks a pin, the first step is to keep it: that plan is a neighbor, and the others
    are one step away from it.
    """
    fixed = pins or Pins()
    pinned = (fixed.workers, fixed.ps, fixed.worker_cpu, fixed.ps_cpu)
    here = np.array([own if pin is None else pin for own, pin in zip(current, pinned, strict=True)])
    rows = [here] if (here != current).any() else []
    for axis, ladder in enumerate(ladders(bounds, fixed)):
        below = [v for v in ladder if v < here[axis]]
        above = [v for v in ladder if v > here[axis]]
        for value in (*above[:1], *below[-1:]):
            row = here.copy()
            row[axis] = value
            rows.append(row)
    return np.array(rows).reshape(-1, 4)


def strides(current: Array, bounds: PlanBounds, pins: Pins | None = None) -> Array:
    """Return the plans at about 1.5 or 2 times the value of one axis, or of both counts together.

    One step on a long ladder gives almost no information: terms of T_iter are distinguished by ratios. So
    experiments go by factors of `STRIDES`, up and down, to the nearest allowed value within bounds and pins.
    """
    fixed = ladders(bounds, pins)
    rows = []
    for axes in ((0,), (1,), (2,), (3,), (0, 1)):
        for factor in (*STRIDES, *(1 / f for f in STRIDES)):
            row = current.copy()
            for axis in axes:
                rungs = np.asarray(fixed[axis])
                row[axis] = rungs[np.abs(np.log(rungs / (factor * current[axis]))).argmin()]
            rows.append(row)
    plans = np.unique(np.array(rows), axis=0)
    return np.asarray(plans[(plans != current).any(axis=1)])
