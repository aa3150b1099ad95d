"""Where an iteration's time goes: its parts by node over the last minute, and by role over time.

Shares are shares of time: each report covers its window, so their mean over reports is what the node spent.
The seconds are those of one iteration, weighted by how many there were. Parts and whole agree by making: what
a report's parts leave of its iteration counts as `other`, and printed percents are rounded to sum to 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.resources import Role
from dlrover_nb.widgets import series as rows_of
from dlrover_nb.widgets import strips, svg, units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart
from dlrover_nb.widgets.marks import Tile, tile

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.series import Flags, Floats, NodeRows

TITLE = "Where an iteration's time goes"
PARTS = ("data", "lookup", "compute", "update", "peers", "idle", "other")
LABELS = (
    "data: waits for data",
    "lookup: embedding rows",
    "compute",
    "update: gradients",
    "peers: waits for peers",
    "idle: waits for requests",
    "other",
)
_COLORS = (svg.SKY, svg.BLUE, svg.GREEN, svg.ORANGE, svg.RED, "#d0d5db", svg.PURPLE)
_HATCHES = ("right_diagonal_line", "dot", "blank", "left_diagonal_line", "cross", "horizontal_line", "ring")
LAST_S = 60.0
_N_BUCKET = 48  # of the picture over time: seven parts each
_MOST_PS = 4  # of the rows, where there is no room for all nodes
_OTHER = PARTS.index("other")


@dataclass(frozen=True, slots=True)
class Spent:
    """The mean iteration of a node, and the shares of its parts in the order of `PARTS`; they sum to 1."""

    name: str
    iter_s: float
    shares: tuple[float, ...]
    is_ps: bool

    @property
    def seconds(self) -> tuple[float, ...]:
        """The parts in seconds."""
        return tuple(self.iter_s * share for share in self.shares)


@dataclass(frozen=True, slots=True)
class Course:
    """The shares of a role's nodes over time, part by part; NaN where none of them reported."""

    role: Role
    t_s: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """What the chart shows, times in seconds since the job's start."""

    nodes: tuple[Spent, ...]  # workers first
    courses: tuple[Course, ...]

    @property
    def shown(self) -> tuple[Spent, ...]:
        """The nodes that have room: all, or those with the longest iterations, a few of them PS."""
        if len(self.nodes) <= rows_of.MOST_ROWS:
            return self.nodes
        slow = sorted(self.nodes, key=lambda s: s.iter_s, reverse=True)
        ps = [s for s in slow if s.is_ps][:_MOST_PS]
        kept = {s.name for s in (*ps, *[s for s in slow if not s.is_ps][: rows_of.MOST_ROWS - len(ps)])}
        return tuple(s for s in self.nodes if s.name in kept)

    @property
    def note(self) -> str:
        """Say what is left out."""
        n = len(self.nodes) - len(self.shown)
        return f"The {len(self.shown)} longest iterations; {n} more nodes are not shown." if n else ""


def columns(snapshot: JobSnapshot, series: SeriesChunk | None) -> Columns:
    """Return the chart's data."""
    rows = rows_of.node_rows(series, snapshot.spec.name)
    seconds = np.array([rows.column(f"{part}_s") for part in PARTS]).reshape(len(PARTS), -1)
    seconds[_OTHER] += np.fmax(rows.column("iter_s") - seconds.sum(axis=0), 0.0)
    told = np.nan_to_num(seconds.sum(axis=0)) > 0
    if not told.any():
        return Columns(_last_reports(snapshot), ())
    courses = (_course(rows, seconds, told, role, snapshot.started_at_s) for role in Role)
    return Columns(_nodes(snapshot, rows, seconds, told), tuple(c for c in courses if c is not None))


def _last_reports(snapshot: JobSnapshot) -> tuple[Spent, ...]:
    """Return what the nodes' last reports say, where there is no telemetry at hand."""
    told = [(n, n.last.split) for n in snapshot.nodes if n.last is not None and n.last.split.total_s > 0]
    return tuple(
        Spent(
            name=rows_of.short_name(node.id, snapshot.spec.name),
            iter_s=split.total_s,
            shares=tuple(getattr(split, f"{part}_s") / split.total_s for part in PARTS),
            is_ps=node.role is Role.PS,
        )
        for node, split in told
    )


def _nodes(snapshot: JobSnapshot, rows: NodeRows, seconds: Floats, told: Flags) -> tuple[Spent, ...]:
    recent = told & (rows.at_s > rows.at_s[told].max() - LAST_S)
    here = {rows_of.short_name(node.id, snapshot.spec.name) for node in snapshot.nodes}
    names = sorted({n for n in rows.kept(recent) if n in here or not here}, key=rows_of.natural)
    is_ps = rows.ps_by_name
    node = np.array(rows.node)
    ordered = sorted(names, key=lambda name: is_ps[name])
    return tuple(_spent(name, seconds[:, recent & (node == name)], is_ps=is_ps[name]) for name in ordered)


def _spent(name: str, seconds: Floats, *, is_ps: bool) -> Spent:
    """Return the mean of a node's reports; seconds: ndarray of shape (parts, reports)."""
    total_s = seconds.sum(axis=0)
    shares = (seconds / total_s).mean(axis=1)
    n_iter_per_s = (1.0 / total_s).mean()  # reports cover equal times: their iterations weigh the seconds
    return Spent(name, float(1.0 / n_iter_per_s), tuple((shares / shares.sum()).tolist()), is_ps)


def _course(rows: NodeRows, seconds: Floats, told: Flags, role: Role, start_s: float) -> Course | None:
    keep = told & (rows.is_ps == (role is Role.PS))
    if not keep.any():
        return None
    names = rows.kept(keep)
    code = rows_of.codes(names, sorted(set(names)))
    t_s, bucket = rows_of.on_grid(rows.at_s[keep] - start_s, code, _N_BUCKET)
    shares = seconds[:, keep] / seconds[:, keep].sum(axis=0)
    count = np.bincount(bucket, minlength=len(t_s))
    sums = np.array([np.bincount(bucket, part, len(t_s)) for part in shares])
    means = np.divide(sums, count, out=np.full(sums.shape, np.nan), where=count > 0)
    return Course(role, tuple(t_s.tolist()), tuple(tuple(row) for row in means.tolist()))


def static(data: Columns) -> str:
    """Return the bars by node and the stacks over time as one SVG."""
    if not data.nodes:
        return svg.nothing(TITLE, "No node has reported an iteration yet.")
    by_node = bar_strips(data)
    tiles = [Tile(strips.draw(by_node), by_node.width, by_node.height)]
    plots = [_plot(course, data) for course in data.courses if len(course.t_s) > 1]
    tiles += [Tile(svg.draw(plot), plot.width, plot.height) for plot in plots]
    return tile(TITLE, by_node.desc, tiles)


def used_parts(data: Columns) -> tuple[int, ...]:
    """Return the places of the parts that any node spends time on."""
    most = np.zeros(len(PARTS))
    for stack in (*(s.shares for s in data.nodes), *(c.shares for c in data.courses)):
        shares = np.nan_to_num(np.array(stack, float)).reshape(len(PARTS), -1)
        most = np.fmax(most, shares.max(axis=1))
    return tuple(np.flatnonzero(most > 0).tolist())


def bar_strips(data: Columns) -> strips.Strips:
    """Return one bar a node."""
    used = used_parts(data)
    return strips.Strips(
        title=f"{TITLE}: last {units.duration(LAST_S)}" if data.courses else f"{TITLE}: last report",
        desc=_words(data),
        x_label="share of the time",
        rows=tuple((s.name, tuple(_pieces(s))) for s in data.shown),
        legend=tuple((_COLORS[i], LABELS[i], False) for i in used),
        x0=0.0,
        x1=100.0,
        unit=" %",
    )


def _pieces(spent: Spent) -> list[strips.Piece]:
    ends = np.cumsum((0.0, *spent.shares)) * 100
    labels = units.percents(spent.shares)
    return [
        strips.Piece(float(ends[i]), float(ends[i + 1]), _COLORS[i], (f"{part} {labels[i]}", labels[i]))
        for i, part in enumerate(PARTS)
        if spent.shares[i] > 0
    ]


def _words(data: Columns) -> str:
    parts = (
        f"{s.name}: " + ", ".join(f"{p} {v}" for p, v in zip(PARTS, units.percents(s.shares), strict=True))
        for s in data.shown[:4]
    )
    return "Shares of the mean iteration. " + "; ".join(parts) + "."


def _plot(course: Course, data: Columns) -> svg.Plot:
    ends = np.cumsum(np.vstack([np.zeros(len(course.t_s)), course.shares]), axis=0) * 100
    layers = tuple(
        svg.Area(course.t_s, ends[i].tolist(), ends[i + 1].tolist(), _COLORS[i], name=PARTS[i])
        for i in used_parts(data)
        if np.nansum(course.shares[i]) > 0
    )
    who = "workers" if course.role is Role.WORKER else "parameter servers"
    words = f"Mean share of each part over all {who}, over time; all parts sum to 100 %."
    return svg.Plot(
        f"Over time: {who}", words, "time since start", "% of the time", layers, x_is_time=True, y_to=100.0,
        height=200,
    )  # fmt: skip


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table, with the seconds of one iteration."""
    used = used_parts(data)
    rows = tuple((s.name, units.duration(s.iter_s), *(_cells(s)[i] for i in used)) for s in data.shown)
    note = " ".join(filter(None, ("Share of the time, and seconds of one iteration.", data.note)))
    return Table(TITLE, ("node", "iteration", *(PARTS[i] for i in used)), rows, note)


def _cells(spent: Spent) -> tuple[str, ...]:
    pairs = zip(units.percents(spent.shares), spent.seconds, strict=True)
    return tuple(f"{share}, {units.unbroken(units.duration(s))}" if s else "0 %" for share, s in pairs)


class Figure:
    """Live drawing: a bar for each node, and the workers' stack over time below."""

    def __init__(self) -> None:
        from bokeh.layouts import column  # noqa: PLC0415 - bokeh only when drawn live
        from bokeh.models import FactorRange, Range1d  # noqa: PLC0415

        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415

        self._bars = kit.plain_figure(
            TITLE, "% of the time, last minute", "", tools="", y_range=FactorRange(), x_range=Range1d(0, 100)
        )
        self._over_time = kit.time_figure("Workers over time", "% of the time")
        self._over_time.y_range.update(start=0, end=100)
        self._over_time.height = kit.HEIGHT - 60
        self._with_gaps, self._pace = kit.with_gaps, kit.Throttle()
        self._nodes = kit.Source(node=[], words=[], **{part: [] for part in PARTS})
        self._course = kit.Source(t=[], **{part: [] for part in PARTS})
        self._draw(kit)
        self.root = column(self._bars, self._over_time, sizing_mode="stretch_width")

    def _draw(self, kit: Any) -> None:  # noqa: ANN401 - a module
        look = {
            "color": list(_COLORS),
            "hatch_pattern": list(_HATCHES),
            "hatch_color": "#ffffff",
            "hatch_alpha": 0.55,
        }
        bars_of = self._bars.hbar_stack(
            PARTS, y="node", height=0.8, source=self._nodes.model, line_color="#ffffff",
            legend_label=list(PARTS), **look,
        )  # fmt: skip
        self._over_time.varea_stack(PARTS, x="t", source=self._course.model, **look)
        self._bars.add_tools(kit.words_hover(*bars_of))
        kit.place_legend(self._bars)

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:
        """Show new data."""
        if not self._pace.is_due(series):
            return False
        data = columns(snapshot, series)
        shown = data.shown[::-1]  # bokeh counts rows from below
        names = [s.name for s in shown]
        if self._bars.y_range.factors != names:
            self._bars.y_range.factors = names
            self._bars.height = 110 + 20 * len(names)
        bars: dict[str, list[object]] = {
            part: [100 * s.shares[i] for s in shown] for i, part in enumerate(PARTS)
        }
        words: list[object] = [f"{s.name}: {', '.join(_named_cells(s))}" for s in shown]
        changed = [
            self._nodes.show({"node": [*names], "words": words, **bars}),
            self._course.show(self._with_gaps(*_course_columns(data))),
        ]
        return any(changed)


def _named_cells(spent: Spent) -> list[str]:
    return [f"{part} {cell}" for part, cell in zip(PARTS, _cells(spent), strict=True) if cell != "0 %"]


def _course_columns(data: Columns) -> tuple[tuple[float, ...], dict[str, list[float]]]:
    course = next(
        (c for c in data.courses if c.role is Role.WORKER), Course(Role.WORKER, (), ((),) * len(PARTS))
    )
    return course.t_s, {part: [100 * v for v in course.shares[i]] for i, part in enumerate(PARTS)}


def bars(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:
    """Return the bars by node alone, with their table: what a status has room for."""
    data = columns(snapshot, series)
    return StaticChart(strips.draw(bar_strips(data)), data_table(data))


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:
    """Return the static chart with its table."""
    data = columns(snapshot, series)
    return StaticChart(static(data), data_table(data))


CHART = Chart("breakdown", TITLE, picture, Figure)
