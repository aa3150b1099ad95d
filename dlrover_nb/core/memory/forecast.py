"""Forecast of memory: its interval, when the limit is reached, and how likely that is before the end.

The axis is the work done (samples trained): the distinct keys seen, and with them the memory of a parameter
server, grow with samples and not with time (DLRover-RM, section 5.3), so that a pause or a faster plan does
not change the curve. Time replaces work only where progress is not known.

A forecast is a weighted set of courses: each explanation that the evidence supports (see `choice`) with its
t-distributed level. Interval, time and probability are computed from the same courses, so they never
contradict each other. A course stays at its own quantile; reports scatter around it, and the limit is reached
when any of the independent future readings exceeds it. Rejected: simulation (needs a generator, and noise in
a probability makes a controller oscillate), a normal approximation (the uncertainty of the law is skewed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import log_ndtr, ndtri, stdtrit
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.memory.choice import (
    MIN_BLOCK,
    Blocks,
    Choice,
    blocks,
    choose,
    choose_growth,
    choose_level,
    level_at,
    variance_at,
)
from dlrover_nb.core.memory.laws import AS_NOW
from dlrover_nb.core.memory.sawtooth import upper_envelope

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from dlrover_nb.core.memory.sawtooth import Envelope

    Floats = npt.NDArray[np.float64]

LOW, HIGH = 0.05, 0.95
EXACT = 0.01  # MiB, resolution of the reports
LOOK_SPANS = 4.0  # length of the forecast, in spans of the reports, where the end is not known
N_FAN = 24
RECENT = (1 / 4, 1 / 16)  # shares of the reports that are checked for recent growth
MIN_STRETCH = 24
LARGE = 0.25  # of the largest step between blocks: a part of it, as one may begin within a block
STANDS_OUT = 6.0  # times the range of all levels since
LEAST_SINCE = 1 / 3  # of the blocks
_Z = 1.645  # of the 90 % interval of a normal
_JUST_AHEAD = np.array([1.0, 1.001])
_NODES = (np.arange(25) + 0.5) / 25  # quantiles that represent a course's level


@dataclass(frozen=True, slots=True)
class Band:
    """A value with its 90 % interval; infinite where it is not reached."""

    mid: float
    low: float
    high: float


_NOW = Band(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """The predicted memory, from now to the end. The unit of work is that of the reports.

    Attributes
    ----------
    law
        Name of the growth law, or "as now".
    now
        The last report.
    known
        Whether the reports were enough for a forecast.
    growth
        MiB per unit of work by the law, at now; 0 where there is none.
    fan
        (work from now on, middle, low, high of single reports) up to the end.
    at_end
        Memory at the end; None while it is not known.
    to_limit
        Work until the limit is reached; infinite where its probability is not reached before the end, None
        below 5 %.
    oom_probability
        Probability that a report before the end exceeds the limit; None while the end is not known.
    """

    law: str
    now: float
    known: bool
    growth: float
    fan: tuple[tuple[float, float, float, float], ...]
    at_end: Band | None
    to_limit: Band | None
    oom_probability: float | None


def forecast(
    work: Sequence[float] | Floats,
    memory_mib: Sequence[float] | Floats,
    *,
    limit_mib: float,
    end: float | None,
    origin: float | None = None,
) -> MemoryForecast:
    """Forecast the memory of a node from its reports.

    Parameters
    ----------
    work
        Samples trained (or seconds) at each report, ascending, ndarray of shape (n_report,).
    memory_mib
        Memory at each, of the same shape.
    limit_mib
        What the node may use; infinite where there is no limit.
    end
        Work at the end of the job; None where it is not known.
    origin
        Work at which growth began; None: at the first report.

    Raises
    ------
    InvalidValueError
        For series that are empty, unequal, not finite, negative or not in order.
    """
    x, y = _checked(work, memory_mib)
    if not limit_mib > 0:
        raise InvalidValueError(f"limit_mib must be > 0, got {limit_mib}")
    if end is not None and not np.isfinite(end):
        raise InvalidValueError(f"end must be finite, or None where it is not known, got {end}")
    start = float(x[0]) if origin is None else origin
    if not (np.isfinite(start) and start <= x[0]):
        raise InvalidValueError(f"origin must not lie after the first report at {x[0]:g}, got {origin}")
    stretch = _stretch(x, y, start)
    if stretch is None:
        return _not_known(y, limit_mib)
    far = LOOK_SPANS * float(x[-1] - x[0]) if end is None else max(end - float(x[-1]), 0.0)
    ahead = far * np.linspace(0, 1, N_FAN) ** 2  # denser near now
    return _read(stretch, _courses(stretch, ahead), limit_mib, now=float(y[-1]), has_end=end is not None)


@dataclass(frozen=True, slots=True)
class _Reports:
    """The reports that a forecast uses; `u` is work in units of `scale`, 1 = now."""

    u: Floats
    y: Floats
    scale: float
    data: Blocks


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Reports, and the laws that they support."""

    reports: _Reports
    choice: Choice
    height: float = 0.0  # of the teeth, where the reports are their envelope
    since: float = 0.0  # work from the last of these reports until now


def _stretch(x: Floats, y: Floats, start: float) -> _Stretch | None:
    """Return the longest recent stretch that grows by a law, all reports where none does.

    Recent growth is a small part of all reports, and no law fits the part before it. Stretches shorter than
    `MIN_STRETCH` reports are not tested: they would show growth by chance.
    """
    whole = _reports(x, y, start)
    if whole is None:
        return None
    envelope = upper_envelope(x, y)
    teeth = _teeth(envelope, x, start) if envelope is not None else None
    if teeth is not None:
        return teeth
    choice = choose(whole.data, floor=EXACT)
    if choice.law != AS_NOW:
        return _Stretch(whole, choice)
    for share in RECENT:
        n = int(share * len(x))
        recent = _reports(x[-n:], y[-n:], float(x[-n])) if n >= MIN_STRETCH else None
        lately = choose_growth(recent.data, floor=EXACT) if recent is not None else None
        if recent is not None and lately is not None:
            return _Stretch(recent, lately)
    return _since_step(x, y, whole, start) or _Stretch(whole, choice)


def _since_step(x: Floats, y: Floats, whole: _Reports, start: float) -> _Stretch | None:
    """Return the reports since the last step, and their level; None where they do not lie still since.

    A walk has many steps of one size: memory that moved once, by far more than ever since, is no walk.
    """
    data = whole.data
    moved = np.abs(np.diff(data.y))
    first = int(np.flatnonzero(moved >= LARGE * moved.max())[-1]) + 1
    since = data.y[first:]
    if len(since) < LEAST_SINCE * len(data) or moved.max() < STANDS_OUT * np.ptp(since):
        return None
    begin = start + float(data.u[first]) * whole.scale
    after = x >= begin
    reports = _reports(x[after], y[after], begin)
    return None if reports is None else _Stretch(reports, choose(reports.data, floor=EXACT))


def _teeth(envelope: Envelope, x: Floats, start: float) -> _Stretch | None:
    """Return the envelope of a saw-tooth and its law; None where it rises by no law that it shows yet.

    An envelope that does not rise stays: memory that was released again and again has no random walk.
    """
    if envelope.x[-1] <= envelope.x[0]:
        return None
    scale = float(envelope.x[-1]) - start
    u = (envelope.x - start) / scale
    data = blocks(u, envelope.y)
    growth = choose_growth(data, floor=EXACT)
    if growth is None and envelope.is_rising:
        return None
    choice = growth or choose_level(data, floor=EXACT)
    since = float(x[-1] - envelope.x[-1])
    return _Stretch(_Reports(u, envelope.y, scale, data), choice, envelope.height, since)


def _reports(x: Floats, y: Floats, start: float) -> _Reports | None:
    if len(x) < MIN_BLOCK or x[-1] <= x[0]:
        return None
    scale = float(x[-1]) - start
    u = (x - start) / scale
    data = blocks(u, y)
    return _Reports(u, y, scale, data) if len(data) >= MIN_BLOCK else None


def _neighbours(rest: Floats) -> float:
    """Return the correlation of adjacent reports around their course, above 0 and below 1."""
    power = float(rest @ rest)
    return float(np.clip(rest[1:] @ rest[:-1] / power, 0.01, 0.99)) if power > 0 else 0.01


@dataclass(frozen=True, slots=True)
class _Courses:
    """Possible future courses.

    Attributes
    ----------
    ahead
        Work from now on, ndarray of shape (n_ahead,).
    level, weight
        Courses of shape (n_course, n_ahead), and the weight of each.
    scatter
        Standard deviation of a report around its course, of shape (n_ahead,). The present report is known, so
        the deviation grows from 0 as the correlation with that report decreases.
    density
        Independent readings per unit of work.
    """

    ahead: Floats
    level: Floats
    weight: Floats
    scatter: Floats
    density: float


def _courses(stretch: _Stretch, ahead: Floats) -> _Courses:
    """Return the courses from the last report on."""
    reports, choice = stretch.reports, stretch.choice
    rest = reports.y - np.interp(reports.u, reports.data.u, choice.course)
    neighbours = _neighbours(rest)
    step = reports.scale * float(reports.u[-1] - reports.u[0]) / (len(reports.u) - 1)
    faded = neighbours ** (ahead / step)
    nodes = stdtrit(max(len(reports.data) - 2, 1), _NODES)
    now, sd = float(reports.y[-1]), float(np.sqrt(rest @ rest / len(rest)))
    u = 1 + (stretch.since + ahead) / reports.scale
    levels = _levels(choice, u, faded, now=now, nodes=nodes, band=_held(faded, sd))
    scatter = sd * np.sqrt(1 - faded**2)
    return _Courses(ahead, *levels, scatter, (1 - neighbours) / (1 + neighbours) / step)


def _held(same: Floats, sd: float) -> Floats:
    """Return the largest deviation of a reading's median from its course, with readings scattered by `sd`.

    A reading equals the present one with probability `same`, else it is drawn anew: memory is allocated and
    freed in steps, so its median stays as now while that is more likely than not. The average of both, which
    the correlation alone suggests, is a value that such memory never takes.
    """
    drawn = np.minimum(same, 0.499)
    return np.where(same < 0.5, sd * ndtri(0.5 / (1 - drawn)), np.inf)


def _levels(
    choice: Choice, u: Floats, faded: Floats, *, now: float, nodes: Floats, band: Floats
) -> tuple[Floats, Floats]:
    """Return the levels and weights of all courses, a course for each explanation and node."""
    levels = []
    for component in choice.components:
        level = level_at(component, u)
        sd = np.sqrt(variance_at(component, u) * (1 - faded**2))
        levels.append(level + np.clip(now - level[0], -band, band) + nodes[:, np.newaxis] * sd)
    weight = np.repeat([component.weight for component in choice.components], len(nodes))
    return np.maximum(np.concatenate(levels), 0.0), weight / weight.sum()


def _read(
    stretch: _Stretch, courses: _Courses, limit_mib: float, *, now: float, has_end: bool
) -> MemoryForecast:
    """Compute the figures from the courses."""
    low, mid, high = _quantiles(courses)
    if stretch.height:  # readings lie between the troughs and the envelope
        low = np.maximum(low - stretch.height, 0.0)
        is_level = stretch.choice.law == AS_NOW
        mid = np.clip(now, low, high) if is_level else np.maximum(mid - stretch.height / 2, 0.0)
    is_full = now >= limit_mib
    met = _met(courses, limit_mib)
    return MemoryForecast(
        law=stretch.choice.law,
        now=now,
        known=True,
        growth=_growth(stretch),
        fan=tuple(zip(*(v.tolist() for v in (courses.ahead, mid, low, high)), strict=True)),
        at_end=Band(float(mid[-1]), float(low[-1]), float(high[-1])) if has_end else None,
        to_limit=_NOW if is_full else _to_limit(courses, limit_mib, met),
        oom_probability=(1.0 if is_full else float(met[-1])) if has_end else None,
    )


def _growth(stretch: _Stretch) -> float:
    """Return the growth by the law at now, per unit of work; deviations of reports do not count."""
    parts = stretch.choice.components
    rise = sum(part.weight * float(np.diff(level_at(part, _JUST_AHEAD))[0]) for part in parts)
    return rise / sum(part.weight for part in parts) / float(np.diff(_JUST_AHEAD)[0]) / stretch.reports.scale


def _met(courses: _Courses, limit_mib: float) -> Floats:
    """Return the probability that the limit is reached by each point ahead, of shape (n_ahead,)."""
    over = (limit_mib - courses.level) / np.maximum(courses.scatter, EXACT)
    stays = log_ndtr(over)  # log probability that one reading stays below
    readings = courses.density * np.diff(courses.ahead)
    lasting = np.cumsum(0.5 * (stays[:, 1:] + stays[:, :-1]) * readings, axis=1)
    by_then, at_once = -np.expm1(lasting), -np.expm1(stays)
    at_once[:, 0] = 0.0  # the present is known
    at_once[:, 1:] = np.maximum(at_once[:, 1:], by_then)
    met: Floats = np.maximum.accumulate(courses.weight @ at_once)
    return np.clip(met, 0.0, 1.0)


def _to_limit(courses: _Courses, limit_mib: float, met: Floats) -> Band | None:
    """Return when the limit is reached: where that probability passes 50 %, 5 % and 95 %."""
    if met[-1] < LOW:
        return None
    ahead = courses.ahead
    first = max(int(np.searchsorted(met, LOW)) - 1, 0)
    last = min(int(np.searchsorted(met, HIGH)), len(ahead) - 1)
    fine = np.unique(np.concatenate([ahead[: first + 1], np.linspace(ahead[first], ahead[last], 2 * N_FAN)]))
    index, part = _between(ahead, fine)
    level, scatter = (
        v[..., index] + part * (v[..., index + 1] - v[..., index]) for v in (courses.level, courses.scatter)
    )
    closer = _met(_Courses(fine, level, courses.weight, scatter, courses.density), limit_mib)
    when = (float(np.interp(q, closer, fine)) if closer[-1] >= q else np.inf for q in (0.5, LOW, HIGH))
    return Band(*when)


def _between(grid: Floats, points: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return for each point its grid interval, and its relative position in the interval."""
    index = np.clip(np.searchsorted(grid, points, side="right") - 1, 0, len(grid) - 2)
    return index, (points - grid[index]) / (grid[index + 1] - grid[index])


def _quantiles(courses: _Courses) -> tuple[Floats, Floats, Floats]:
    """Return low, middle and high of single reports at each point ahead."""
    order = np.argsort(courses.level, axis=0)
    level = np.take_along_axis(courses.level, order, axis=0)
    weight = courses.weight[order]
    share = np.cumsum(weight, axis=0) - 0.5 * weight
    low, mid, high = (_at_share(q, share, level) for q in (LOW, 0.5, HIGH))
    scatter = _Z * courses.scatter
    return np.maximum(mid - np.hypot(mid - low, scatter), 0.0), mid, mid + np.hypot(high - mid, scatter)


def _at_share(q: float, share: Floats, level: Floats) -> Floats:
    """Return the level below which a share of `q` lies, column by column; both ascend along axis 0."""
    above = np.clip((share < q).sum(0), 1, len(share) - 1)[np.newaxis]
    (x0, x1), (y0, y1) = (
        (np.take_along_axis(v, above - 1, 0)[0], np.take_along_axis(v, above, 0)[0]) for v in (share, level)
    )
    quantile: Floats = y0 + np.clip((q - x0) / (x1 - x0), 0.0, 1.0) * (y1 - y0)
    return quantile


def _not_known(y: Floats, limit_mib: float) -> MemoryForecast:
    now = float(y[-1])
    met = _NOW if now >= limit_mib else None
    return MemoryForecast(AS_NOW, now, False, 0.0, (), at_end=None, to_limit=met, oom_probability=None)


def _checked(work: Sequence[float] | Floats, memory_mib: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    x, y = np.asarray(work, dtype=np.float64), np.asarray(memory_mib, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) == 0:
        raise InvalidValueError(
            f"a memory series needs as many reports of work as of memory, at least one, "
            f"got shapes {x.shape} and {y.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidValueError(
            "a memory series must be finite, got NaN or infinity; drop such reports first"
        )
    if y.min() < 0:
        raise InvalidValueError(f"memory must be >= 0 MiB, got {y.min():g}")
    if np.diff(x).min(initial=0.0) < 0:
        raise InvalidValueError("reports of memory must be in order of work, oldest first; sort them first")
    return x, y
