"""Where the memory of a role is heading: a straight line through recent reports, and when it is full.

The largest node of a role counts, because that is the one that is killed. A line is drawn through few
minutes of reports only where its slope stands out from the scatter: on real pod memory a 30-point line did
worse than "as now", so that a slope within two standard errors of zero is taken as zero. Growth laws
that bend (distinct ids seen, Eq. of section 5.3) need longer series than this floor offers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.snapshot import MemoryLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.resources import Role

MIN_POINTS = 8
MIN_SPAN_S = 10.0
SURE = 2.0  # standard errors of the slope


@dataclass(frozen=True, slots=True)
class Growth:
    """Straight line: memory now, its slope, and whether there was enough to draw it through."""

    now_mib: float
    mib_per_s: float
    known: bool


def growth(at_s: Sequence[float], memory_mib: Sequence[float]) -> Growth:
    """Fit the line by least squares; the slope is 0 where it does not stand out from the scatter."""
    t, y = np.asarray(at_s, dtype=np.float64), np.asarray(memory_mib, dtype=np.float64)
    now = float(y[-1])
    if len(t) < MIN_POINTS or np.ptp(t) < MIN_SPAN_S:
        return Growth(now, 0.0, known=False)
    dt = t - t.mean()
    spread = float(dt @ dt)
    slope = float(dt @ (y - y.mean())) / spread
    rest = y - y.mean() - slope * dt
    error = float(np.sqrt(rest @ rest / (len(t) - 2) / spread))
    return Growth(now, slope if abs(slope) > SURE * error else 0.0, known=True)


def memory_line(
    role: Role,
    limit_mib: int,
    points: Sequence[tuple[float, float]],
    *,
    left_s: float | None,
) -> MemoryLine | None:
    """Return the memory line of one role, None when no node of it has reported.

    Parameters
    ----------
    limit_mib
        What one node of the role may use.
    points
        (at_s, memory of the largest node in MiB), oldest first.
    left_s
        Seconds to the end of the job; None when they are not known.
    """
    if not points:
        return None
    line = growth([p[0] for p in points], [p[1] for p in points])
    at_end = line.now_mib + line.mib_per_s * left_s if line.known and left_s is not None else None
    return MemoryLine(
        role=role,
        limit_mib=limit_mib,
        now_mib=line.now_mib,
        mib_per_hour=line.mib_per_s * 3600,
        at_end_mib=at_end,
        full_in_s=_full_in_s(line, limit_mib, left_s),
    )


def needed_mib(line: MemoryLine, *, headroom: float = 1.2, step_mib: int = 64) -> int:
    """Return the memory that a node of the role should be given: as now, or more where it would not do."""
    if line.at_end_mib is None or line.at_end_mib <= line.limit_mib:
        return line.limit_mib
    return int(np.ceil(line.at_end_mib * headroom / step_mib)) * step_mib


def _full_in_s(line: Growth, limit_mib: int, left_s: float | None) -> float | None:
    if line.now_mib >= limit_mib:
        return 0.0
    if line.mib_per_s <= 0:
        return None
    full_in_s = (limit_mib - line.now_mib) / line.mib_per_s
    return None if left_s is not None and full_in_s > left_s else full_in_s
