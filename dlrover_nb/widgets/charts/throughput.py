"""Throughput over time: measured, the level that was predicted for each plan, and when plans changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.series import N_BUCKET, N_STATIC, Trace, summary_rows, trace
from dlrover_nb.widgets.svg.marks import Band, Drawing, Layer, Line, Plot, Rule
from dlrover_nb.widgets.svg.palette import BLUE, GREEN, ORANGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Throughput"
N_TWIN_ROW = 8
AHEAD = 0.2  # of the time so far
FAR = 4.0  # a proposal is within the chart up to about five times the measured speed


@dataclass(frozen=True, slots=True)
class Level:
    """A plan's time on the chart and its prediction; seconds since the job's start."""

    label: str
    from_s: float
    to_s: float
    predicted: Prediction | None


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart, times in seconds since the job's start."""

    measured: Trace
    levels: tuple[Level, ...]
    now_s: float
    proposed: Level | None = None  # what the open proposal would bring, drawn ahead of now
    as_now: Level | None = None  # beside it, what the present plan goes on with
    plans: tuple[Rule, ...] = ()


def columns(snapshot: JobSnapshot, series: SeriesChunk | None, *, n_bucket: int = N_BUCKET) -> Columns:
    """Return the chart's data."""
    start = snapshot.started_at_s
    job = series.job if series else {}
    t_s = [t - start for t in job.get("at_s", ())]
    now_s = (snapshot.ended_at_s or snapshot.at_s) - start
    begins = [max(0.0, m.at_s - start) for m in snapshot.markers]
    ends = [*begins[1:], max([now_s, *t_s])]
    levels = tuple(
        Level(m.plan.short, begin, end, m.predicted)
        for m, begin, end in zip(snapshot.markers, begins, ends, strict=False)
    )
    measured = trace(t_s, list(job.get("samples_per_s", ())), n_bucket=n_bucket)
    proposed, as_now = _ahead(snapshot, now_s) or (None, None)
    return Columns(measured, levels, now_s, proposed, as_now, plan_starts(snapshot))


def _ahead(snapshot: JobSnapshot, now_s: float) -> tuple[Level, Level] | None:
    """Return the open proposal and the present plan ahead of now; a protection promises no speed."""
    proposal = snapshot.open_proposal
    if proposal is None or proposal.kind is ProposalKind.PROTECT:
        return None
    new, old, end_s = proposal.candidate, proposal.baseline, now_s * (1 + AHEAD)
    return (
        Level(f"{proposal.id}: {new.plan.short}", now_s, end_s, new.prediction),
        Level(old.plan.short, now_s, end_s, old.prediction),
    )


def band(levels: Iterable[Level]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the predicted levels as x, level, low, high with NaN between plans."""
    rows: list[tuple[float, float, float, float]] = []
    for level in levels:
        if level.predicted is not None:
            p = level.predicted
            rows += [(x, p.samples_per_s, p.low, p.high) for x in (level.from_s, level.to_s)]
            rows.append((level.to_s, math.nan, math.nan, math.nan))
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], [r[3] for r in rows]


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    x, level, low, high = band(data.levels)
    then, proposed, least, most = band((data.proposed,) if data.proposed else ())
    _, as_now, _, _ = band((data.as_now,) if data.as_now else ())
    layers: tuple[Layer, ...] = (
        Band(x, low, high, ORANGE, "90 % band"),
        Line(x, level, ORANGE, "predicted when proposed", dash="6 3", is_guide=True),
        Line(data.measured.t_s, data.measured.y, BLUE, "measured"),
        Band(then, least, most, GREEN, ""),
        Line(then, proposed, GREEN, "proposed", dash="6 3", is_guide=True, far=FAR),
        Line(then, as_now, BLUE, "as now", dash="2 4", is_guide=True),
        *data.plans,
    )
    plot = Plot(TITLE, _words(data), "time since start", "samples/s", layers, x_is_time=True, height=290)
    return Drawing(TITLE, plot.desc, (plot,))


def _words(data: Columns) -> str:
    finite = [v for v in data.measured.y if math.isfinite(v)]
    last = units.rate(finite[-1]) if finite else "nothing measured yet"
    return (
        f"Training throughput over {units.duration(data.now_s)}: last {last}; {len(data.levels)} plans ran."
    )


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table."""
    rows = tuple(
        (
            units.elapsed(t),
            units.number(mean),
            units.number(low),
            units.number(high),
            *_level_cells(data, t),
        )
        for t, mean, low, high in summary_rows(data.measured.t_s, data.measured.y, N_TWIN_ROW)
    )
    head = ("until (m:ss)", "mean samples/s", "least", "greatest", "plan", "predicted", "90 % band")
    return Table("Throughput over time", head, rows)


def _level_cells(data: Columns, at_s: float) -> tuple[str, str, str]:
    level = next((lv for lv in reversed(data.levels) if lv.from_s <= at_s), None)
    if level is None:
        return (units.MISSING,) * 3
    if level.predicted is None:
        return (units.unbroken(level.label), units.MISSING, units.MISSING)
    p = level.predicted
    return (units.unbroken(level.label), units.number(p.samples_per_s), units.interval(p.low, p.high))


CHART = chart(
    "throughput",
    TITLE,
    columns=columns,
    marks=marks,
    data_table=data_table,
    static_columns=partial(columns, n_bucket=N_STATIC),
)
