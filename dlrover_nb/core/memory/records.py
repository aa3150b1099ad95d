"""For how long memory has set records: growth, told from levels that come back and from what happened once.

The time until now is cut into `N_PART` equal parts. In growth, the highest level of each part exceeds all
levels before. For levels that are drawn from anything, or return again and again (noise, spikes, the teeth of
a collector), each order of the parts is as likely as any other, and this one has a chance of 1 in
(`N_PART` + 1)! = 720: records as a test of trend, which assumes no distribution (Foster and Stuart, J. R.
Stat. Soc. B 16, 1954). And no part may bring less than `LEAST_SHARE` of the mean rise: a step, or a start
that is over, has brought all of it in one part. A leak under a saw-tooth, and stairs, pass as soon as each
part has a tooth or a step. Levels count from as long before as the span is: a tooth's last peak lies right
before it.

Rejected: Mann-Kendall and other tests of slopes (a step has a slope, and so has a tooth), all earlier reports
as the level to exceed (a leak after a release would be seen only above what was released).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

N_PART = 5
N_LEVEL = 8  # of a part: each the mean of its reports, as single ones scatter
LEAST_SHARE = 0.25  # of the mean rise of a part
LEAST_REPORTS = 2 * N_PART
LOOK_BACK = 1.0  # times as long before: the levels that must be exceeded
LONGER = 1.15  # from one span to the next that is tried


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth until now: for how long, and how much per unit of that; 0 where there is none."""

    lasted: float = 0.0
    pace: float = 0.0


def growth(at: Floats, level: Floats, *, begin: int = 0, least_pace: float = 0.0) -> Growth:
    """Return the growth over the longest span until now in which records were set, steadily.

    Parameters
    ----------
    at
        When each report was made, ascending, ndarray of shape (n_report,).
    level
        The memory of each, of the same shape.
    begin
        Index of the first report that such a span may contain.
    least_pace
        Growth per unit of `at` that is none yet.
    """
    span = float(at[-1] - at[min(begin, len(at) - 1)])
    while span > 0 and len(at) - np.searchsorted(at, at[-1] - span) >= LEAST_REPORTS:
        pace = _pace(at, level, span)
        if pace > least_pace:
            return Growth(span, pace)
        span /= LONGER
    return Growth()


def _pace(at: Floats, level: Floats, span: float) -> float:
    """Return the growth per unit over a span until now; 0 where a part brings less than its share."""
    start = float(at[-1]) - span
    first, oldest = np.searchsorted(at, [start, start - LOOK_BACK * span])
    slot = np.floor((at[oldest:] - start) / span * N_PART * N_LEVEL)
    slot, mean = _means(np.minimum(slot, N_PART * N_LEVEL - 1), level[oldest:])
    part = slot // N_LEVEL
    now = part >= 0
    if len(np.unique(part[now])) < N_PART:
        return 0.0
    tops = [mean[part == i].max() for i in range(N_PART)]
    earlier = mean[~now].max() if first > oldest else mean[0]
    rises = np.diff([earlier, *tops])
    return float(rises.sum()) / span if rises.min() > LEAST_SHARE * rises.mean() > 0 else 0.0


def _means(slot: Floats, level: Floats) -> tuple[Floats, Floats]:
    """Return each slot that has a report, and the mean of its reports."""
    first = np.flatnonzero(np.diff(slot, prepend=slot[0] - 1))
    return slot[first], np.add.reduceat(level, first) / np.diff(np.append(first, len(slot)))
