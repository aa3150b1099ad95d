"""Throughput over time: measured, the level that was predicted for each plan, and when plans changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import svg, units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart
from dlrover_nb.widgets.series import N_BUCKET, N_STATIC, Trace, summary_rows, trace

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions import Prediction
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.charts import kit

TITLE = "Throughput"
N_TWIN_ROW = 8


@dataclass(frozen=True, slots=True)
class Level:
    """A plan's time on the chart and what was predicted for it; seconds since the job's start."""

    label: str
    from_s: float
    to_s: float
    predicted: Prediction | None


@dataclass(frozen=True, slots=True)
class Columns:
    """What the chart shows, times in seconds since the job's start."""

    measured: Trace
    levels: tuple[Level, ...]
    now_s: float


def columns(snapshot: JobSnapshot, series: SeriesChunk | None, *, n_bucket: int = N_BUCKET) -> Columns:
    """Return the chart's data."""
    start = snapshot.started_at_s
    job = series.job if series else {}
    t_s = [t - start for t in job.get("at_s", ())]
    now_s = (snapshot.ended_at_s or snapshot.at_s) - start
    begins = [m.at_s - start for m in snapshot.markers]
    ends = [*begins[1:], max([now_s, *t_s])]
    levels = tuple(
        Level(m.plan.short, begin, end, m.predicted)
        for m, begin, end in zip(snapshot.markers, begins, ends, strict=False)
    )
    return Columns(trace(t_s, list(job.get("samples_per_s", ())), n_bucket=n_bucket), levels, now_s)


def band(data: Columns) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the predicted levels as x, level, low, high with NaN between plans."""
    rows: list[tuple[float, float, float, float]] = []
    for level in data.levels:
        if level.predicted is not None:
            p = level.predicted
            rows += [(x, p.samples_per_s, p.low, p.high) for x in (level.from_s, level.to_s)]
            rows.append((level.to_s, math.nan, math.nan, math.nan))
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], [r[3] for r in rows]


def static(data: Columns) -> str:
    """Return the chart as SVG."""
    x, level, low, high = band(data)
    layers: tuple[svg.Layer, ...] = (
        svg.Band(x, low, high, svg.ORANGE, "90 % band" if x else ""),
        svg.Line(x, level, svg.ORANGE, "predicted when the plan was chosen" if x else "", dash="6 3"),
        svg.Line(data.measured.t_s, data.measured.y, svg.BLUE, "measured"),
        *(svg.Rule(lv.from_s, lv.label, dash="2 3") for lv in data.levels),
    )
    return svg.draw(
        svg.Plot(TITLE, _words(data), "time since start", "samples/s", layers, x_is_time=True, height=290)
    )


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


class Figure:
    """Live drawing: one source for the measured line, one for the levels, one for the markers."""

    def __init__(self) -> None:
        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415 - bokeh only when drawn live

        self.root = kit.time_figure(TITLE, "samples/s")
        self._measured = kit.Source(t=[], y=[])
        self._level = kit.Source(t=[], y=[], low=[], high=[])
        self._marker = kit.Source(t=[], top=[], label=[], align=[], offset=[])
        self._with_gaps = kit.with_gaps
        self._draw(kit.DASH)
        kit.place_legend(self.root)

    def _draw(self, dash: list[int]) -> None:
        fig, level, marker = self.root, self._level.model, self._marker.model
        fig.varea("t", "low", "high", source=level, fill_color=svg.ORANGE, fill_alpha=0.18)
        fig.line(
            "t", "y", source=level, color=svg.ORANGE, line_dash=dash, width=2, legend_label="predicted (90 %)"
        )
        fig.line(
            "t",
            "y",
            source=self._measured.model,
            name="measured",
            color=svg.BLUE,
            width=2,
            legend_label="measured",
        )
        fig.segment("t", 0, "t", "top", source=marker, color=svg.INK, line_dash="dotted")
        fig.text(
            x="t", y="top", text="label", source=marker, text_align="align", x_offset="offset", y_offset=11,
            text_font_size="10px", text_color=svg.INK,
        )  # fmt: skip

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:
        """Show new data."""
        data = columns(snapshot, series)
        x, level, low, high = band(data)
        finite = [v for v in (*data.measured.y, *high) if math.isfinite(v)]
        top = 1.25 * max(finite, default=1.0)
        sources: list[tuple[kit.Source, dict[str, list[object]]]] = [
            (self._measured, {"t": [*data.measured.t_s], "y": [*data.measured.y]}),
            (self._level, self._with_gaps(x, {"low": low, "high": high}, {"y": level})),
            (self._marker, _markers(data, top)),
        ]
        self.root.y_range.update(start=0, end=top)
        return bool(sum(source.show(values) for source, values in sources))


def _markers(data: Columns, top: float) -> dict[str, list[object]]:
    """Heights step down from marker to marker so that labels of close ones do not cover each other."""
    tops: list[object] = [top * (1 - 0.06 * (i % 3)) for i in range(len(data.levels))]
    late = [lv.from_s > 0.7 * data.now_s for lv in data.levels]  # a label to the right would be cut off
    return {
        "t": [lv.from_s for lv in data.levels],
        "top": tops,
        "label": [lv.label for lv in data.levels],
        "align": ["right" if is_late else "left" for is_late in late],
        "offset": [-3 if is_late else 3 for is_late in late],
    }


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:
    """Return the static chart with its table."""
    data = columns(snapshot, series, n_bucket=N_STATIC)
    return StaticChart(static(data), data_table(data))


CHART = Chart("throughput", TITLE, picture, Figure)
