"""Decide which nodes of a role are slow over one window: the rules, as one table.

``ratio`` is AntDT's rule: the mean of a node over the window is at least λ times the mean of the others. It
misses what is slow by less than λ, and of many nodes whose times scatter it accuses the unlucky one.

``robust`` judges the later half of the window and asks three things. The node took at least 1.15 times as
long as the others, in the median over the parts: one long iteration is no straggler. It did so in four of
five parts: a burst that is over is none either. And chance does not explain it: its distance from the
others is at least four times their scatter (a modified z-score), or twice where each part alone is beyond λ.
The scatter is the larger of two: how far
the other nodes lie apart (MAD), and how well a median over so few parts is known, from the differences
between successive parts, which a change of level does not enlarge. A node is compared with the median of the
*other* nodes in each part, so what slows all of them cancels, and two nodes can be compared. Nodes that lie
apart for good, as machines of several kinds do, widen the scatter: none of them is a straggler.

Tried on the traces of `benchmarks/detector.py` and rejected: the median over the whole window, which finds a
burst shorter than half of it too late or never; the node's own deviation as its scatter, which hides the
node that has just become slow; three of five parts in place of four, which accuses nodes of jobs whose
times scatter by 20 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.straggler.detect import RATIO, beside_others
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.solution_names import RuleName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Booleans = NDArray[np.bool_]

_SIGMA = 1.4826  # of a normal distribution, as a multiple of its median absolute deviation
_OF_MEDIAN = 1.2533  # standard error of a median as a multiple of that of a mean
_LEAST_PARTS = 3  # fewer say nothing about scatter
_LEAST_SCATTER = 1e-6  # of times that are equal, as in simulations


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a node is slow.

    Parameters
    ----------
    ratio
        λ of AntDT: multiple of the others' mean.
    least_ratio
        Of the robust rule: multiple of the others' median; below it, slowness is not worth an answer.
    score
        Of the robust rule: multiple of the scatter.
    share
        Of the robust rule: of the parts that are judged, in how many the node must be slow.
    """

    ratio: float = RATIO
    least_ratio: float = 1.15
    score: float = 4.0
    share: float = 0.8

    def __post_init__(self) -> None:
        _check.above_zero("ratio - 1", self.ratio - 1, hint="1.5 is usual")
        _check.above_zero("least_ratio - 1", self.least_ratio - 1, hint="1.15 is usual")
        _check.above_zero("score", self.score)
        _check.above_zero("share", self.share)
        _check.at_most("share", self.share, 1)


@dataclass(frozen=True, slots=True)
class Window:
    """What the nodes of one role did.

    Parameters
    ----------
    parts
        ndarray of shape (n_nodes, n_parts): mean iteration in each part of time, in its order; NaN where a
        node reported none. Parts before those that are judged say how much times scatter.
    means
        ndarray of shape (n_nodes,): mean iteration over the parts that are judged; NaN as above.
    n_judged
        How many parts, the last ones, are judged.
    """

    parts: Floats
    means: Floats
    n_judged: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to find slow nodes.

    Parameters
    ----------
    words
        What its findings say.
    is_slow
        Returns which nodes of a window are slow.
    of_short
        Share of the short window, its end, that is judged for transient stragglers.
    """

    words: str
    is_slow: Callable[[Window, Thresholds], Booleans]
    of_short: float = 1.0


def by_ratio(window: Window, thresholds: Thresholds) -> Booleans:
    """Return which nodes take λ times the mean of the others; ndarray of shape (n_nodes,)."""
    ratios = beside_others(window.means[:, None])[:, 0]
    return np.asarray(ratios >= thresholds.ratio)  # NaN, of a node alone, is not


def robustly(window: Window, thresholds: Thresholds) -> Booleans:
    """Return which nodes are slower than the others' scatter explains; ndarray of shape (n_nodes,).

    The scatter is looked at only where a node is slow in most parts: mostly none is, and masters look often.
    """
    judged, least = excesses(window.parts[:, -window.n_judged :]), np.log(thresholds.least_ratio)
    n_part = np.isfinite(judged).sum(axis=1)
    is_lasting = (judged >= least).sum(axis=1) >= thresholds.share * n_part
    is_above = beside_others(window.means[:, None])[:, 0] > 1  # else the finding would contradict itself
    may_be = np.asarray((n_part >= _LEAST_PARTS) & is_lasting & is_above)
    if not may_be.any():
        return may_be
    levels = _medians(judged)
    scores = levels / _scatter(excesses(window.parts), levels, n_part)
    is_each_over = (judged >= np.log(thresholds.ratio)).sum(axis=1) == n_part
    is_clear = (scores >= thresholds.score) | (is_each_over & (scores >= thresholds.score / 2))
    return np.asarray(may_be & is_clear & (levels >= least))


RULES: Mapping[str, Rule] = {
    RuleName.RATIO: Rule("mean over the window at least λ times the mean of the others", by_ratio),
    RuleName.ROBUST: Rule(
        "slower than the others part by part, beyond their scatter", robustly, of_short=0.5
    ),
}


def excesses(parts: Floats) -> Floats:
    """Return the logarithm of each time over the median of the other nodes in the part.

    Parameters
    ----------
    parts
        ndarray of shape (n_nodes, n_parts); NaN where a node reported none.

    Returns
    -------
    ndarray of shape (n_nodes, n_parts); NaN where a node or all others reported none.
    """
    logs = np.log(parts)
    return logs - _others(logs)


def _others(values: Floats) -> Floats:
    """Return for each value the median of the others in its column; NaN is none; ndarray like `values`."""
    is_finite = np.isfinite(values)
    n_finite = is_finite.sum(axis=0)
    order = np.argsort(np.where(is_finite, values, np.nan), axis=0, kind="stable")  # NaN come last
    ranked, rank = np.take_along_axis(values, order, axis=0), np.argsort(order, axis=0)
    low, high = np.maximum(n_finite - 2, 0) // 2, np.maximum(n_finite - 1, 0) // 2  # the middle of the others
    one, other = (
        np.take_along_axis(ranked, np.minimum(at + (at >= rank), len(values) - 1), axis=0)
        for at in (low, high)
    )
    return np.where(is_finite & (n_finite > 1), (one + other) / 2, np.nan)


def _medians(rows: Floats) -> Floats:
    """Return the median of each row without its NaN; NaN of a row that has nothing else.

    `numpy.nanmedian` took most of the time of this module for rows as short as these.
    """
    n_finite = (~np.isnan(rows)).sum(axis=1)
    ranked = np.sort(rows, axis=1)  # NaN come last, and stand for the median of none
    low, high = np.maximum(n_finite - 1, 0) // 2, np.minimum(n_finite // 2, rows.shape[1] - 1)
    each = np.arange(len(rows))
    return np.asarray((ranked[each, low] + ranked[each, high]) / 2)


def _scatter(every: Floats, levels: Floats, n_part: NDArray[np.int64]) -> Floats:
    """Return how far from the others chance alone brings each node; ndarray of shape (n_nodes,)."""
    steps = _medians(np.abs(np.diff(every, axis=1)))
    noise = _SIGMA / np.sqrt(2) * _others(steps[:, None])[:, 0]  # a difference has twice the variance
    uncertain = _OF_MEDIAN * noise / np.sqrt(np.maximum(n_part, 1))  # the noise of the others is in it
    has_middle = np.isfinite(levels).sum() > 2
    apart = np.abs(levels - _medians(levels[None])) if has_middle else np.zeros(len(levels))
    return np.asarray(np.fmax(np.fmax(uncertain, _SIGMA * _others(apart[:, None])[:, 0]), _LEAST_SCATTER))
