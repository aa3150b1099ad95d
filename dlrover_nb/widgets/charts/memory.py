"""Memory of every node over time, the limit of its role, and the forecast with its 90 % band.

All nodes come from one wide source on one time grid (see `series.widen`): fifty nodes at one report a second
cost what one costs, where a figure for each would freeze the browser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.resources import Role
from dlrover_nb.widgets import svg, units
from dlrover_nb.widgets.blocks import Picture, Table
from dlrover_nb.widgets.charts.chart import Chart
from dlrover_nb.widgets.series import WideTable, node_rows, widen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.snapshot import JobSnapshot, MemoryLine, SeriesChunk

TITLE = "Memory per node"
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

    @property
    def near_limits(self) -> dict[Role, int]:
        """Limits that fit into the chart's scale."""
        top = _FAR * max(_finite(self.nodes), default=math.inf)
        return {role: limit for role, limit in self.limit_mib.items() if limit <= top}

    @property
    def title(self) -> str:
        """The title, with the limits that lie far above the chart."""
        far = [limit_words(r, mib) for r, mib in self.limit_mib.items() if r not in self.near_limits]
        return f"{TITLE} ({', '.join(far)}: far above)" if far else TITLE


def columns(snapshot: JobSnapshot, series: SeriesChunk | None) -> Columns:
    """Return the chart's data."""
    rows = node_rows(series)
    wide = widen([t - snapshot.started_at_s for t in rows.at_s], rows.node, rows.memory_mib)
    now_s = snapshot.at_s - snapshot.started_at_s
    known = () if snapshot.phase.is_final else tuple(m for m in snapshot.memory if m.fan)
    forecasts = tuple(_forecast(m, now_s) for m in known)
    roles = {n.id: n.role for n in snapshot.nodes}
    role_of = {name: roles.get(name, _role_by_name(name)) for name in wide.values}
    plan = snapshot.target
    limits = {Role.WORKER: plan.worker.memory_mib, Role.PS: plan.ps.memory_mib}
    return Columns(wide, forecasts, snapshot.memory, role_of, limits)


def limit_words(role: Role, limit_mib: int) -> str:
    """Name a limit."""
    return f"limit of a {role}: {units.memory(limit_mib)}"


def _role_by_name(name: str) -> Role:
    """Nodes that are gone are no longer in the snapshot; their names start with their role."""
    return Role.PS if name.startswith(Role.PS) else Role.WORKER


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
    layers: list[svg.Layer] = [
        svg.Line(data.nodes.t_s, y, _color(i), name, _dash(i))
        for i, (name, y) in enumerate(data.nodes.values.items())
    ]
    layers += [
        svg.Rule(mib, limit_words(role, mib), svg.Along.HORIZONTAL, _ROLE_COLOR[role], _limit_dash(role))
        for role, mib in data.near_limits.items()
    ]
    for f in data.forecasts:
        layers += [
            svg.Band(f.t_s, f.low, f.high, _ROLE_COLOR[f.role]),
            svg.Line(f.t_s, f.mib, _ROLE_COLOR[f.role], f"{f.role} forecast, 90 % band", "1 4"),
        ]
    plot = svg.Plot(
        data.title, _words(data), "time since start", "MiB", tuple(layers), x_is_time=True, height=290
    )
    return svg.draw(plot)


def _limit_dash(role: Role) -> str:
    return "8 4" if role is Role.WORKER else "12 3 2 3"


def _color(i: int) -> str:
    return svg.CYCLE[i % len(svg.CYCLE)]


def _dash(i: int) -> str:
    return svg.DASHES[i // len(svg.CYCLE) % len(svg.DASHES)]


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


def twin(data: Columns) -> Table:
    """Return the same numbers as a table: per node, its last and greatest use against the limit."""
    rows = []
    for name, column in data.nodes.values.items():
        finite = [v for v in column if math.isfinite(v)]
        limit = data.limit_mib[data.role_of[name]]
        share = finite[-1] / limit if finite else None
        rows.append(
            (
                name,
                units.memory(finite[0] if finite else None),
                units.memory(finite[-1] if finite else None),
                units.memory(max(finite, default=math.nan)),
                units.memory(limit),
                units.percent(share),
            )
        )
    return Table("Memory of each node", ("node", "first", "last", "greatest", "limit", "used"), tuple(rows))


class Figure:
    """Live drawing: one wide source for all nodes, one for limits and forecasts."""

    def __init__(self) -> None:
        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415 - bokeh only when drawn live

        self.root = kit.time_figure(TITLE, "MiB")
        self._nodes = kit.Source(t=[])
        self._forecast = kit.Source(t=[], mib=[], color=[])
        self._band = kit.Source(t=[], mib=[], color=[])
        self._limit = kit.Source(mib=[], label=[], color=[])
        self._drawn: set[str] = set()
        self._place_legend = kit.place_legend
        self._draw()

    def _draw(self) -> None:
        limit = self._limit.model
        self.root.hspan("mib", source=limit, line_color="color", line_dash=[8, 4], line_width=1.5)
        self.root.text(
            4, "mib", "label", source=limit, text_font_size="10px", text_color="color", y_offset=-3
        )
        self.root.patches(
            "t", "mib", source=self._band.model, fill_color="color", fill_alpha=0.18, line_color=None
        )
        self.root.multi_line(
            "t", "mib", source=self._forecast.model, line_color="color", line_dash="dotted", line_width=2
        )

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:
        """Show new data; a node that joins gets a line, one that leaves keeps it."""
        data = columns(snapshot, series)
        wide: dict[str, list[object]] = {"t": [*data.nodes.t_s]}
        wide |= {name: [*column] for name, column in data.nodes.values.items()}
        changed = [self._nodes.show(wide), self._show_forecast(data), self._show_limits(data)]
        self._add_lines(data)
        self.root.title.text = data.title
        top = max([*data.near_limits.values(), *_finite(data.nodes)], default=1.0)
        self.root.y_range.update(start=0, end=1.15 * top)
        return any(changed)

    def _add_lines(self, data: Columns) -> None:
        for i, name in enumerate(data.nodes.values):
            if name not in self._drawn:
                dash = [int(d) for d in _dash(i).split()]
                self.root.line(
                    "t", name, name=name, source=self._nodes.model, width=2, line_dash=dash,
                    color=_color(i), legend_label=name,
                )  # fmt: skip
                self._drawn.add(name)
                self._place_legend(self.root)

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
                "label": [limit_words(role, mib) for role, mib in data.near_limits.items()],
                "color": [_ROLE_COLOR[role] for role in data.near_limits],
            }
        )


def _finite(wide: WideTable) -> list[float]:
    return [v for column in wide.values.values() for v in column if math.isfinite(v)]


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> Picture:
    """Return the static chart with its table."""
    data = columns(snapshot, series)
    return Picture(static(data), twin(data))


CHART = Chart("memory", TITLE, picture, Figure)
