"""The fitted resource-performance curve along one axis of the plan space, other values as now.

A curve without its band would overstate the fit, so the band is always shown. The part outside the tried
range is dashed and red: it follows from the form of the model alone. The drawing begins at what was tried and
its neighborhood, and says what lies beyond (`nearby`); the table has all values. An axis on which one value
alone is possible has no curve: a point says nothing of it.

The curve is that of the plans alone: on a host with other work a proposal and the front are slower, by what
that work takes now. So the axis says that it is for a free host, and a note by how much the two differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.nearby import reach
from dlrover_nb.widgets.svg.marks import Band, Drawing, Line, Plot, Points, Rule
from dlrover_nb.widgets.svg.palette import BLUE, INK, RED

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
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
    proposed: float | None = None  # the value in the open proposal
    shows_all: bool = False  # also what is far from the present plan
    host_share: float = 0.0  # of the job's time that other work on the host takes; 0: not felt

    @property
    def n_near(self) -> int:
        """How many values are drawn, from the first on: all, or those near what was tried and is proposed."""
        if self.shows_all:
            return len(self.x)
        tried = [x for x, y in zip(self.x, self.inside, strict=True) if math.isfinite(y)]
        proposed = () if self.proposed is None else (self.proposed,)
        most = reach(self.at, (*tried, *self.measured_x, *proposed))
        return max(sum(x <= most for x in self.x), min(2, len(self.x)))

    @property
    def is_single(self) -> bool:
        """Whether no other value than the present one is possible, or was measured."""
        return len({*self.x, *self.measured_x}) == 1

    @property
    def beyond(self) -> str:
        """How many values are not drawn, and up to where they go; empty: all are."""
        n = len(self.x) - self.n_near
        return f"{units.counted(n, 'more value')} beyond, up to {self.x[-1]:g}." if n else ""

    @property
    def host_words(self) -> str:
        """How the curve differs from proposals, and why; empty: it does not."""
        return host_words(self.host_share)

    @property
    def unit(self) -> str:
        """What the curve counts."""
        return "samples/s on a free host" if self.host_share else "samples/s"


def host_words(share: float) -> str:
    """Say that a curve leaves out the host's other work, which proposals include; empty: there is none."""
    if not share:
        return ""
    share_words = units.percent(share)
    return f"This is for a free host; other work takes {share_words} of it now, which proposals include."


def columns(
    snapshot: JobSnapshot,
    series: SeriesChunk | None = None,  # noqa: ARG001 - one signature for all charts
    *,
    shows_all: bool = False,
) -> tuple[Columns, ...]:
    """Return the chart's data, axis by axis."""
    opened = snapshot.open_proposal
    plan = opened.candidate.plan if opened else None
    share = snapshot.host.share if snapshot.host is not None and snapshot.host.is_felt else 0.0
    fitted = (axis_columns(each, plan, shows_all=shows_all) for each in snapshot.curves)
    return tuple(replace(each, host_share=share) for each in fitted)


def _along(plan: ResourcePlan, axis: str) -> float | None:
    """Return where a plan lies on an axis."""
    of_axis = {
        "workers": float(plan.worker.count), "ps": float(plan.ps.count),
        "worker_cpu": plan.worker.cpu, "ps_cpu": plan.ps.cpu,
    }  # fmt: skip
    return of_axis.get(axis)


def axis_columns(curve: Curve, proposed: ResourcePlan | None = None, *, shows_all: bool = False) -> Columns:
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
        proposed=_along(proposed, curve.axis) if proposed else None,
        shows_all=shows_all,
    )


def _touches(beyond: list[bool], i: int) -> bool:
    """Whether a point or its neighbor extrapolates: the dashed part starts where the solid one ends."""
    return any(beyond[max(0, i - 1) : i + 2])


def plot(data: Columns) -> Plot:
    """Describe the plot of one axis; of one with a single value, only why it has no curve."""
    name = AXIS_NAMES.get(data.axis, data.axis)
    if data.is_single:
        title = f"{TITLE} along {name}: none, as only {data.at:g} is possible"
        return Plot(title, f"{title}.", name, data.unit, (), name=data.axis, width=470, height=270)
    near = slice(data.n_near)
    x, outside = data.x[near], data.outside[near]
    untried = x if any(map(math.isfinite, outside)) else ()
    layers = (
        Band(x, data.low[near], data.high[near], BLUE, "90 % band"),
        Line(untried, outside if untried else (), RED, "extrapolated", "6 3"),
        Line(x, data.inside[near], BLUE, "fitted"),
        Points(data.measured_x, data.measured_y, INK, "measured"),
        Rule(data.at, f"now: {data.at:g}"),
    )
    samples = f"with {len(data.measured_x)} samples"
    note = " ".join(filter(None, (data.beyond, data.host_words)))
    words = f"Predicted throughput against {name}, now {data.at:g}, {samples}. {note}"
    return Plot(
        f"{TITLE} along {name}", words.rstrip(), name, data.unit, layers, name=data.axis, width=470,
        height=270, x_ticks=x, note=note,
    )  # fmt: skip


def marks(data: tuple[Columns, ...]) -> Drawing:
    """Describe the curves of all axes; a live view shows the selected one."""
    words = "Predicted throughput along each axis of the plan space, all else as now."
    empty = "" if data else "None yet: too few steady samples."
    if data and all(each.is_single for each in data):
        empty = "None, as only the present plan is possible."
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
    without = " and ".join(AXIS_NAMES.get(one.axis, one.axis) for one in data if one.is_single)
    single = f"No curve along {without}: only the present value is possible." if without else ""
    note = " ".join(filter(None, (data[0].host_words if data else "", single)))
    return Table("Fitted curve, all else as now", head, rows, note, _brief(data))


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


CHART = chart(
    "curve",
    TITLE,
    columns=columns,
    marks=marks,
    data_table=data_table,
    whole_columns=partial(columns, shows_all=True),
)
