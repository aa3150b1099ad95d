"""The fitted resource-performance curve along one axis of the plan space, all else as now.

A curve without its band would claim more than the fit knows, so the band is always there, and the part that
lies outside what was tried is dashed and red: there the form of the model speaks, not measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import svg, units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart

if TYPE_CHECKING:
    from dlrover_nb.core.structs.snapshot import Curve, JobSnapshot, SeriesChunk

TITLE = "Fitted curve"
_MOST_TICKS = 10  # up to here each value of the axis has its tick
AXIS_NAMES = {
    "workers": "workers",
    "ps": "parameter servers",
    "worker_cpu": "cores per worker",
    "ps_cpu": "cores per parameter server",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """One axis: the whole curve with its band, its two parts (NaN where the other applies), and samples."""

    axis: str
    at: float
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    measured_x: tuple[float, ...]
    measured_y: tuple[float, ...]


def columns(curve: Curve) -> Columns:
    """Return one axis' data."""
    beyond = [p.extrapolates for p in curve.predictions]
    y = tuple(p.samples_per_s for p in curve.predictions)
    return Columns(
        axis=curve.axis,
        at=curve.at,
        x=curve.x,
        y=y,
        low=tuple(p.low for p in curve.predictions),
        high=tuple(p.high for p in curve.predictions),
        inside=tuple(math.nan if out else v for v, out in zip(y, beyond, strict=True)),
        outside=tuple(v if _touches(beyond, i) else math.nan for i, v in enumerate(y)),
        measured_x=curve.measured_x,
        measured_y=curve.measured_samples_per_s,
    )


def _touches(beyond: list[bool], i: int) -> bool:
    """Whether a point or its neighbor extrapolates: the dashed part starts where the solid one ends."""
    return any(beyond[max(0, i - 1) : i + 2])


def plot(data: Columns) -> svg.Plot:
    """Return the static plot of one axis."""
    name = AXIS_NAMES.get(data.axis, data.axis)
    has_outside = any(map(math.isfinite, data.outside))
    layers: tuple[svg.Layer, ...] = (
        svg.Band(data.x, data.low, data.high, svg.BLUE, "90 % band"),
        svg.Line(data.x, data.outside, svg.RED, "extrapolated" if has_outside else "", "6 3"),
        svg.Line(data.x, data.inside, svg.BLUE, "fitted"),
        svg.Points(data.measured_x, data.measured_y, svg.BLACK, "measured" if data.measured_x else ""),
        svg.Rule(data.at, f"now: {data.at:g}"),
    )
    words = f"Predicted throughput against {name}, now {data.at:g}, with {len(data.measured_x)} samples."
    return svg.Plot(f"Along {name}", words, name, "samples/s", layers, width=470, height=270, x_ticks=data.x)


def static(data: tuple[Columns, ...]) -> str:
    """Return the curves of all axes as one SVG."""
    words = "Predicted throughput along each axis of the plan space, all else as now."
    if not data:
        words = "No curve yet: too few steady samples."
        return svg.draw(svg.Plot(f"{TITLE}: none yet, too few steady samples", words, "", "", (), height=120))
    return svg.grid(TITLE, words, [plot(one) for one in data])


def data_table(data: tuple[Columns, ...]) -> Table:
    """Return the same numbers as a table."""
    rows = tuple(
        (
            AXIS_NAMES.get(one.axis, one.axis),
            f"{x:g}{' (now)' if x == one.at else ''}",
            units.number(y),
            units.interval(low, high),
            "untried" if math.isnan(inside) else "tried",
            _measured_at(one, x),
        )
        for one in data
        for x, y, low, high, inside in zip(one.x, one.y, one.low, one.high, one.inside, strict=True)
    )
    head = ("along", "value", "samples/s", "90 % band", "range", "measured mean (samples)")
    return Table("Fitted curve, all else as now", head, rows)


def _measured_at(one: Columns, x: float) -> str:
    here = [y for at, y in zip(one.measured_x, one.measured_y, strict=True) if math.isclose(at, x)]
    return f"{units.number(sum(here) / len(here))} ({len(here)})" if here else units.MISSING


class Figure:
    """Live drawing of one axis at a time; set `axis` to choose."""

    def __init__(self) -> None:
        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415 - bokeh only when drawn live

        self.axis = "workers"
        self.root = kit.plain_figure(TITLE, AXIS_NAMES[self.axis], "samples/s", tools="reset")
        self._curve = kit.Source(x=[], low=[], high=[], inside=[], outside=[])
        self._samples = kit.Source(x=[], y=[])
        self._now = kit.Source(x=[])
        self._usual, self._each = self.root.xaxis.ticker, kit.fixed_ticker()
        self._draw(kit.DASH)
        kit.place_legend(self.root)

    def _draw(self, dash: list[int]) -> None:
        fig, source = self.root, self._curve.model
        fig.varea("x", "low", "high", source=source, fill_color=svg.BLUE, fill_alpha=0.14)
        fig.line(
            "x", "outside", source=source, color=svg.RED, line_dash=dash, width=2, legend_label="extrapolated"
        )
        fig.line("x", "inside", source=source, color=svg.BLUE, width=2, legend_label="fitted, 90 % band")
        fig.scatter(
            "x", "y", source=self._samples.model, color=svg.BLACK, size=7, alpha=0.6, legend_label="measured"
        )
        fig.vspan("x", source=self._now.model, line_color=svg.INK, line_dash="dotted")
        fig.y_range.start = 0

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:  # noqa: ARG002 - one signature
        """Show the chosen axis."""
        curve = next((c for c in snapshot.curves if c.axis == self.axis), None)
        if curve is None:
            self.root.title.text = "Fitted curve: none yet, the fit waits for steady samples"
            return False
        data = columns(curve)
        name = AXIS_NAMES.get(data.axis, data.axis)
        self.root.xaxis.axis_label = name
        self._each.ticks = [*data.x]
        self.root.xaxis.ticker = self._each if len(data.x) <= _MOST_TICKS else self._usual
        self.root.title.text = f"Fitted curve along {name} (dotted: now, {data.at:g})"
        line = {k: [*getattr(data, k)] for k in ("x", "low", "high", "inside", "outside")}
        changed = [
            self._curve.show(line),
            self._samples.show({"x": [*data.measured_x], "y": [*data.measured_y]}),
            self._now.show({"x": [data.at]}),
        ]
        return any(changed)


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:  # noqa: ARG001 - one signature for all charts
    """Return the static curves with their table."""
    data = tuple(columns(curve) for curve in snapshot.curves)
    return StaticChart(static(data), data_table(data))


CHART = Chart("curve", TITLE, picture, Figure)
