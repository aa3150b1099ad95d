"""The most that memory can hold by the end of a job, where it grows by any of the laws.

No law bends upwards (`laws`), so a straight line through what was measured lies above all of them from there
on: the fitted slope is a mean of slopes that never rise. That holds whatever the law, also where the reports
are too few or too noisy to tell one, and is what a smaller request may rely on. The band of the forecast may
not: it says what is likely, and where no growth stands out of the noise it forecasts none.

Two lines are drawn, through all reports and through their later half, each at the upper end of its interval,
and the lower one counts: both are above the law, the second is closer to one that bends. Rejected: the chord
from the origin (needs the level at the origin, which the reports of a later plan do not show) and the
steepest law that the reports do not exclude (a law outside the table would not be covered).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import stdtrit
from dlrover_nb.core.memory.choice import MIN_BLOCK, N_BLOCK, averaged

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

SURE = 0.9987  # of an interval's upper end: three deviations of a normal
DEVIATIONS = 3.0  # of a report from its course
STRETCHES = (1.0, 0.5)  # shares of the reports through which a line is drawn


def ceiling_mib(work: Floats, memory_mib: Floats, end: float) -> float | None:
    """Return what no report exceeds by the end of the job; None where work is too little known.

    Parameters
    ----------
    work
        Samples trained at each report, one at least, ascending; ndarray of shape (n_report,).
    memory_mib
        Memory at each, of the same shape.
    end
        Work at the end of the job, not before the last report.
    """
    x, y = averaged(work, np.ones(len(work)), work, memory_mib, n_part=N_BLOCK)[1:]
    lines = [_line(x[-n:], y[-n:], end) for n in (round(share * len(x)) for share in STRETCHES)]
    at_end = [line for line in lines if line is not None]
    if not at_end:
        return None
    rest = memory_mib - np.interp(work, x, y)
    scatter = DEVIATIONS * float(np.sqrt(rest @ rest / len(rest)))
    return max(min(at_end) + scatter, float(memory_mib.max()))


def _line(x: Floats, y: Floats, end: float) -> float | None:
    """Return the upper end of a line's interval at `end`; a falling line stays as it is now."""
    n = len(x)
    if n < MIN_BLOCK:
        return None
    off, ahead = x - x.mean(), end - float(x.mean())
    spread = float(off @ off)
    slope = float(off @ y) / spread
    rest = y - y.mean() - slope * off
    deviation = np.sqrt(float(rest @ rest) / (n - 2) * (1 / n + ahead * ahead / spread))
    return float(y.mean() + max(slope, 0.0) * ahead + stdtrit(n - 2, SURE) * deviation)
