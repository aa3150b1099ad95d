"""Breakdown of a step's time: by node over the last minute, and by role over time.

Shares are shares of time: each report covers its window, so the mean over reports is the node's share. The
seconds are those of one step, weighted by the number of steps. Parts always sum to the whole: the
rest of a step is `other`, and printed percents are rounded to sum to 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import series as rows_of
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.svg import svg_drawing
from dlrover_nb.widgets.svg.marks import Area, Drawing, Kind, Panel, Piece, Plot, Rule, Strips
from dlrover_nb.widgets.svg.palette import BLUE, GREEN, ORANGE, PALE, PURPLE, RED, SKY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.series import Flags, Floats, NodeRows

TITLE = "Where a step's time goes"
PARTS = ("data", "lookup", "compute", "update", "peers", "idle", "other")
KINDS = (
    Kind("data: waits for data", SKY, "right_diagonal_line"),
    Kind("lookup: embedding rows", BLUE, "dot"),
    Kind("compute", GREEN),
    Kind("update: gradients", ORANGE, "left_diagonal_line"),
    Kind("peers: waits for peers", RED, "cross"),
    Kind("idle: waits for requests", PALE, "horizontal_line"),
    Kind("other", PURPLE, "ring"),
)
LAST_S = 60.0
_N_BUCKET = 48  # of the chart over time: seven parts each
_MOST_PS = 4  # of the rows, where there is no room for all nodes
_OTHER = PARTS.index("other")


@dataclass(frozen=True, slots=True)
class Spent:
    """The mean step of a node, and the shares of its parts in the order of `PARTS`; they sum to 1."""

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
    """Data of the chart, times in seconds since the job's start."""

    nodes: tuple[Spent, ...]  # workers first
    courses: tuple[Course, ...]
    plans: tuple[Rule, ...] = ()

    @property
    def shown(self) -> tuple[Spent, ...]:
        """The nodes shown: all, or those with the longest steps, a few of them PS."""
        if len(self.nodes) <= rows_of.MOST_ROWS:
            return self.nodes
        slow = sorted(self.nodes, key=lambda s: s.iter_s, reverse=True)
        ps = [s for s in slow if s.is_ps][:_MOST_PS]
        shown = {s.name for s in (*ps, *[s for s in slow if not s.is_ps][: rows_of.MOST_ROWS - len(ps)])}
        return tuple(s for s in self.nodes if s.name in shown)

    @property
    def note(self) -> str:
        """Describe what is left out."""
        n = len(self.nodes) - len(self.shown)
        return f"The {len(self.shown)} nodes with the longest steps; {n} more are not shown." if n else ""


def columns(
    snapshot: JobSnapshot, series: SeriesChunk | None, *, roles: Sequence[Role] = tuple(Role)
) -> Columns:
    """Return the chart's data; over time, of these roles."""
    rows = rows_of.node_rows(series, snapshot.spec.name)
    seconds = np.array([rows.column(f"{part}_s") for part in PARTS]).reshape(len(PARTS), -1)
    seconds[_OTHER] += np.fmax(rows.column("iter_s") - seconds.sum(axis=0), 0.0)
    is_measured = np.nan_to_num(seconds.sum(axis=0)) > 0
    courses = tuple(_course(rows, seconds, is_measured, role, snapshot.started_at_s) for role in roles)
    return Columns(
        _nodes(snapshot, rows, seconds, is_measured) if is_measured.any() else _last_reports(snapshot),
        courses,
        plan_starts(snapshot),
    )


def _last_reports(snapshot: JobSnapshot) -> tuple[Spent, ...]:
    """Return the data of the nodes' last reports, without telemetry."""
    of_plan = [node for node in snapshot.nodes if node.role in set(Role)]
    splits = [(n, n.last.split) for n in of_plan if n.last is not None and n.last.split.total_s > 0]
    return tuple(
        Spent(
            name=rows_of.short_name(node.id, snapshot.spec.name),
            iter_s=split.total_s,
            shares=tuple(getattr(split, f"{part}_s") / split.total_s for part in PARTS),
            is_ps=node.role is Role.PS,
        )
        for node, split in splits
    )


def _nodes(snapshot: JobSnapshot, rows: NodeRows, seconds: Floats, is_measured: Flags) -> tuple[Spent, ...]:
    recent = is_measured & (rows.at_s > rows.at_s[is_measured].max() - LAST_S)
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
    n_iter_per_s = (1.0 / total_s).mean()  # reports cover equal times: their steps weigh the seconds
    return Spent(name, float(1.0 / n_iter_per_s), tuple((shares / shares.sum()).tolist()), is_ps)


def _course(rows: NodeRows, seconds: Floats, is_measured: Flags, role: Role, start_s: float) -> Course:
    keep = is_measured & (rows.is_ps == (role is Role.PS))
    if not keep.any():
        return Course(role, (), ((),) * len(PARTS))
    names = rows.kept(keep)
    code = rows_of.codes(names, sorted(set(names)))
    t_s, bucket = rows_of.on_grid(rows.at_s[keep] - start_s, code, _N_BUCKET)
    shares = seconds[:, keep] / seconds[:, keep].sum(axis=0)
    count = np.bincount(bucket, minlength=len(t_s))
    sums = np.array([np.bincount(bucket, part, len(t_s)) for part in shares])
    means = np.divide(sums, count, out=np.full(sums.shape, np.nan), where=count > 0)
    return Course(role, tuple(t_s.tolist()), tuple(tuple(row) for row in means.tolist()))


def marks(data: Columns) -> Drawing:
    """Describe the chart: a bar for each node, and below it a stack over time for each role."""
    bars = bar_strips(data)
    panels: tuple[Panel, ...] = (bars, *(_plot(course, data) for course in data.courses))
    return Drawing(TITLE, bars.desc, panels, "" if data.nodes else "No node has reported a step yet.")


def static_bars(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:
    """Return the bars by node alone, with their table, for the status view."""
    data = columns(snapshot, series)
    return StaticChart(svg_drawing.draw_panel(bar_strips(data)).svg, data_table(data))


def used_parts(data: Columns) -> tuple[int, ...]:
    """Return the places of the parts that any node spends time on."""
    most = np.zeros(len(PARTS))
    for stack in (*(s.shares for s in data.nodes), *(c.shares for c in data.courses)):
        shares = np.nan_to_num(np.array(stack, float)).reshape(len(PARTS), -1)
        most = np.fmax(most, shares.max(axis=1, initial=0.0))
    return tuple(np.flatnonzero(most > 0).tolist())


def bar_strips(data: Columns) -> Strips:
    """Return one bar a node."""
    has_courses = any(course.t_s for course in data.courses)
    return Strips(
        title=f"{TITLE}: last {units.duration(LAST_S)}" if has_courses else f"{TITLE}: last report",
        desc=_words(data),
        x_label="share of the time",
        rows=tuple((s.name, tuple(_pieces(s))) for s in data.shown),
        kinds=tuple(KINDS[i] for i in used_parts(data)),
        x0=0.0,
        x1=100.0,
        unit=" %",
    )


def _pieces(spent: Spent) -> list[Piece]:
    ends = np.cumsum((0.0, *spent.shares)).round(4) * 100
    labels, cells = units.percents(spent.shares), _cells(spent)
    return [
        Piece(
            round(float(ends[i]), 2),
            round(float(ends[i + 1]), 2),
            KINDS[i],
            (f"{part} {labels[i]}", labels[i]),
            f"{spent.name}: {part} {cells[i]}",
        )
        for i, part in enumerate(PARTS)
        if spent.shares[i] > 0
    ]


def _words(data: Columns) -> str:
    parts = (
        f"{s.name}: " + ", ".join(f"{p} {v}" for p, v in zip(PARTS, units.percents(s.shares), strict=True))
        for s in data.shown[:4]
    )
    return "Shares of the mean step. " + "; ".join(parts) + "."


def _plot(course: Course, data: Columns) -> Plot:
    used, plans = used_parts(data), data.plans if course.t_s else ()
    shares = np.array(course.shares).reshape(len(PARTS), -1)[list(used)]
    edges = (np.cumsum(shares, axis=0) * 100).tolist()
    layers = tuple(
        Area(course.t_s, low, high, KINDS[i].color, name=PARTS[i], hatch=KINDS[i].hatch)
        for i, low, high in zip(used, [[], *edges], edges, strict=False)
    )
    who = "workers" if course.role is Role.WORKER else "parameter servers"
    words = f"Mean share of each part over all {who}, over time; all parts sum to 100 %."
    return Plot(
        f"Over time: {who}", words, "time since start", "% of the time", (*layers, *plans), x_is_time=True,
        y_to=100.0, height=200,
    )  # fmt: skip


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table, with the seconds of one step."""
    used = used_parts(data)
    rows = tuple((s.name, units.duration(s.iter_s), *(_cells(s)[i] for i in used)) for s in data.shown)
    note = " ".join(filter(None, ("Share of the time, and seconds of one step.", data.note)))
    return Table(TITLE, ("node", "step", *(PARTS[i] for i in used)), rows, note)


def _cells(spent: Spent) -> tuple[str, ...]:
    pairs = zip(units.percents(spent.shares), spent.seconds, strict=True)
    return tuple(f"{share}, {units.unbroken(units.duration(s))}" if s else "0 %" for share, s in pairs)


CHART = chart(
    "breakdown",
    TITLE,
    columns=partial(columns, roles=(Role.WORKER,)),  # a live view has no room for more
    marks=marks,
    data_table=data_table,
    static_columns=columns,
    is_heavy=True,
)
