"""Share a global batch among kinds of devices that accumulate gradients, exactly (AntDT-DD, Eq. 4).

Minimize max_i C_i·B_i / v_i with Σ n_i·C_i·B_i = B and bounds on B_i and C_i. A slow device keeps a batch
that uses it fully, and a fast one computes several of them before the update, where ADJUST_BS alone would
leave the slow device half idle.

Only the samples m_i = C_i·B_i of a device count for time and sum, so a kind is a set of values m. Within a
time z it may take the values up to z·v, or its least value where that takes longer: no solution avoids
that time, so only the others can be better or worse. U(z) is the sum of the greatest values. That sums
reach B exactly is a subset-sum problem: U(z) ≥ B is necessary and not sufficient (with sets of multiples,
or n_i > 1). What is to be taken off is the *deficit* U(z) - B. Near the optimum it is small, about one
step of each kind that goes up there, and only values that far below the greatest ones matter. So we

1. find the least z with U(z) ≥ B by bisection;
2. decide whether the deficit can be reached: a bit set of reachable deficits, one Python integer, to which
   each kind adds its own by shifts; it ends as soon as the deficit is in it, for any kind may take off
   nothing;
3. where it cannot, go up in doubled steps of time, then halve the candidates m / v of the last step. What
   is feasible within z is so within any longer time, therefore this is exact.

The bit sets are as long as the deficit and not as the global batch, and are divided by the greatest common
divisor of all steps, by which also parities that nothing can mend are found at once. Problems made to be
hard (few kinds of large, coprime numbers of devices) only make the deficits longer. A general solver of
integer programs needs a binary variable for each kind and C_i, since C_i·B_i is a product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Whole = NDArray[np.int64]
    Floats = NDArray[np.float64]

MOST_BATCH = 2**31  # of one device, and of the global batch: products stay exact in 64 bits
MOST_ACCUMULATED = 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices of one series.

    Parameters
    ----------
    n
        n_i: how many there are.
    samples_per_s
        v_i: speed of one of them.
    least, most
        Bounds on its mini-batch: the saturation point, below which a smaller one saves no time, and what fits
        into memory.
    least_accumulated, most_accumulated
        Bounds on C_i: mini-batches for one update.
    """

    n: int
    samples_per_s: float
    least: int
    most: int
    least_accumulated: int = 1
    most_accumulated: int = 5

    def __post_init__(self) -> None:
        _check.at_least("n", self.n, 1)
        _check.at_most("n", self.n, MOST_BATCH)
        _check.above_zero(
            "samples_per_s", self.samples_per_s, hint="measure the device before it gets a share"
        )
        _check.at_least("least", self.least, 1)
        _check.at_least("most", self.most, self.least, hint="most is an upper bound, least the lower one")
        _check.at_most("most", self.most, MOST_BATCH)
        _check.at_least("least_accumulated", self.least_accumulated, 1)
        _check.at_least("most_accumulated", self.most_accumulated, self.least_accumulated)
        _check.at_most("most_accumulated", self.most_accumulated, MOST_ACCUMULATED)


@dataclass(frozen=True, slots=True)
class Accumulated:
    """What each device of a kind does in one iteration: `times` mini-batches of `size` samples."""

    size: int
    times: int

    @property
    def samples(self) -> int:
        """Samples of one device in one iteration."""
        return self.size * self.times


def slowest_s(kinds: Sequence[Kind], shares: Sequence[Accumulated]) -> float:
    """Return max_i C_i·B_i / v_i: how long the slowest device computes."""
    return max(share.samples / kind.samples_per_s for kind, share in zip(kinds, shares, strict=True))


def share_accumulated(kinds: Sequence[Kind], global_batch: int) -> tuple[Accumulated, ...]:
    """Return the mini-batches of each kind that minimize the time of the slowest device.

    Among equal ones the fewest and greatest mini-batches: each has a fixed cost.

    Raises
    ------
    InvalidValueError
        When no mini-batches within the bounds sum to the global batch.
    """
    _check.at_least("global batch", global_batch, 1)
    _check.at_most("global batch", global_batch, MOST_BATCH)
    if not kinds:
        raise InvalidValueError("kinds must name at least one kind of device, got none; add one")
    table = _Table.of(kinds)
    step = _check_solvable(kinds, table, global_batch)
    best = _best(table, global_batch, step)
    return tuple(_split(kind, samples) for kind, samples in zip(kinds, best, strict=True))


@dataclass(frozen=True, slots=True)
class _Table:
    """All kinds as columns; `times` has shape (1, n_times), the others (n_kind, 1)."""

    n: Whole
    speeds: Floats
    least: Whole
    most: Whole
    times: Whole
    is_allowed: NDArray[np.bool_]  # which C each kind may have; shape (n_kind, n_times)
    low: Whole  # the least samples of a device; shape (n_kind,)

    @classmethod
    def of(cls, kinds: Sequence[Kind]) -> _Table:
        def column(name: str) -> Whole:
            return np.array([[getattr(kind, name)] for kind in kinds], dtype=np.int64)

        few, many, least = column("least_accumulated"), column("most_accumulated"), column("least")
        times = np.arange(few.min(), many.max() + 1)[None, :]
        speeds = np.array([[kind.samples_per_s] for kind in kinds])
        allowed = (few <= times) & (times <= many)
        return cls(column("n"), speeds, least, column("most"), times, allowed, (few * least)[:, 0])

    def greatest(self, time_s: float) -> Whole:
        """Return the most samples of a device of each kind in that time, its least where it needs longer."""
        limit = np.minimum(time_s * self.speeds, float(self.most.max() * self.times.max())).astype(np.int64)
        limit += (limit + 1) / self.speeds <= time_s  # the product was rounded down
        limit -= limit / self.speeds > time_s  # or up
        sizes = np.minimum(limit // self.times, self.most)
        reached = np.where(self.is_allowed & (sizes >= self.least), sizes * self.times, 0)
        best: Whole = np.maximum(reached.max(axis=1), self.low)
        return best

    def next_s(self, samples: Whole) -> float:
        """Return the next longer time at which some device could do more than `samples`, or infinity."""
        sizes = np.maximum(samples[:, None] // self.times + 1, self.least)
        times_s = np.where(self.is_allowed & (sizes <= self.most), sizes * self.times / self.speeds, np.inf)
        return float(times_s.min())

    def between(self, low_s: float, high_s: float) -> Floats:
        """Return all times above `low_s` up to `high_s` at which some device could do more, ascending."""
        first = np.maximum((low_s * self.speeds / self.times).astype(np.int64), self.least)
        last = np.minimum((high_s * self.speeds / self.times).astype(np.int64) + 1, self.most)
        count = np.where(self.is_allowed, np.maximum(last - first + 1, 0), 0)
        cell = np.repeat(np.arange(count.size), count.ravel())
        offset = np.arange(len(cell)) - np.repeat(np.cumsum(count.ravel()) - count.ravel(), count.ravel())
        row, column = np.divmod(cell, count.shape[1])
        times_s = (first.ravel()[cell] + offset) * self.times[0, column] / self.speeds[row, 0]
        return np.unique(times_s[(times_s > low_s) & (times_s <= high_s)])

    def deficits(self, row: int, top: int, most: int) -> Whole:
        """Return by how much a device of one kind may stay below `top`, at most `most`; 0 is the first."""
        values = np.arange(top, max(top - most, 1) - 1, -1)[:, None]
        times = self.times[:, self.is_allowed[row]]
        low, high = self.least[row, 0] * times, self.most[row, 0] * times
        is_value = ((values % times == 0) & (values >= low) & (values <= high)).any(axis=1)
        deficits: Whole = np.flatnonzero(is_value)
        return deficits


def _check_solvable(kinds: Sequence[Kind], table: _Table, global_batch: int) -> int:
    """Refuse a batch that no sizes sum to for a plain reason; return the step of all sums."""
    high = np.where(table.is_allowed, table.most * table.times, 0).max(axis=1)
    n = table.n[:, 0]
    least, most = (sum(map(int.__mul__, n.tolist(), values.tolist())) for values in (table.low, high))
    if not least <= global_batch <= most:
        raise InvalidValueError(
            f"the global batch must be between {least:,} and {most:,} samples for these devices, got "
            f"{global_batch:,}; change it or the bounds of mini-batches"
        )
    step = math.gcd(*(kind.n * _step(kind) for kind in kinds))
    if step == 0:
        return 1  # a single sum, and it is the global batch
    if (global_batch - least) % step:
        below = global_batch - (global_batch - least) % step
        raise InvalidValueError(
            f"the global batch must be {least:,} and a multiple of {step} for these devices, got "
            f"{global_batch:,}; take {below:,} or {below + step:,}"
        )
    return step


def _step(kind: Kind) -> int:
    """Return the greatest common divisor of the differences of a kind's values, 0 where it has one."""
    has_one = kind.least_accumulated == kind.most_accumulated
    if kind.least == kind.most:
        return 0 if has_one else kind.least
    return kind.least_accumulated if has_one else 1  # that of c and c + 1


def _best(table: _Table, global_batch: int, step: int) -> list[int]:
    """Return the samples of one device of each kind, at the least time of the slowest."""
    low_s = _least_time(table, global_batch)
    samples = _taken(table, low_s, global_batch, step)
    if samples is not None:
        return samples
    top = table.greatest(low_s)
    rise_s = table.next_s(top) - low_s
    while math.isfinite(rise_s):
        high_s = low_s + rise_s
        samples = _taken(table, high_s, global_batch, step)
        if samples is not None:
            return _first(table, table.between(low_s, high_s), global_batch, step)
        if table.next_s(table.greatest(high_s)) == math.inf:
            break
        low_s, rise_s = high_s, max(2 * rise_s, table.next_s(table.greatest(high_s)) - high_s)
    raise InvalidValueError(
        f"no mini-batches within the bounds sum to the global batch of {global_batch:,}; change it by a few "
        "samples, or let devices have smaller mini-batches"
    )


def _least_time(table: _Table, global_batch: int) -> float:
    """Return the least time in which the greatest values sum to enough."""
    n = table.n[:, 0]
    low_s, high_s = 0.0, float((table.most * table.times / table.speeds)[table.is_allowed].max())
    while low_s < (middle_s := (low_s + high_s) / 2) < high_s:
        is_enough = int(n @ table.greatest(middle_s)) >= global_batch
        low_s, high_s = (low_s, middle_s) if is_enough else (middle_s, high_s)
    return high_s


def _first(table: _Table, times_s: Floats, global_batch: int, step: int) -> list[int]:
    """Return what is taken at the first of these times at which the sum is reached; it is at the last."""
    low, high = -1, len(times_s) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _taken(table, float(times_s[middle]), global_batch, step) is None:
            low = middle
        else:
            high = middle
    samples = _taken(table, float(times_s[high]), global_batch, step)
    assert samples is not None
    return samples


def _taken(table: _Table, time_s: float, global_batch: int, step: int) -> list[int] | None:
    """Return samples of one device of each kind within that time that sum to the batch, if there are any."""
    top = table.greatest(time_s).tolist()
    n = table.n[:, 0].tolist()
    missing = (sum(map(int.__mul__, n, top)) - global_batch) // step
    reached, kinds = [1], []  # bit d: a deficit of d steps can be reached with the kinds so far
    for row, value in enumerate(top):
        if reached[-1] >> missing & 1:
            break
        limit = missing * step // n[row]
        deficits = table.deficits(row, value, limit)[1:].tolist() if limit else []
        if not deficits:
            continue
        shifts = [n[row] * d // step for d in deficits]
        kinds.append((row, deficits, shifts))
        reached.append(_extended(reached[-1], shifts, missing))
    if not reached[-1] >> missing & 1:
        return None
    return _less(top, kinds, reached, missing)


def _extended(before: int, shifts: list[int], missing: int) -> int:
    """Return the deficits that one more kind makes reachable, none above `missing`."""
    exact = [shift for shift in shifts if before >> (missing - shift) & 1]
    if exact:
        return before | 1 << missing
    after = before
    for shift in shifts:
        after |= before << shift
    return after & ((1 << missing + 1) - 1)


def _less(
    top: list[int], kinds: list[tuple[int, list[int], list[int]]], reached: list[int], missing: int
) -> list[int]:
    """Return the values that are left when each kind takes off its part of the deficit."""
    values = list(top)
    for (row, deficits, shifts), before in zip(reversed(kinds), reversed(reached[:-1]), strict=True):
        if before >> missing & 1:
            continue
        i = next(i for i, shift in enumerate(shifts) if shift <= missing and before >> (missing - shift) & 1)
        values[row] -= deficits[i]
        missing -= shifts[i]
    return values


def _split(kind: Kind, samples: int) -> Accumulated:
    """Return the fewest mini-batches of that many samples."""
    times = next(
        c
        for c in range(kind.least_accumulated, kind.most_accumulated + 1)
        if samples % c == 0 and kind.least <= samples // c <= kind.most
    )
    return Accumulated(samples // times, times)
