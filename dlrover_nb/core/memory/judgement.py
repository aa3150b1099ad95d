"""Whether a role's memory fills up: one judgement for alarms, views and smaller requests.

A forecast says where growth leads if it goes on. Whether it does is another question, which no fit answers: a
start, the first tooth of a saw and a leak are the same straight line until one of them ends. Two things are
asked besides, both of the reports alone (`growth`): do they set records, steadily, at a pace that leads to
the limit before the end? And since when, compared to what is left?

A climb that has lasted T goes on for F more with a chance of T / (T + F) where nothing else is known of how
long climbs last (Gott, Nature 363, 1993). So young growth counts once F <= `LEFT` T. Growth that has lasted
`LASTING_S`, longer than starts and teeth do, is a leak or new keys: it counts where the limit is no farther
ahead than what was seen, and beyond that where the forecast is sure of it and stays so. Waiting costs nothing
meanwhile, as the limit is far. `LEFT` is less than the margin of a smaller request (`right_size`): a climb
from nothing to the level for which a request was made never alarms. A start that ends closer to its limit is
an alarm, and should be: no more is left for what no report has shown.

The answer is one of three courses: memory fills up, it stays, or neither is sure. Alarms are made of the
first, smaller requests of the second only, so that "may be full" and "give less memory" exclude each other.
What is no longer likely to fill up is withdrawn with its evidence: only later reports bring it back.

Rejected: the time for which forecasts have found growth (they find it in a step that was minutes ago, and
lose a leak for a moment), a fixed time before the limit (a start of ten seconds is within any that is of
use), the period of teeth (the first one has none).

Records tell growth from levels that come back and from what happened once. The time until now is cut into
`N_PART` equal parts. In growth, the highest level of each part exceeds all levels before. For levels that are
drawn from anything, or return again and again (noise, spikes, the teeth of a collector), each order of the
parts is as likely as any other, and this one has a chance of 1 in (`N_PART` + 1)! = 720: records as a test of
trend, which assumes no distribution (Foster and Stuart, J. R. Stat. Soc. B 16, 1954). And no part may bring
less than `LEAST_SHARE` of the mean rise: a step, or a start that is over, has brought all of it in one part.
A leak under a saw-tooth, and stairs, pass as soon as each part has a tooth or a step. Levels count from as
long before as the span is: a tooth's last peak lies right before it.

Rejected: Mann-Kendall and other tests of slopes (a step has a slope, and so has a tooth), all earlier reports
as the level to exceed (a leak after a release would be seen only above what was released).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.memory.laws import AS_NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from dlrover_nb.core.memory.report_series import Report
    from dlrover_nb.core.structs.views.snapshot import MemoryLine

    Floats = npt.NDArray[np.float64]

LASTING_S = 360.0
LEFT = 1 / 6  # of the time that growth has lasted, until the limit
# Probability of a full node that is farther ahead than growth has lasted, and for how long forecasts must say
# so: of a straight line, and of a law that bends, as one that ends looks like one that goes on for long.
SURE, SURE_S = 0.95, 60.0
SURE_OF_BEND, SURE_OF_BEND_S = 0.99, 180.0
STRAIGHT = "linear"
WITHDRAWN_S = 120.0  # for which none must find a full node likely, until an alarm is withdrawn
CLOSE = 1.1  # times the highest report: memory that varies without growth may reach that much
UNLIKELY = 0.05  # probability of a full node that is not worth a word


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


class Course(StrEnum):
    """Where a role's memory goes."""

    STAYS = "stays"
    UNDECIDED = "undecided"
    FILLS = "fills"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one role under one plan.

    Attributes
    ----------
    evidence_s
        Reports from then on are evidence: those before led to an alarm that was withdrawn.
    likely_s, sure_s, unlikely_s
        Since when each forecast found a full node likely, sure, or not even likely; None: the last one did
        not.
    """

    course: Course = Course.UNDECIDED
    evidence_s: float = -inf
    likely_s: float | None = None
    sure_s: float | None = None
    unlikely_s: float | None = None


@dataclass(frozen=True, slots=True)
class WorkCourse:
    """Memory over the work done, in seconds at the present speed: a pause or a faster plan is no evidence.

    Attributes
    ----------
    work_s, memory_mib
        Ascending, with the memory at each, ndarrays of shape (n_report,).
    begin
        Index of the first report that is evidence.
    """

    work_s: Floats
    memory_mib: Floats
    begin: int


def work_course(reports: Sequence[Report], samples_per_s: float, evidence_s: float) -> WorkCourse:
    """Return reports, oldest first, over the work done; over time where the speed is not known (0)."""
    at_s = np.array([report.at_s for report in reports])
    work = np.array([report.n_sample for report in reports]) / samples_per_s if samples_per_s > 0 else at_s
    memory_mib = np.array([report.memory_mib for report in reports])
    return WorkCourse(work, memory_mib, int(np.searchsorted(at_s, evidence_s)))


def judged(
    before: Judgement, line: MemoryLine, course: WorkCourse, at_s: float, *, likely: float
) -> Judgement:
    """Return the judgement after a forecast.

    Parameters
    ----------
    line
        The forecast.
    course
        All reports of the present plan.
    likely
        Probability from which a full node is an alarm.
    """
    now = _timed(before, line, at_s, likely)
    if line.full_in_s == 0:
        return replace(now, course=Course.FILLS)
    if before.course is Course.FILLS:
        is_over = _lasted(now.unlikely_s, at_s) >= WITHDRAWN_S
        return replace(now, course=Course.UNDECIDED, evidence_s=at_s) if is_over else now
    if now.likely_s is not None and (_grows(now, line, course, at_s) or _varies(now, line, course, at_s)):
        return replace(now, course=Course.FILLS)
    stays = (line.oom_probability or 0.0) < UNLIKELY  # too few reports for a forecast show no growth either
    return replace(now, course=Course.STAYS if stays else Course.UNDECIDED)


def shown(line: MemoryLine, judgement: Judgement, before: MemoryLine | None) -> MemoryLine:
    """Return the forecast as it is published: it names a full node where, and as long as, that is judged so.

    Parameters
    ----------
    before
        What was published last: it stands while a forecast loses what is not withdrawn.
    """
    if judgement.course is Course.FILLS and judgement.unlikely_s is None:
        return line
    if judgement.course is Course.FILLS and before is not None:
        return _with_full(line, before, before.oom_probability)
    none = replace(line, full_in_s=None, full_in_low_s=None, full_in_high_s=None)
    return _with_full(line, none, line.oom_probability if judgement.course is Course.STAYS else None)


def _with_full(line: MemoryLine, full: MemoryLine, chance: float | None) -> MemoryLine:
    """Return a line with when a node is full as another has it."""
    return replace(
        line,
        full_in_s=full.full_in_s,
        full_in_low_s=full.full_in_low_s,
        full_in_high_s=full.full_in_high_s,
        oom_probability=chance,
    )


def _timed(before: Judgement, line: MemoryLine, at_s: float, likely: float) -> Judgement:
    """Return the judgement as before, with since when the probability has been so."""
    chance, sure = line.oom_probability, SURE if line.law == STRAIGHT else SURE_OF_BEND
    return replace(
        before,
        likely_s=_since(before.likely_s, at_s, chance is not None and chance >= likely),
        sure_s=_since(before.sure_s, at_s, chance is not None and chance >= sure),
        unlikely_s=_since(before.unlikely_s, at_s, chance is not None and chance < likely),
    )


def _since(before_s: float | None, at_s: float, holds: bool) -> float | None:  # noqa: FBT001 - of two
    if not holds:
        return None
    return at_s if before_s is None else before_s


def _lasted(since_s: float | None, at_s: float) -> float:
    return 0.0 if since_s is None else at_s - since_s


def _grows(now: Judgement, line: MemoryLine, course: WorkCourse, at_s: float) -> bool:
    """Whether memory has set records for long enough, for what is left to the limit."""
    least_pace = _least_pace(line)
    grown = growth(course.work_s, course.memory_mib, begin=course.begin, least_pace=least_pace)
    if grown.lasted == 0:
        return False
    full_in_s = inf if line.full_in_s is None else line.full_in_s
    soon_s = (line.limit_mib - line.now_mib) / grown.pace  # no law tells more of a climb that has just begun
    if min(full_in_s, soon_s) <= LEFT * grown.lasted:
        return True
    is_sure = _lasted(now.sure_s, at_s) >= (SURE_S if line.law == STRAIGHT else SURE_OF_BEND_S)
    return grown.lasted >= LASTING_S and (is_sure or full_in_s <= grown.lasted)


def _least_pace(line: MemoryLine) -> float:
    """Return the MiB per second that fill a node by the end of the job: no law bends upwards (`laws`)."""
    end_s = line.fan[-1].in_s if line.fan else 0.0
    return (line.limit_mib - line.now_mib) / end_s if end_s > 0 else inf


def _varies(now: Judgement, line: MemoryLine, course: WorkCourse, at_s: float) -> bool:
    """Whether readings vary up to the limit without growth, by forecasts that have held."""
    is_close = CLOSE * float(course.memory_mib.max()) >= line.limit_mib
    return line.law == AS_NOW and _lasted(now.likely_s, at_s) >= LASTING_S and is_close
