"""A role's memory for display, and the memory that a plan should give accordingly.

The largest node of a role counts, because it is the one that is killed. Work is converted to time by the
present throughput here only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.memory.forecast import Band, MemoryForecast, forecast
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import MEMORY_STEP_MIB
from dlrover_nb.core.structs.views.snapshot import FanPoint, MemoryLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.memory.report_series import Report
    from dlrover_nb.core.structs.plan.resources import Role

MIN_SPAN_S = 10.0
HEADROOM = 1.1  # of memory that is added: see needed_mib
LIKELY = 0.2  # probability of OOM above which memory is added: see needed_mib


@dataclass(frozen=True, slots=True)
class Outlook:
    """The rest of the job.

    Attributes
    ----------
    n_sample_end
        Samples at which growth ends: of the job, or of its first epoch where keys alone grow.
    samples_per_s
        Present throughput.
    """

    n_sample_end: int
    samples_per_s: float

    def __post_init__(self) -> None:
        _check.at_least("n_sample_end", self.n_sample_end, 0)
        _check.above_zero("samples_per_s", self.samples_per_s)


def memory_line(
    role: Role, limit_mib: int, reports: Sequence[Report], *, outlook: Outlook | None
) -> MemoryLine | None:
    """Return the memory line of one role, None when no node of it has reported.

    Parameters
    ----------
    limit_mib
        What one node of the role may use.
    reports
        Oldest first.
    outlook
        None while the speed is not known: the forecast then runs over time and has no end.
    """
    if not reports:
        return None
    last = reports[-1]
    if last.at_s - reports[0].at_s < MIN_SPAN_S:
        reports = reports[-1:]
    memory = [r.memory_mib for r in reports]
    if outlook is None:
        prediction = forecast([r.at_s for r in reports], memory, limit_mib=limit_mib, end=None)
        return _line(role, limit_mib, prediction, 1.0)
    end = max(outlook.n_sample_end, last.n_sample)
    work = [float(r.n_sample) for r in reports]
    prediction = forecast(work, memory, limit_mib=limit_mib, end=float(end), origin=0.0)
    return _line(role, limit_mib, prediction, outlook.samples_per_s)


def _line(role: Role, limit_mib: int, prediction: MemoryForecast, work_per_s: float) -> MemoryLine:
    at_end = prediction.at_end
    return MemoryLine(
        role=role,
        limit_mib=limit_mib,
        now_mib=prediction.now,
        mib_per_hour=prediction.growth * work_per_s * 3600,
        at_end_mib=at_end.mid if at_end else None,
        full_in_s=_seconds(prediction.to_limit, "mid", work_per_s),
        law=prediction.law,
        at_end_low_mib=at_end.low if at_end else None,
        at_end_high_mib=at_end.high if at_end else None,
        full_in_low_s=_seconds(prediction.to_limit, "low", work_per_s),
        full_in_high_s=_seconds(prediction.to_limit, "high", work_per_s),
        oom_probability=prediction.oom_probability,
        fan=tuple(FanPoint(ahead / work_per_s, *mib) for ahead, *mib in prediction.fan),
    )


def _seconds(met: Band | None, field: str, work_per_s: float) -> float | None:
    value: float = math.inf if met is None else getattr(met, field)
    return value / work_per_s if math.isfinite(value) else None


def needed_mib(line: MemoryLine, *, likely: float = LIKELY) -> int:
    """Return the memory that a node of the role should be given: as now, or more where OOM is likely.

    Notes
    -----
    The upper end of the forecast's band is given, plus `HEADROOM` for peaks between reports. The threshold
    follows from costs: adding memory costs one pause, an OOM kill costs about five (detecting the kill,
    restarting the node, repeating its work since the checkpoint), so adding memory pays from 1 in 5 on.
    """
    if line.oom_probability is None or line.at_end_high_mib is None or line.oom_probability < likely:
        return line.limit_mib
    peak = max([line.at_end_high_mib, *(point.high_mib for point in line.fan)])
    return max(step_up(peak * HEADROOM), line.limit_mib)


def after_oom_mib(
    limit_mib: int, reached_mib: float, *, factor: float = 1.5, cap_mib: int | None = None
) -> int:
    """Return the memory that a node is restarted with after it ran out of memory.

    Parameters
    ----------
    limit_mib
        What it had.
    reached_mib
        What it used when it was killed; 0 where no report has it.
    cap_mib
        The most that a node may have; None: no cap. The result equals `limit_mib` where the cap allows no
        more; the caller must not restart with that.

    Raises
    ------
    InvalidValueError
        For sizes below zero or a factor that adds nothing.
    """
    _check.above_zero("limit_mib", limit_mib)
    _check.at_least("reached_mib", reached_mib, 0)
    _check.at_least("factor", factor, 1.01, hint="the node would run out of memory again")
    wanted = step_up(max(limit_mib, reached_mib) * factor)
    return wanted if cap_mib is None else max(min(wanted, cap_mib), limit_mib)


def step_up(mib: float) -> int:
    """Return a size in whole steps, rounded up."""
    return math.ceil(mib / MEMORY_STEP_MIB) * MEMORY_STEP_MIB
