"""Memory of every node over time, the limit of its role, and the forecast with its 90 % band.

All nodes come from one wide source on one time grid (see `series.widen`): fifty nodes at one report a second
cost what one costs, where a figure for each would freeze the browser. A picture of many nodes shows the range
of each role and its largest node, which is the one that dies first. The title is the OOM clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.resources import Role
from dlrover_nb.widgets import svg, units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.snapshot import JobSnapshot, MemoryLine, SeriesChunk

TITLE = "Memory per node"
_MOST_NAMED = 6  # nodes in the legend of a live chart
_LEAST_LOOK_AHEAD_S = 30.0
_LOOK_AHEAD = 0.5  # of the time so far: the past stays the larger part of the picture
_FAR = 4.0  # a limit this many times above the greatest use would flatten the lines: it is said in words
_ROLE_COLOR = {Role.WORKER: svg.RED, Role.PS: svg.PURPLE}


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
    """What the chart shows, times in seconds since the job's start."""

    nodes: WideTable
    forecasts: tuple[Forecast, ...]
    lines: tuple[MemoryLine, ...]
    role_of: dict[str, Role]
    limit_mib: dict[Role, int]  # of the plan, which is known before there are reports
    clock: str  # when the first role is full, in short; empty: none will be
    clock_band: str  # the same with its band
    full: tuple[tuple[Role, float], ...]  # when each role is full, as far as the chart reaches

    @property
    def near_limits(self) -> dict[Role, int]:
        """Limits that fit into the chart's scale."""
        top = _FAR * max(_finite(self.nodes), default=math.inf)
        return {role: limit for role, limit in self.limit_mib.items() if limit <= top}

    @property
    def title(self) -> str:
        """The title, fit for a narrow chart: when memory is full; else that limits lie far above it."""
        if self.clock:
            return f"Memory: {self.clock}"
        far = [role for role in self.limit_mib if role not in self.near_limits]
        if len(far) > 1:
            return f"{TITLE} (limits far above)"
        return f"{TITLE} (limit of a {far[0]} far above)" if far else TITLE


def columns(snapshot: JobSnapshot, series: SeriesChunk | None, *, n_bucket: int = N_BUCKET) -> Columns:
    """Return the chart's data."""
    rows = node_rows(series, snapshot.spec.name)
    wide = widen(rows.at_s - snapshot.started_at_s, rows.node, rows.column("memory_mib"), n_bucket=n_bucket)
    now_s = snapshot.at_s - snapshot.started_at_s
    known = () if snapshot.phase.is_final else tuple(m for m in snapshot.memory if m.fan)
    forecasts = tuple(_forecast(m, now_s) for m in known)
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
    """Name the limits at their lines; one name where two lie upon each other."""
    near = data.near_limits
    if len(near) > 1 and len(set(near.values())) == 1:
        mib = next(iter(near.values()))
        return {Role.WORKER: f"limit of a worker and of a ps: {units.memory(mib)}", Role.PS: ""}
    return {role: limit_words(role, mib) for role, mib in near.items()}


def _forecast(line: MemoryLine, now_s: float) -> Forecast:
    """Return the near part of a role's forecast; it ends where the limit is met, as the node does."""
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


def static(data: Columns) -> str:
    """Return the chart as SVG."""
    if not data.nodes.t_s:
        return svg.nothing(data.title, "No node has reported its memory yet.")
    layers = _many(data) if is_many(data.nodes) else _few(data)
    labels = _limit_labels(data)
    layers += [
        svg.Rule(mib, labels[role], svg.Orientation.HORIZONTAL, _ROLE_COLOR[role], _limit_dash(role))
        for role, mib in data.near_limits.items()
    ]
    for f in data.forecasts:
        layers += [
            svg.Band(f.t_s, f.low, f.high, _ROLE_COLOR[f.role]),
            svg.Line(f.t_s, f.mib, _ROLE_COLOR[f.role], f"{f.role} forecast, 90 % band", "1 4"),
        ]
    layers += [
        svg.Rule(at_s, f"a {role} is full", color=_ROLE_COLOR[role], dash="2 2") for role, at_s in data.full
    ]
    plot = svg.Plot(
        data.title, _words(data), "time since start", "MiB", tuple(layers), x_is_time=True, height=290
    )
    return svg.draw(plot)


def _few(data: Columns) -> list[svg.Layer]:
    lines = enumerate(data.nodes.values.items())
    return [svg.node_line(i, data.nodes.t_s, y, name) for i, (name, y) in lines]


def _many(data: Columns) -> list[svg.Layer]:
    layers: list[svg.Layer] = []
    for role, color, dash in ((Role.WORKER, svg.BLUE, ""), (Role.PS, svg.GREEN, "6 3")):
        of_role = {name: y for name, y in data.nodes.values.items() if data.role_of[name] is role}
        if of_role:
            all_of = spread(WideTable(data.nodes.t_s, of_role))
            label = f"{len(of_role)} {role} nodes: all"
            layers.append(svg.Band(all_of.t_s, all_of.low, all_of.high, color, label))
            layers.append(svg.Line(all_of.t_s, all_of.high, color, f"largest {role}", dash))
    return layers


def _limit_dash(role: Role) -> str:
    return "8 4" if role is Role.WORKER else "12 3 2 3"


def _words(data: Columns) -> str:
    parts = [
        f"largest {m.role} uses {units.memory(m.now_mib)} of {units.memory(m.limit_mib)}" for m in data.lines
    ]
    parts += [
        f"a {m.role} will run out of memory before the end with a probability of {m.oom_probability:.0%}"
        for m in data.lines
        if m.oom_probability is not None and data.forecasts
    ]
    uses = "; ".join(parts) or "no reports yet"
    return f"Resident memory of {len(data.nodes.values)} nodes over time; {uses}."


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table: per node its use against the limit; of many nodes the fullest."""
    told = {name: finite for name, y in data.nodes.values.items() if (finite := [*filter(math.isfinite, y)])}
    share = {name: y[-1] / data.limit_mib[data.role_of[name]] for name, y in told.items()}
    names = list(told)
    if len(names) > MOST_ROWS:
        names = sorted(names, key=lambda name: share[name], reverse=True)[:MOST_ROWS]
    rows = tuple(_row(data, name, told[name], share[name]) for name in names)
    n_more = len(told) - len(rows)
    more = f"The {len(rows)} fullest; {n_more} more nodes are not shown." if n_more else ""
    clock = f"By the forecast, {data.clock_band}." if data.clock_band else ""
    head = ("node", "first", "last", "greatest", "limit", "used")
    return Table("Memory of each node", head, rows, " ".join(filter(None, (clock, more))))


def _row(data: Columns, name: str, mib: list[float], share: float) -> tuple[str, ...]:
    limit = data.limit_mib[data.role_of[name]]
    return (name, *(units.memory(v) for v in (mib[0], mib[-1], max(mib), limit)), units.percent(share))


class Figure:
    """Live drawing: one wide source for all nodes, one for limits and forecasts."""

    def __init__(self) -> None:
        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415 - bokeh only when drawn live

        self.root = kit.time_figure(TITLE, "MiB")
        self._nodes = kit.Source(t=[])
        self._forecast = kit.Source(t=[], mib=[], color=[])
        self._band = kit.Source(t=[], mib=[], color=[])
        self._limit = kit.Source(mib=[], label=[], color=[])
        self._full = kit.Source(t=[], color=[])
        self._hover = kit.line_hover("MiB")
        self.root.add_tools(self._hover)
        self._drawn: set[str] = set()
        self._place_legend = kit.place_legend
        self._draw()
        self._place_legend(self.root)

    def _draw(self) -> None:
        limit = self._limit.model
        self.root.hspan("mib", source=limit, line_color="color", line_dash=[8, 4], line_width=1.5)
        self.root.text(
            4, "mib", "label", source=limit, text_font_size="10px", text_color="color", y_offset=-3
        )
        full = self._full.model
        self.root.vspan("t", source=full, line_color="color", line_dash="dotted", line_width=1.5)
        self.root.patches(
            "t", "mib", source=self._band.model, fill_color="color", fill_alpha=0.18, line_color=None
        )
        self.root.multi_line(
            "t",
            "mib",
            source=self._forecast.model,
            line_color="color",
            line_dash="dotted",
            line_width=2,
        )
        self.root.line(
            [math.nan], [math.nan], line_color=svg.INK, line_dash="dotted", line_width=2,
            legend_label="forecast, 90 % band",
        )  # fmt: skip

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:
        """Show new data; a node that joins gets a line, one that leaves keeps it."""
        data = columns(snapshot, series)
        wide: dict[str, list[object]] = {"t": [*data.nodes.t_s]}
        wide |= {name: [*column] for name, column in data.nodes.values.items()}
        full: dict[str, list[object]] = {
            "t": [t for _, t in data.full],
            "color": [_ROLE_COLOR[role] for role, _ in data.full],
        }
        changed = [
            self._nodes.show(wide),
            self._show_forecast(data),
            self._show_limits(data),
            self._full.show(full),
        ]
        self._add_lines(data)
        self.root.title.text = data.title
        top = max([*data.near_limits.values(), *_finite(data.nodes)], default=1.0)
        self.root.y_range.update(start=0, end=1.15 * top)
        return any(changed)

    def _add_lines(self, data: Columns) -> None:
        for name in data.nodes.values:
            if name not in self._drawn:
                color, dash = svg.line_look(len(self._drawn))
                line = self.root.line(
                    "t", name, name=name, source=self._nodes.model, width=2, color=color,
                    line_dash=[int(d) for d in dash.split()], legend_label=name,
                )  # fmt: skip
                self._drawn.add(name)
                self._hover.renderers = [*self._hover.renderers, line]
                self._place_legend(self.root)
        if self._drawn:  # of more nodes the hover tells the name: a legend of all would not fit
            self.root.legend[0].visible = len(self._drawn) <= _MOST_NAMED

    def _show_forecast(self, data: Columns) -> bool:
        color = [_ROLE_COLOR[f.role] for f in data.forecasts]
        times = [[*f.t_s] for f in data.forecasts]
        around = [[*f.t_s, *reversed(f.t_s)] for f in data.forecasts]
        edges = [[*f.low, *reversed(f.high)] for f in data.forecasts]
        band: dict[str, Sequence[object]] = {"t": around, "mib": edges, "color": color}
        mid: dict[str, Sequence[object]] = {
            "t": times, "mib": [[*f.mib] for f in data.forecasts], "color": color,
        }  # fmt: skip
        changed = [self._band.show(band), self._forecast.show(mid)]
        return any(changed)

    def _show_limits(self, data: Columns) -> bool:
        return self._limit.show(
            {
                "mib": [*data.near_limits.values()],
                "label": [*_limit_labels(data).values()],
                "color": [_ROLE_COLOR[role] for role in data.near_limits],
            }
        )


def _finite(wide: WideTable) -> list[float]:
    return [v for column in wide.values.values() for v in column if math.isfinite(v)]


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:
    """Return the static chart with its table."""
    data = columns(snapshot, series, n_bucket=N_STATIC)
    return StaticChart(static(data), data_table(data))


CHART = Chart("memory", TITLE, picture, Figure)
