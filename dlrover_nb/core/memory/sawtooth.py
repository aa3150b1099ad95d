"""The upper envelope of a saw-tooth: the peaks, in place of memory that is taken and released in turn.

A garbage collector, a cache or a buffer lets memory climb until it is released, again and again. Each tooth
looks like a leak, and the whole like a wide random walk; yet what matters is only whether the peaks rise. So
where the reports show such teeth, and the climb since the last release is one more of them, the forecast is
made from the envelope: the peaks, and the troughs lifted by the usual height of a tooth. A leak under a
saw-tooth lifts both, and is found in the envelope as any growth is.

A release is a fall that stands out among the usual steps of the reports; where single reports are too noisy,
means of several are used. The climb since the last one is one more tooth if it is as steep as earlier ones
and not higher than their highest peak. Otherwise it may be a leak that has begun, and the reports are taken
as they are. Before its first release a tooth cannot be told from a leak, and is forecast as one.

Rejected: the period by Fourier analysis or autocorrelation (collections follow allocation, which has no fixed
period; it needs several teeth, this one), the largest value so far (hides a release for good), and
the lower envelope (its growth says nothing on the height of the next peak).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

POOLED = (1, 4, 16)  # reports behind one mean; more of them see falls in more noise
MIN_MEAN = 16  # means in which teeth are looked for
STANDS_OUT = 6.0  # usual steps of a release
LEAST_FALL = 0.2  # of the range of the reports: less would not hide a leak
LONGEST_STEP = 0.5  # of a tooth, in one report: memory that jumps up and down shows no climb
LEAST_CLIMB = 0.3  # of the usual release: a fall without it is no tooth's end
SLACK = 0.25  # of the usual release, by which a peak may be higher than all before
RISING = 0.1  # of the usual release, between earlier and later troughs: a leak of ten teeth at the least
AS_STEEP = 3.0  # times as steep, or as flat, as the usual tooth
IS_OVER = 2.0  # times the longest tooth without another one
MAD_OF_NORMAL = 0.6745
TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Envelope:
    """The upper envelope of a saw-tooth as a series: `x` ascends and ends at the last trough.

    `height` is the usual release; `is_rising` says whether the later troughs lie above the earlier ones.
    """

    x: Floats
    y: Floats
    height: float
    is_rising: bool


@dataclass(frozen=True, slots=True)
class _Climb:
    """Reports from one release to the next: the least of them, the greatest after it, and when.

    `leap` is the largest step from one report to the next between the two.
    """

    from_x: float
    trough: float
    to_x: float
    peak: float
    leap: float

    @property
    def rise(self) -> float:
        return self.peak - self.trough

    @property
    def steepness(self) -> float:
        return self.rise / (self.to_x - self.from_x) if self.to_x > self.from_x else np.inf


def upper_envelope(x: Floats, y: Floats) -> Envelope | None:
    """Return the upper envelope of the reports, None where no saw-tooth explains the latest of them."""
    for n_pooled in POOLED:
        ends = _releases(y, n_pooled)
        if ends:
            return _envelope(x, y, ends)
    return None


def _releases(y: Floats, n_pooled: int) -> list[int]:
    """Return the index of the first report after each release."""
    n = len(y) // n_pooled
    if n < MIN_MEAN:
        return []
    skipped = len(y) - n * n_pooled
    means = y[skipped:].reshape(n, n_pooled).mean(axis=1)
    steps = np.diff(means)
    usual = float(np.median(np.abs(steps - np.median(steps)))) / MAD_OF_NORMAL
    least = max(STANDS_OUT * usual, LEAST_FALL * float(np.ptp(means)))
    two = np.minimum(steps, 0) + np.append(np.minimum(steps[1:], 0), 0)  # it may begin within a mean
    releases: list[int] = []
    for i in np.flatnonzero((-two >= least) & (steps < 0)).tolist():
        if not releases or i > releases[-1]:
            releases.append(i + 1 if -steps[i] >= least else i + 2)
    return [skipped + n_pooled * i for i in releases if i < n]


def _envelope(x: Floats, y: Floats, ends: list[int]) -> Envelope | None:
    climbs = [_climb(x[a:b], y[a:b]) for a, b in pairwise([0, *ends, len(y)])]
    *before, last = climbs
    height = float(np.median([a.peak - b.trough for a, b in pairwise(climbs)]))
    teeth = [c for c in before if c.rise >= LEAST_CLIMB * height and c.leap <= LONGEST_STEP * c.rise]
    if not teeth or not _is_one_more(last, teeth, height, float(x[-1])):
        return None
    lifted = [(climb.from_x, climb.trough + height) for climb in (*teeth, last) if climb is not climbs[0]]
    points = sorted([*lifted, *((tooth.to_x, tooth.peak) for tooth in teeth)])
    at, level = np.array(points).T
    return Envelope(at, level, height, _rises([climb.trough for climb in (*teeth, last)], height))


def _rises(troughs: list[float], height: float) -> bool:
    half = len(troughs) // 2
    return min(troughs[half:]) - max(troughs[:half]) > RISING * height


def _climb(x: Floats, y: Floats) -> _Climb:
    low = int(y.argmin())
    high = low + int(y[low:].argmax())
    leap = float(np.diff(y[low : high + 1]).max(initial=0.0))
    return _Climb(float(x[low]), float(y[low]), float(x[high]), float(y[high]), leap)


def _is_one_more(climb: _Climb, teeth: list[_Climb], height: float, now: float) -> bool:
    """Whether a climb that has not ended is explained by the teeth before it."""
    slack = SLACK * height
    if climb.peak > max(tooth.peak for tooth in teeth) + slack:
        return False
    if climb.rise <= slack:
        return now - climb.from_x <= IS_OVER * max(tooth.to_x - tooth.from_x for tooth in teeth)
    usual = float(np.median([tooth.steepness for tooth in teeth]))
    return usual / AS_STEEP <= climb.rise / max(now - climb.from_x, TINY) <= usual * AS_STEEP
