"""The static copy of the view of many jobs, for saved notebooks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, StaticChart, Table, Tone, View
from dlrover_nb.widgets.clusters.many.grid import moved_most
from dlrover_nb.widgets.clusters.many.job_rows import columns
from dlrover_nb.widgets.clusters.many.look import look
from dlrover_nb.widgets.rows.job_columns import LIVE
from dlrover_nb.widgets.svg.marks import Line, Plot
from dlrover_nb.widgets.svg.svg_drawing import draw_panel

if TYPE_CHECKING:
    from dlrover_nb.widgets.clusters.many import job_rows as shown

N_POINT = 75  # of a line: saved notebooks stay small
N_LABEL = 8
TITLE = "Throughput of all jobs"


def view(state: shown.JobsViewState) -> View:
    """Return the cluster's totals, the chart, and the table of jobs."""
    data = columns(state)
    blocks: list[Block] = [Facts(data.totals)]
    if data.badge:
        blocks.append(Paragraph(data.badge, Tone.WARNING))
    if data.rows:
        blocks.append(StaticChart(chart(state), data_table(state)))
        head = tuple(column.head for column in LIVE)
        rows = tuple(row.cells for row in data.rows)
        blocks.append(Table("Jobs, those that need attention first", head, rows))
    else:
        blocks.append(Paragraph("No jobs yet. Start one with:", Tone.HINT, ("%dlrover submit quick-start",)))
    return View(title(state), tuple(blocks))


def title(state: shown.JobsViewState) -> str:
    """Name the cluster, and whether it is simulated."""
    return f"All jobs of {state.description}"


def x_label(state: shown.JobsViewState) -> str:
    """Describe the chart's time axis."""
    if state.simulated:
        return "simulated time (h:mm:ss)"
    return f"time since {units.clock(state.origin_s)} (h:mm:ss)" if state.origin_s else "time (h:mm:ss)"


def chart(state: shown.JobsViewState) -> str:
    """Return the chart as SVG; only the fastest lines are labeled, the table has them all."""
    wide = state.wide.since(state.origin_s)
    groups = _groups(wide.t_s)
    t = [wide.t_s[end - 1] for _, end in groups]
    fastest = sorted(wide.y, key=lambda name: -_last(wide.y[name]))[:N_LABEL]
    lines = []
    for name, y in wide.y.items():
        color, dash = look(wide.slot[name])
        lines.append(Line(t, _thinned(y, groups), color, name if name in fastest else "", dash))
    desc = f"Throughput of {len(lines)} jobs over time; the table lists their last values."
    return draw_panel(Plot(TITLE, desc, x_label(state), "samples/s", tuple(lines), x_is_time=True)).svg


def _groups(t_s: list[float]) -> list[tuple[int, int]]:
    """Return the rows, as (first, end), that fall into each of `N_POINT` equal spans of time."""
    if not t_s:
        return []
    width_s = max((t_s[-1] - t_s[0]) / N_POINT, 1e-9)
    starts = [i for i in range(len(t_s)) if i == 0 or t_s[i] // width_s != t_s[i - 1] // width_s]
    return list(pairwise([*starts, len(t_s)]))


def _thinned(y: list[float], groups: list[tuple[int, int]]) -> list[float]:
    out: list[float] = []
    for first, end in groups:
        out.append(moved_most(out[-1] if out else float("nan"), y[first:end]))
    return out


def _last(y: list[float]) -> float:
    return next((value for value in reversed(y) if value == value), 0.0)  # noqa: PLR0124 - NaN is not itself


def data_table(state: shown.JobsViewState) -> Table:
    """Return the chart's numbers."""
    rows = tuple(
        (name, units.number(min(finite)), units.number(max(finite)), units.number(finite[-1]))
        for name, y in state.wide.y.items()
        if (finite := [value for value in y if value == value])  # noqa: PLR0124 - as above
    )
    return Table(f"{TITLE}, samples/s", ("job", "least", "greatest", "last"), rows)
