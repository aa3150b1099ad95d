"""Which parameter server owns which bucket, by measured load. Pure functions.

The greatest load / capacity of any PS is to be small, and few buckets are to move. The problem is NP-hard
(scheduling on uniform machines), so this is a local search from the owners of now: the PS that is worst off
gives the bucket that lowers the greater of the two the most; where none does, it swaps one. Then every
bucket that can go back to its owner of before does so.

Let W be the whole load, C the whole capacity, m the number of PS. Where no bucket w of the worst PS can go,
each other PS would have at least its load / capacity r with w: the sum over all is r C <= W + (m - 1) w. No
owners at all do better than W / C, and than w on the fastest PS. So

    greatest <= max(1 + ENOUGH, 1 + (m - 1) * greatest capacity / C) * best possible,

for PS of one capacity at most twice the best, and as a rule far better: w is then the smallest bucket of
many. Rejected: LPT (longest first to the PS that is done first), of which the bound is as good, but which
moves nearly all buckets; and an exact search, for 256 buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]
    Step = list[tuple[int, int]]  # (bucket, its next PS)

LEAST_GAIN = 0.1  # by which the greatest load / capacity must fall, else nothing moves
ENOUGH = 0.02  # above the even share: measurements are not more exact
_LEAST_SWAP = 0.02  # that a swap must gain: it moves two buckets
_EXACT = 1e-9  # relative: below it two numbers are alike


@dataclass(frozen=True, slots=True)
class _Loads:
    """Load of each bucket, and capacity of each PS; 0: it is to be emptied."""

    load: Floats
    capacity: Floats

    @property
    def even(self) -> float:
        """The load / capacity that all PS would have if buckets could be divided."""
        return float(self.load.sum() / self.capacity.sum())

    def held(self, owner: Places) -> Floats:
        """Return the load of each PS."""
        return np.bincount(owner, self.load, len(self.capacity)).astype(np.float64)

    def ratios(self, owner: Places) -> Floats:
        """Return load / capacity of each PS."""
        return _over(self.held(owner), self.capacity)

    def count(self, owner: Places) -> Places:
        """Return the number of buckets of each PS."""
        return np.bincount(owner, minlength=len(self.capacity))

    def greatest(self, owner: Places) -> float:
        """Return the greatest load / capacity."""
        return float(self.ratios(owner).max())


def assign_by_load(
    previous: Sequence[int],
    load: Sequence[float],
    capacity: Sequence[float],
    *,
    least_gain: float = LEAST_GAIN,
) -> tuple[int, ...]:
    """Return the PS that owns each bucket from now on; see the module.

    Parameters
    ----------
    previous
        Owner of each bucket until now, as PS indices, others for none.
    load
        Of each bucket, such as rows per second.
    capacity
        Of each PS in the same unit; 0: it is to be emptied. Every other PS gets a bucket at least.
    least_gain
        The share by which the greatest load / capacity must fall; else `previous` is returned, if each
        bucket has an owner, and each PS a bucket.

    Raises
    ------
    InvalidValueError
        When lengths differ, a number is negative or not finite, no PS has a capacity, or buckets are fewer
        than PS.
    """
    loads = _checked(previous, load, capacity)
    before = np.asarray(previous, np.int64)
    start = _with_owners(before, loads)
    owner = _gone_home(_improved(start, loads), before, loads)
    is_allowed = bool((start == before).all())
    if is_allowed and loads.greatest(owner) > (1 - least_gain) * loads.greatest(before):
        owner = before
    return tuple(owner.tolist())


def within_room(
    previous: Sequence[int], owner: Sequence[int], size: Sequence[float], room: Sequence[float]
) -> tuple[int, ...]:
    """Return `owner` without the moves that exceed the room of their PS; small buckets go first.

    Parameters
    ----------
    previous, owner
        Owner of each bucket until now, and wanted.
    size, room
        Of each bucket, and what each PS can take beside all that it holds, in the same unit.
    """
    feasible, left = list(owner), list(room)
    moved = [bucket for bucket, (was, will) in enumerate(zip(previous, owner, strict=True)) if was != will]
    for bucket in sorted(moved, key=lambda each: size[each]):
        if size[bucket] <= left[owner[bucket]]:
            left[owner[bucket]] -= size[bucket]
        else:
            feasible[bucket] = previous[bucket]
    return tuple(feasible)


def _checked(previous: Sequence[int], load: Sequence[float], capacity: Sequence[float]) -> _Loads:
    loads = _Loads(np.asarray(load, np.float64), np.asarray(capacity, np.float64))
    numbers = np.concatenate([loads.load, loads.capacity])
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise InvalidValueError(f"expected finite loads and capacities >= 0, got {load} and {capacity}")
    n_open = int(np.count_nonzero(loads.capacity))
    if len(previous) != len(load) or not 1 <= n_open <= len(load):
        raise InvalidValueError(
            f"expected the load of each of {len(previous)} buckets and 1 to {len(previous)} PS of a "
            f"capacity > 0, got {len(load)} loads and {n_open} such PS"
        )
    return loads


def _with_owners(previous: Places, loads: _Loads) -> Places:
    """Return owners where each bucket has one of some capacity, and each such PS a bucket."""
    owner, n_ps = previous.copy(), len(loads.capacity)
    is_open = loads.capacity > 0
    is_valid = (owner >= 0) & (owner < n_ps)
    homeless = ~is_valid | ~is_open[np.where(is_valid, owner, 0)]
    ps_load = np.bincount(owner[~homeless], loads.load[~homeless], n_ps)
    count = np.bincount(owner[~homeless], minlength=n_ps)
    for bucket in sorted(np.flatnonzero(homeless).tolist(), key=lambda b: -loads.load[b]):
        after = np.where(is_open, _over(ps_load + loads.load[bucket], loads.capacity), np.inf)
        ps = int(np.lexsort((count, after))[0])
        owner[bucket], ps_load[ps], count[ps] = ps, ps_load[ps] + loads.load[bucket], count[ps] + 1
    for ps in np.flatnonzero(is_open & (count == 0)).tolist():
        owner[_spare(owner, loads)] = ps
    return owner


def _spare(owner: Places, loads: _Loads) -> int:
    """Return the bucket of the least load whose owner has others."""
    may_go = loads.count(owner)[owner] > 1
    return int(np.argmin(np.where(may_go, loads.load, np.inf)))


def _improved(owner: Places, loads: _Loads) -> Places:
    """Return owners that no step of one bucket, nor a swap that is worth it, makes better.

    Each step leaves both PS below what the worst one had, so no owners occur twice.
    """
    owner = owner.copy()
    while True:
        ratios = loads.ratios(owner)
        worst = int(np.argmax(ratios))
        if ratios[worst] <= (1 + ENOUGH) * loads.even:
            return owner
        step = _give(owner, worst, loads) or _swap(owner, worst, loads)
        if not step:
            return owner
        for bucket, ps in step:
            owner[bucket] = ps


def _give(owner: Places, worst: int, loads: _Loads) -> Step:
    """Return the best way for the worst PS to give a bucket away; an only one is replaced by a spare one."""
    mine = np.flatnonzero((owner == worst) & (loads.load > 0))
    ps_load, extra, instead = loads.held(owner), 0.0, list[tuple[int, int]]()
    if loads.count(owner)[worst] == 1:
        if not (loads.count(owner) > 1).any():
            return []
        spare = _spare(owner, loads)
        extra, instead = float(loads.load[spare]), [(spare, worst)]
    here = (ps_load[worst] - loads.load[mine] + extra) / loads.capacity[worst]
    there = _over(ps_load[None, :] + loads.load[mine][:, None], loads.capacity)
    there[:, (loads.capacity == 0) | (np.arange(len(ps_load)) == worst)] = np.inf
    after = np.maximum(here[:, None], there)
    which, ps = np.unravel_index(int(np.argmin(after)), after.shape)
    if after[which, ps] >= loads.greatest(owner) * (1 - _EXACT):
        return []
    return [(int(mine[which]), int(ps)), *instead]


def _swap(owner: Places, worst: int, loads: _Loads) -> Step:
    """Return the best swap of a bucket of the worst PS for a smaller one."""
    mine, theirs = np.flatnonzero(owner == worst), np.flatnonzero(owner != worst)
    if not len(theirs):
        return []
    ps_load = loads.held(owner)
    less = loads.load[mine][:, None] - loads.load[theirs][None, :]
    there = (ps_load[owner[theirs]][None, :] + less) / loads.capacity[owner[theirs]][None, :]
    after = np.maximum((ps_load[worst] - less) / loads.capacity[worst], there)
    a, b = np.unravel_index(int(np.argmin(after)), after.shape)
    if after[a, b] >= loads.greatest(owner) * (1 - _LEAST_SWAP):
        return []
    return [(int(mine[a]), int(owner[theirs[b]])), (int(theirs[b]), worst)]


def _gone_home(owner: Places, previous: Places, loads: _Loads) -> Places:
    """Return owners of the same greatest load / capacity, where no bucket moves that could have stayed."""
    owner, most = owner.copy(), loads.greatest(owner) * (1 + _EXACT)
    is_known = (previous >= 0) & (previous < len(loads.capacity))
    is_undone = True
    while is_undone:
        is_undone = False
        for bucket in np.flatnonzero(is_known & (owner != previous)).tolist():
            home, away = int(previous[bucket]), int(owner[bucket])
            after = loads.held(owner)[home] + loads.load[bucket]
            has_room = loads.capacity[home] > 0 and after <= most * loads.capacity[home]
            if has_room and loads.count(owner)[away] > 1:
                owner[bucket], is_undone = home, True
    return owner


def _over(load: Floats, capacity: Floats) -> Floats:
    """Return load / capacity, 0 for a PS that is to be emptied."""
    return np.divide(load, capacity, out=np.zeros_like(load), where=capacity > 0)
