"""The fitted resource-performance curve along one axis of the plan space, other values as now.

A curve without its band would overstate the fit, so the band is always shown. The part outside the tried
range is dashed and red: it follows from the form of the model alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.svg.marks import Band, Drawing, Line, Plot, Points, Rule
from dlrover_nb.widgets.svg.palette import BLUE, INK, RED

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.fit import Curve
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Fitted curve"
N_NEAR = 5  # values of an axis, in plain text, beside the last
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


def columns(snapshot: JobSnapshot, series: SeriesChunk | None = None) -> tuple[Columns, ...]:  # noqa: ARG001 - one signature for all charts
    """Return the chart's data, axis by axis."""
    return tuple(map(axis_columns, snapshot.curves))


def axis_columns(curve: Curve) -> Columns:
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


def plot(data: Columns) -> Plot:
    """Describe the plot of one axis."""
    name = AXIS_NAMES.get(data.axis, data.axis)
    beyond = data.x if any(map(math.isfinite, data.outside)) else ()
    layers = (
        Band(data.x, data.low, data.high, BLUE, "90 % band"),
        Line(beyond, data.outside if beyond else (), RED, "extrapolated", "6 3"),
        Line(data.x, data.inside, BLUE, "fitted"),
        Points(data.measured_x, data.measured_y, INK, "measured"),
        Rule(data.at, f"now: {data.at:g}"),
    )
    words = f"Predicted throughput against {name}, now {data.at:g}, with {len(data.measured_x)} samples."
    return Plot(
        f"{TITLE} along {name}", words, name, "samples/s", layers, name=data.axis, width=470, height=270,
        x_ticks=data.x,
    )  # fmt: skip


def marks(data: tuple[Columns, ...]) -> Drawing:
    """Describe the curves of all axes; a live view shows the selected one."""
    words = "Predicted throughput along each axis of the plan space, all else as now."
    empty = "" if data else "None yet: too few steady samples."
    none = Plot(TITLE, words, "workers", "samples/s", (), name="workers", width=470)
    panels = tuple(map(plot, data)) or (none,)
    return Drawing(TITLE, words, panels, empty, n_column=2, one_at_a_time=True)


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
    return Table("Fitted curve, all else as now", head, rows, brief=_brief(data))


def _brief(data: tuple[Columns, ...]) -> tuple[int, ...]:
    """Return the places of the values nearest to today's on each axis, and of its last."""
    places, first = list[int](), 0
    for one in data:
        away = [abs(math.log(x / one.at)) for x in one.x]
        nearest = sorted(range(len(away)), key=away.__getitem__)[:N_NEAR]
        places += [first + i for i in sorted({*nearest, len(away) - 1})]
        first += len(away)
    return tuple(places)


def _measured_at(one: Columns, x: float) -> str:
    here = [y for at, y in zip(one.measured_x, one.measured_y, strict=True) if math.isclose(at, x)]
    return f"{units.number(sum(here) / len(here))} ({len(here)})" if here else units.MISSING


CHART = chart("curve", TITLE, columns=columns, marks=marks, data_table=data_table)
