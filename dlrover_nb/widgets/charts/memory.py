"""Memory of every node over time, the limit of its role, and the forecast with its 90 % band.

All nodes share one time grid (see `series.widen`) and so one live source: fifty nodes at one report a second
cost as much as one, while a figure for each would freeze the browser. A live chart of many nodes names a line
on hover; a saved copy cannot, and shows the range of each role with its largest node, which is the first to
run out of memory. The title is the OOM forecast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.oom import countdown, headline, running_out
from dlrover_nb.widgets.series import (
    MOST_ROWS,
    N_BUCKET,
    N_STATIC,
    WideTable,
    is_many,
    node_rows,
    spread,
    widen,
)
from dlrover_nb.widgets.svg.marks import Band, Drawing, Layer, Line, Orientation, Plot, Rule, node_line
from dlrover_nb.widgets.svg.palette import INK, PS_COLOR, WORKER_COLOR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, MemoryLine, SeriesChunk

TITLE = "Memory per node"
LEAST_RISK = 0.01  # a smaller chance to run out of memory is not worth a word
_MOST_NAMED = 6  # nodes in the legend of a live chart
_LEAST_LOOK_AHEAD_S = 30.0
_LOOK_AHEAD = 0.5  # of the time so far: the past stays the larger part of the chart
_FAR = 4.0  # a limit this many times above the greatest use would flatten the lines: only named
_ROLE_COLOR = {Role.WORKER: WORKER_COLOR, Role.PS: PS_COLOR}
_FORECAST_DASH = "1 4"
_LIMIT_DASH = {Role.WORKER: "8 4", Role.PS: "12 3 2 3"}


@dataclass(frozen=True, slots=True)
class Forecast:
    """The memory of a role from now on with its 90 % band, as far as its limit."""

    role: Role
    limit_mib: int
    t_s: tuple[float, ...]
    mib: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart, times in seconds since the job's start."""

    nodes: WideTable
    forecasts: tuple[Forecast, ...]
    lines: tuple[MemoryLine, ...]
    role_of: dict[str, Role]
    limit_mib: dict[Role, int]  # of the plan, which is known before there are reports
    clock: str  # when the first role is full, in short; empty: none
    clock_band: str  # the same with its band
    full: tuple[tuple[Role, float], ...]  # when each role is full, as far as the chart reaches
    plans: tuple[Rule, ...] = ()
    as_range: bool = False  # a range for each role instead of a line for each node

    @property
    def near_limits(self) -> dict[Role, int]:
        """Limits that fit into the chart's scale."""
        top = _FAR * max(_finite(self.nodes), default=math.inf)
        return {role: limit for role, limit in self.limit_mib.items() if limit <= top}

    @property
    def title(self) -> str:
        """The title, short enough for a narrow chart: when memory is full, or that limits are far above."""
        if self.clock:
            return f"Memory: {self.clock}"
        far = [role for role in self.limit_mib if role not in self.near_limits]
        if len(far) > 1:
            return f"{TITLE} (limits far above)"
        return f"{TITLE} (limit of a {far[0]} far above)" if far else TITLE


def columns(
    snapshot: JobSnapshot,
    series: SeriesChunk | None,
    *,
    n_bucket: int = N_BUCKET,
    allow_range: bool = False,
) -> Columns:
    """Return the chart's data; with `allow_range`, many nodes are shown as the range of each role."""
    rows = node_rows(series, snapshot.spec.name)
    wide = widen(rows.at_s - snapshot.started_at_s, rows.node, rows.column("memory_mib"), n_bucket=n_bucket)
    now_s = snapshot.at_s - snapshot.started_at_s
    lines = () if snapshot.phase.is_final else tuple(m for m in snapshot.memory if m.fan)
    forecasts = tuple(_forecast(m, now_s) for m in lines)
    plan, out = snapshot.target, running_out(snapshot)
    return Columns(
        nodes=wide,
        forecasts=forecasts,
        lines=snapshot.memory,
        role_of={name: Role.PS if is_ps else Role.WORKER for name, is_ps in rows.ps_by_name.items()},
        limit_mib={Role.WORKER: plan.worker.memory_mib, Role.PS: plan.ps.memory_mib},
        clock=headline(out[0]) if out else "",
        clock_band=countdown(out[0]) if out else "",
        full=tuple(_full_at(out, forecasts, now_s)),
        plans=plan_starts(snapshot),
        as_range=allow_range and is_many(wide),
    )


def _full_at(
    out: tuple[MemoryLine, ...], forecasts: tuple[Forecast, ...], now_s: float
) -> Iterable[tuple[Role, float]]:
    reach = {f.role: f.t_s[-1] for f in forecasts}
    for m in out:
        if m.full_in_s is not None and now_s + m.full_in_s <= reach.get(m.role, 0.0):
            yield m.role, now_s + m.full_in_s


def limit_words(role: Role, limit_mib: int) -> str:
    """Name a limit."""
    return f"limit of a {role}: {units.memory(limit_mib)}"


def _limit_labels(data: Columns) -> dict[Role, str]:
    """Name the limits at their lines; one name where two coincide."""
    near = data.near_limits
    if len(near) > 1 and len(set(near.values())) == 1:
        mib = next(iter(near.values()))
        return {Role.WORKER: f"limit of a worker and of a ps: {units.memory(mib)}", Role.PS: ""}
    return {role: limit_words(role, mib) for role, mib in near.items()}


def _forecast(line: MemoryLine, now_s: float) -> Forecast:
    """Return the near part of a role's forecast; it ends where the limit is reached, as the node does."""
    ahead_s = min(max(_LEAST_LOOK_AHEAD_S, _LOOK_AHEAD * now_s), line.fan[-1].in_s)
    if line.full_in_s is not None:
        ahead_s = min(ahead_s, line.full_in_s) or ahead_s
    in_s = [point.in_s for point in line.fan]
    t = [s for s in in_s if s < ahead_s] + [ahead_s]
    top = max(line.limit_mib, line.now_mib)
    mid, low, high = (
        tuple(min(float(v), top) for v in np.interp(t, in_s, [getattr(p, name) for p in line.fan]))
        for name in ("mid_mib", "low_mib", "high_mib")
    )
    return Forecast(line.role, line.limit_mib, tuple(now_s + s for s in t), mid, low, high)


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    layers = (
        *(_ranges(data) if data.as_range else _lines(data)),
        *_limits(data),
        *_forecasts(data),
        *(Rule(at_s, f"a {role} is full", color=_ROLE_COLOR[role], dash="2 2") for role, at_s in data.full),
        *data.plans,
    )
    plot = Plot(
        data.title, _words(data), "time since start", "MiB", layers, x_is_time=True, most_named=_MOST_NAMED,
        height=290,
    )  # fmt: skip
    empty = "" if data.nodes.t_s else "No node has reported its memory yet."
    return Drawing(data.title, plot.desc, (plot,), empty)


def _lines(data: Columns) -> Iterable[Layer]:
    for name, y in data.nodes.values.items():
        yield node_line(data.nodes.t_s, y, name, is_ps=data.role_of[name] is Role.PS)


def _ranges(data: Columns) -> Iterable[Layer]:
    for role, dash in ((Role.WORKER, ""), (Role.PS, "6 3")):
        color = _ROLE_COLOR[role]
        of_role = {name: y for name, y in data.nodes.values.items() if data.role_of[name] is role}
        if of_role:
            all_of = spread(WideTable(data.nodes.t_s, of_role))
            yield Band(all_of.t_s, all_of.low, all_of.high, color, f"{len(of_role)} {role} nodes: all")
            yield Line(all_of.t_s, all_of.high, color, f"largest {role}", dash)


def _limits(data: Columns) -> Iterable[Layer]:
    labels = _limit_labels(data)
    for role, mib in data.near_limits.items():
        yield Rule(mib, labels[role], Orientation.HORIZONTAL, _ROLE_COLOR[role], _LIMIT_DASH[role])


def _forecasts(data: Columns) -> Iterable[Layer]:
    for f in data.forecasts:
        yield Band(f.t_s, f.low, f.high, _ROLE_COLOR[f.role])
        yield Line(f.t_s, f.mib, _ROLE_COLOR[f.role], dash=_FORECAST_DASH)
    if data.forecasts:  # one entry of the legend for all roles, as there is little room
        yield Line((math.nan,), (math.nan,), INK, "forecast (90 %)", _FORECAST_DASH)


def _words(data: Columns) -> str:
    parts = [
        f"largest {m.role} uses {units.memory(m.now_mib)} of {units.memory(m.limit_mib)}" for m in data.lines
    ]
    parts += [
        f"a {m.role} has a {chance_words(m.oom_probability)} chance to run out of memory before the end"
        for m in data.lines
        if m.oom_probability is not None and m.oom_probability >= LEAST_RISK and data.forecasts
    ]
    uses = "; ".join(parts) or "no reports yet"
    return f"Resident memory of {len(data.nodes.values)} nodes over time; {uses}."


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table: per node its use against the limit; of many nodes the fullest."""
    finite_of = {
        name: finite for name, y in data.nodes.values.items() if (finite := [*filter(math.isfinite, y)])
    }
    share = {name: y[-1] / data.limit_mib[data.role_of[name]] for name, y in finite_of.items()}
    names = list(finite_of)
    if len(names) > MOST_ROWS:
        names = sorted(names, key=lambda name: share[name], reverse=True)[:MOST_ROWS]
    rows = tuple(_row(data, name, finite_of[name], share[name]) for name in names)
    n_more = len(finite_of) - len(rows)
    more = f"The {len(rows)} fullest; {n_more} more nodes are not shown." if n_more else ""
    clock = f"By the forecast, {data.clock_band}." if data.clock_band else ""
    head = ("node", "first", "last", "greatest", "limit", "used")
    return Table("Memory of each node", head, rows, " ".join(filter(None, (clock, more))))


def _row(data: Columns, name: str, mib: list[float], share: float) -> tuple[str, ...]:
    limit = data.limit_mib[data.role_of[name]]
    return (name, *(units.memory(v) for v in (mib[0], mib[-1], max(mib), limit)), units.percent(share))


def _finite(wide: WideTable) -> list[float]:
    return [v for column in wide.values.values() for v in column if math.isfinite(v)]


CHART = chart(
    "memory",
    TITLE,
    columns=columns,
    marks=marks,
    data_table=data_table,
    static_columns=partial(columns, n_bucket=N_STATIC, allow_range=True),
)
