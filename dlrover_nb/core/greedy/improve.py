"""Improve a selection at prices: fill the free room, search the jobs with close options, swap.

A selection at prices leaves room that no price can allocate. `fill` gives it to the changes with the most
value per priced need, until none fits. Where the proven gap remains, `beam` chooses anew for the jobs whose
best and second-best option are closest at the prices, because only there may the prices have chosen wrongly
(the "core" of the knapsack literature), and `swap` changes pairs of jobs: one frees room, another takes it.

Rejected after trying them on random instances against HiGHS: starting from several prices, and forcing one
option after the other before filling and swapping again (worst of 200 instances 9 % below the optimum in 20
ms; the beam's worst is 1.5 % below, in 8 ms).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dlrover_nb.core.greedy.bids import Array, Index
    from dlrover_nb.core.greedy.options import Options

MAX_ROUND = 40
WIDTH = 400  # partial choices that a beam keeps
CORE_OPTIONS = 2500  # all pairs of options are compared at once: 6 million at the most
TINY = 1e-12  # of the total: gains below it are rounding


def fill(options: Options, chosen: Index, prices: Array) -> Index:
    """Give free room to the most efficient changes until none of them fits."""
    chosen = chosen.copy()
    price = np.maximum(prices, _least_price(options))
    for _ in range(MAX_ROUND):
        free = options.free(chosen)
        value, need = _changes(options, chosen)
        fits = (value > TINY * np.abs(options.value).max()) & ((need <= free[:, None]) | (need <= 0)).all(
            axis=0
        )
        score = np.where(fits, value / (price @ np.maximum(need, 0) + TINY), -np.inf)
        if not _accept(options, chosen, score):
            return chosen
    return chosen


def swap(options: Options, chosen: Index, prices: Array) -> Index:
    """Change two jobs at a time, where one frees room for the other, while that adds value."""
    core = np.flatnonzero(np.isin(options.job, _core_jobs(options, prices)))
    for _ in range(MAX_ROUND):
        pair = _best_pair(options, chosen, core)
        if pair is None:
            return chosen
        chosen = chosen.copy()
        chosen[options.job[pair]] = pair
        chosen = fill(options, chosen, prices)
    return chosen


def beam(options: Options, chosen: Index, prices: Array) -> Index:
    """Choose anew for the core, job by job, keeping the `WIDTH` best partial choices; others stay as chosen.

    A partial choice is worth its value less its need at the prices, because the remaining room is worth these
    prices to the remaining jobs; it must leave them room for their smallest options. Jobs that the prices
    decide most clearly come first, so that the beam still holds many combinations of the others at the end.
    """
    priced = options.priced(prices)
    jobs = _core_jobs(options, prices)[::-1]
    own = [np.arange(a, b) for a, b in zip(options.start, _ends(options), strict=True)]
    rest = np.sum([options.need[:, own[j]].min(axis=1) for j in jobs], axis=0)
    room = options.free(chosen) + options.need[:, chosen[jobs]].sum(axis=1)
    used, score = np.zeros((1, len(room))), np.zeros(1)
    picks = np.zeros((1, 0), dtype=np.intp)
    for j in jobs:
        need = options.need[:, own[j]].T
        rest = rest - need.min(axis=0)
        fits = (used[:, None] + need[None] + rest <= room).all(axis=2)
        before, option = np.nonzero(fits)
        if not len(before):
            return chosen
        total = score[before] + priced[own[j][option]]
        top = np.argsort(-total, kind="stable")[:WIDTH]
        before, option, score = before[top], option[top], total[top]
        used = used[before] + need[option]
        picks = np.column_stack((picks[before], own[j][option]))
    choice = chosen.copy()
    choice[jobs] = picks[np.argmax(options.value[picks].sum(axis=1))]
    return choice


def _core_jobs(options: Options, prices: Array) -> Index:
    """Return the jobs that the prices decide least clearly, least clear first."""
    priced = options.priced(prices)
    best = options.best(priced)
    without = priced.copy()
    without[best] = -np.inf
    second = np.maximum.reduceat(without, options.start)
    order = np.argsort(priced[best] - second, kind="stable")
    return order[np.cumsum((_ends(options) - options.start)[order]) <= CORE_OPTIONS]


def _ends(options: Options) -> Index:
    return np.append(options.start[1:], len(options.job))


def _least_price(options: Options) -> Array:
    """Return a price for resources that are not scarce: enough to break ties only."""
    span = np.abs(options.need).sum(axis=1)
    return np.asarray(1e-6 * np.abs(options.value).max() / np.where(span > 0, span, 1.0))


def _changes(options: Options, chosen: Index) -> tuple[Array, Array]:
    """Return what each option adds in value and need to its job's present choice."""
    now = chosen[options.job]
    return options.value - options.value[now], options.need - options.need[:, now]


def _accept(options: Options, chosen: Index, score: Array) -> bool:
    """Apply each job's best scored change while it still fits; return whether any was applied."""
    candidate = options.best(score)
    order = np.argsort(-score[candidate], kind="stable")
    order = order[np.isfinite(score[candidate[order]])]
    extra = (options.need[:, candidate] - options.need[:, chosen]).T
    free, is_changed = options.free(chosen), False
    for job in order:
        left = free - extra[job]
        if ((left >= 0) | (extra[job] <= 0)).all():
            chosen[job], free, is_changed = candidate[job], left, True
    return is_changed


def _best_pair(options: Options, chosen: Index, core: Index) -> Index | None:
    """Return the two options of different jobs that add most together and fit, or None."""
    value, need = _changes(options, chosen)
    value, need, job = value[core], need[:, core], options.job[core]
    least = TINY * np.abs(options.value).max()
    gain = np.flatnonzero(value > least)
    gain = gain[np.argsort(-value[gain], kind="stable")]
    room = np.flatnonzero((need < 0).any(axis=0))
    if not len(gain) or not len(room):
        return None
    fits = job[room][:, None] != job[gain][None, :]
    for free, column in zip(options.free(chosen), need, strict=True):
        fits &= column[room][:, None] + column[gain][None, :] <= free
    partner = fits.argmax(axis=1)  # gains are in descending order: the first that fits is the largest
    total = np.where(fits[np.arange(len(room)), partner], value[room] + value[gain[partner]], -np.inf)
    best = int(total.argmax())
    return core[[room[best], gain[partner[best]]]] if total[best] > least else None
