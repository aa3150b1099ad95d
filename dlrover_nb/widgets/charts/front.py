"""The Pareto front: cost against predicted throughput, with bands, today's plan and the proposal.

The cost is money per hour; where a price is unknown it is cores, and the axis says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions import EFFORT_UNIT
from dlrover_nb.widgets import svg, units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.decisions import Candidate, ParetoFront
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk

TITLE = "Plans that nothing beats in both cost and throughput"
SHORT_TITLE = "Pareto front of plans"


@dataclass(frozen=True, slots=True)
class Dot:
    """One plan on the chart."""

    candidate: Candidate
    names: tuple[str, ...]  # picks; "now"; the open proposal

    @property
    def label(self) -> str:
        """Names, then the plan."""
        return ", ".join((*self.names, self.candidate.plan.short))


@dataclass(frozen=True, slots=True)
class Columns:
    """Front, today's plan, and the plan of the open proposal (which may lie off the front)."""

    front: tuple[Dot, ...]
    now: Dot | None
    proposal: Dot | None
    currency: str
    n_plan: int
    asked: tuple[Dot, ...] = ()  # plans that the user asked about

    @property
    def cost_unit(self) -> str:
        """Unit of the cost axis, short: money per hour, or cores where that tells no plans apart."""
        return f"{self.currency}/h" if self._price != 0 and self._price is not None else EFFORT_UNIT

    @property
    def cost_label(self) -> str:
        """What the cost axis shows, and why where it is not money."""
        if self._price is None:
            return f"{EFFORT_UNIT}, {units.PRICE_UNKNOWN}"
        return f"cost in {self.currency} per hour" if self._price else f"{EFFORT_UNIT}, which cost nothing"

    @property
    def _price(self) -> float | None:
        dot = self.now or self.proposal or next(iter((*self.front, *self.asked)), None)
        return dot.candidate.cost_per_hour if dot else math.inf


def columns(snapshot: JobSnapshot) -> Columns:
    """Return the chart's data."""
    opened = snapshot.open_proposal
    proposal = Dot(opened.candidate, (f"proposal {opened.id}",)) if opened else None
    if snapshot.front is None:
        return Columns((), None, proposal, snapshot.spec.prices.currency, 0)
    return replace(of_front(snapshot.front), proposal=proposal)


def of_front(front: ParetoFront) -> Columns:
    """Return the data of a front alone."""
    picks: dict[int, tuple[str, ...]] = {}
    for pick in front.picks:
        picks[pick.index] = (*picks.get(pick.index, ()), pick.name)
    dots = tuple(Dot(c, picks.get(i, ())) for i, c in enumerate(front.candidates))
    return Columns(dots, Dot(front.current, ("now",)), None, front.currency, front.n_plan)


def static(data: Columns) -> str:
    """Return the chart as SVG."""
    plain = [d for d in data.front if not d.names]
    picked = [d for d in data.front if d.names]
    unit = data.cost_unit
    ordered = sorted(data.front, key=lambda d: d.candidate.cost)
    layers: list[svg.Layer] = [
        svg.Line(
            [d.candidate.cost for d in ordered],
            [d.candidate.prediction.samples_per_s for d in ordered],
            svg.SKY,
            step=True,
        ),
        _points(plain, svg.BLUE, "circle", "plan on the front, 90 % band", unit),
        replace(
            _points(picked, svg.GREEN, "triangle", "named pick", unit),
            labels=[", ".join(d.names) for d in picked],
        ),
        _points([data.now] if data.now else [], svg.BLACK, "square", "plan now", unit),
        _points([data.proposal] if data.proposal else [], svg.RED, "diamond", "open proposal", unit, 6.0),
        _points([*data.asked], svg.ORANGE, "diamond", "asked about", unit, 6.0),
    ]
    some = data.front or data.now or data.proposal or data.asked
    empty = "" if data.front else ": none yet, no fit"
    return svg.draw(
        svg.Plot(
            SHORT_TITLE + empty,
            _words(data),
            data.cost_label,
            "samples/s",
            tuple(layers),
            height=320 if some else 120,
        )
    )


def _points(dots: list[Dot], color: str, shape: str, label: str, unit: str, size: float = 4.0) -> svg.Points:
    return svg.Points(
        x=[d.candidate.cost for d in dots],
        y=[d.candidate.prediction.samples_per_s for d in dots],
        color=color,
        label=label if dots else "",
        shape=shape,
        size=size,
        low=[d.candidate.prediction.low for d in dots],
        high=[d.candidate.prediction.high for d in dots],
        titles=[words(d, unit) for d in dots],
    )


def _words(data: Columns) -> str:
    now = f"now {units.rate(data.now.candidate.prediction.samples_per_s)}; " if data.now else ""
    return f"{TITLE}: {now}{len(data.front)} plans of {data.n_plan:,} weighed."


def data_table(data: Columns, *, named_only: bool = False) -> Table:
    """Return the same numbers as a table: of all plans, or of those that have a name."""
    rows = tuple(_row(dot) for dot in _merged(data) if dot.names or not named_only)
    head = ("which", "plan", data.cost_unit, "samples/s", "90 % band", "finish", "pause", "range")
    note = f"{len(data.front)} of {data.n_plan:,} plans weighed; cheapest first." if data.front else ""
    note += " The other plans of the front are left out." * (named_only and len(rows) < len(_merged(data)))
    return Table("Pareto front", head, rows, note)


def _merged(data: Columns) -> list[Dot]:
    """Return each plan once, with all its names: today's and the proposed one often lie on the front.

    A proposal keeps the numbers that it was made with; the front has today's for the same plan.
    """
    extra = [d for d in (data.now, data.proposal, *data.asked) if d is not None]
    named: dict[ResourcePlan, tuple[str, ...]] = {}
    for d in extra:
        named[d.candidate.plan] = (*named.get(d.candidate.plan, ()), *d.names)
    on_front = {d.candidate.plan for d in data.front}
    off = {d.candidate.plan: d for d in reversed(extra) if d.candidate.plan not in on_front}
    return [
        *(Dot(d.candidate, named[plan]) for plan, d in reversed(off.items())),
        *(Dot(d.candidate, (*named.get(d.candidate.plan, ()), *d.names)) for d in data.front),
    ]


def _row(dot: Dot) -> tuple[str, ...]:
    c = dot.candidate
    return (
        ", ".join(dot.names) or "front",
        units.unbroken(c.plan.short),
        units.number(c.cost),
        units.number(c.prediction.samples_per_s),
        units.interval(c.prediction.low, c.prediction.high),
        units.duration(c.finish_s),
        units.duration(c.transition_s),
        "untried" if c.prediction.extrapolates else "tried",
    )


class Figure:
    """Live drawing; a tap on a plan calls `on_tap` with its candidate."""

    def __init__(self, on_tap: Callable[[Candidate], None] | None = None) -> None:
        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415 - bokeh only when drawn live

        self.root = kit.plain_figure(
            f"{SHORT_TITLE} (bars: 90 %)", "cost per hour", "samples/s", tools="tap,reset"
        )
        empty = (
            "x",
            "y",
            "low",
            "high",
            "words",
            "name",
            "align",
            "dx",
            "dy",
            "color",
            "marker",
            "size",
            "kind",
        )
        self._place_legend, self._make_hover = kit.place_legend, kit.words_hover
        self._dots = kit.Source(**{name: [] for name in empty})
        self._edge = kit.Source(x=[], y=[])
        self._on_tap = on_tap
        self._candidates: tuple[Candidate, ...] = ()
        self._draw()
        self._dots.model.selected.on_change("indices", self._tapped)

    def _draw(self) -> None:
        source = self._dots.model
        edge = self._edge.model
        self.root.step("x", "y", source=edge, color=svg.SKY, mode="after", nonselection_alpha=1.0)
        self.root.segment("x", "low", "x", "high", source=source, color="color", alpha=0.5)
        dots = self.root.scatter(
            "x", "y", source=source, color="color", marker="marker", size="size", legend_field="kind",
            nonselection_alpha=0.7,
        )  # fmt: skip
        self.root.text(
            "x", "y", "name", source=source, text_font_size="10px", text_color=svg.INK, text_align="align",
            x_offset="dx", y_offset="dy", nonselection_alpha=1.0,
        )  # fmt: skip
        self.root.add_tools(self._make_hover(dots))
        self._place_legend(self.root)
        self.root.y_range.start = 0

    def _tapped(self, attr: str, old: list[int], new: list[int]) -> None:  # noqa: ARG002 - bokeh's signature
        if new and self._on_tap and new[0] < len(self._candidates):
            self._on_tap(self._candidates[new[0]])

    def plan_at(self, index: int) -> ResourcePlan:
        """Return the plan of a drawn point."""
        return self._candidates[index].plan

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:  # noqa: ARG002 - one signature
        """Show the front of a new snapshot."""
        data = columns(snapshot)
        self.root.title.text = (
            f"{SHORT_TITLE} (bars: 90 %)" if data.front else f"{SHORT_TITLE}: none yet, the fit waits"
        )
        self.root.xaxis.axis_label = data.cost_label
        rows = [*((d, _KINDS["pick" if d.names else "front"]) for d in data.front)]
        rows += [(d, _KINDS[kind]) for kind, d in (("now", data.now), ("open", data.proposal)) if d]
        self._candidates = tuple(d.candidate for d, _ in rows)
        edge = sorted((d.candidate.cost, d.candidate.prediction.samples_per_s) for d in data.front)
        line: dict[str, list[object]] = {"x": [x for x, _ in edge], "y": [y for _, y in edge]}
        changed = [self._edge.show(line), self._dots.show(_columns_of(rows, data))]
        return any(changed)


_KINDS = {
    "front": (svg.BLUE, "circle", 9, "front"),
    "pick": (svg.GREEN, "triangle", 12, "pick"),
    "now": (svg.BLACK, "square", 11, "now"),
    "open": (svg.RED, "diamond", 18, "proposal"),
}


def words(dot: Dot, cost_unit: str) -> str:
    """Say what a plan brings and costs, in a line."""
    c, p = dot.candidate, dot.candidate.prediction
    untried = ", extrapolated" if p.extrapolates else ""
    return (
        f"{dot.label}: {units.rate(p.samples_per_s)} ({units.interval(p.low, p.high)}{untried}), "
        f"{units.number(c.cost)} {cost_unit}, finish in {units.duration(c.finish_s)}"
    )


def _columns_of(rows: list[tuple[Dot, tuple[str, str, int, str]]], data: Columns) -> dict[str, list[object]]:
    costs = [d.candidate.cost for d, _ in rows]
    left_end = min(costs, default=0.0) + 0.25 * (max(costs, default=0.0) - min(costs, default=0.0))
    near_edge = [cost <= left_end for cost in costs]  # a name to the left would be cut off
    return {
        "x": [*costs],
        "y": [d.candidate.prediction.samples_per_s for d, _ in rows],
        "low": [d.candidate.prediction.low for d, _ in rows],
        "high": [d.candidate.prediction.high for d, _ in rows],
        "words": [words(d, data.cost_unit) for d, _ in rows],
        "align": ["left" if near else "right" for near in near_edge],
        "dx": [9 if near else -8 for near in near_edge],
        "dy": [12 if near else -4 for near in near_edge],
        "name": [", ".join(d.names) if kind == "pick" else "" for d, (_, _, _, kind) in rows],
        "color": [color for _, (color, _, _, _) in rows],
        "marker": [marker for _, (_, marker, _, _) in rows],
        "size": [size for _, (_, _, size, _) in rows],
        "kind": [kind for _, (_, _, _, kind) in rows],
    }


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:  # noqa: ARG001 - one signature for all charts
    """Return the static front with its table."""
    data = columns(snapshot)
    return StaticChart(static(data), data_table(data))


CHART = Chart("front", SHORT_TITLE, picture, Figure)
