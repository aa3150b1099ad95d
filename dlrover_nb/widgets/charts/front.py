"""The Pareto front: cost against predicted throughput, with bands, today's plan and the proposal.

The cost is money per hour; where a price is unknown it is cores, and the axis says so. The drawing begins at
what was tried and its neighborhood, and says what lies beyond (`nearby`); the table has all plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.decisions.candidates import EFFORT_UNIT, auc_words, is_worth_telling
from dlrover_nb.core.structs.plan.prices import ARE_ASSUMED
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.nearby import reach
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot, Points
from dlrover_nb.widgets.svg.palette import BLUE, GREEN, INK, ORANGE, RED, SKY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlrover_nb.core.structs.decisions.candidates import Candidate, ParetoFront
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Plans that nothing beats in both cost and throughput"
SHORT_TITLE = "Pareto front of plans"
N_UNNAMED = 6  # of the plans without a name, in plain text


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
    """Front, present plan, and the plan of the open proposal (which may lie off the front)."""

    front: tuple[Dot, ...]
    now: Dot | None
    proposal: Dot | None
    currency: str
    n_plan: int
    queried: tuple[Dot, ...] = ()  # plans that the user queried
    is_assumed: bool = False  # the prices are; unknown of a front alone
    shows_all: bool = False  # also what is far from the present plan

    @property
    def near(self) -> tuple[Dot, ...]:
        """The plans of the front that are drawn: all, or those up to what was tried and is proposed."""
        if self.shows_all or self.now is None:
            return self.front
        tried = (dot for dot in self.front if not dot.candidate.prediction.extrapolates)
        named = (*tried, *_known(self.proposal), *self.queried)
        most = reach(self.now.candidate.cost, (dot.candidate.cost for dot in named))
        return tuple(dot for dot in self.front if dot.candidate.cost <= most)

    @property
    def beyond(self) -> str:
        """How many plans are not drawn, and up to where they go; empty: all are."""
        near = {dot.candidate.plan for dot in self.near}
        far = [dot.candidate for dot in self.front if dot.candidate.plan not in near]
        if not far:
            return ""
        last = max(far, key=lambda c: c.cost)
        rate = units.rate(last.prediction.samples_per_s)
        up_to = f"{last.plan.short} ({rate} for {units.number(last.cost)} {self.cost_unit})"
        return f"{units.counted(len(far), 'more plan')} beyond, up to {up_to}."

    @property
    def cost_unit(self) -> str:
        """Unit of the cost axis, short: money per hour, or cores where money does not distinguish plans."""
        return f"{self.currency}/h" if self._price else EFFORT_UNIT

    @property
    def cost_label(self) -> str:
        """Label of the cost axis, and the reason where it is not money."""
        if self._price is None:
            return f"{EFFORT_UNIT}, {units.PRICE_UNKNOWN}"
        return (
            f"cost in {self.currency} per hour{self._note}"
            if self._price
            else f"{EFFORT_UNIT}, which cost nothing"
        )

    @property
    def names_assumed_prices(self) -> bool:
        """Whether it shows money, by prices that are assumed."""
        return self.is_assumed and bool(self._price)

    @property
    def _note(self) -> str:
        return units.Currency(self.currency, self.is_assumed).note

    @property
    def _price(self) -> float | None:
        dot = self.now or self.proposal or next(iter((*self.front, *self.queried)), None)
        return dot.candidate.cost_per_hour if dot else math.inf


def columns(
    snapshot: JobSnapshot,
    series: SeriesChunk | None = None,  # noqa: ARG001 - one signature for all charts
    *,
    shows_all: bool = False,
) -> Columns:
    """Return the chart's data."""
    prices, proposal = snapshot.spec.prices, _proposed(snapshot)
    if snapshot.front is None:
        return Columns((), None, proposal, prices.currency, 0, is_assumed=prices.assumed)
    front = of_front(snapshot.front)
    return replace(front, proposal=proposal, is_assumed=prices.assumed, shows_all=shows_all)


def _proposed(snapshot: JobSnapshot) -> Dot | None:
    """Return the plan of the open proposal: as predicted now where it is on the front, else as proposed."""
    opened = snapshot.open_proposal
    if opened is None:
        return None
    front = snapshot.front
    candidates = (front.current, *front.candidates) if front else ()
    now = next((c for c in candidates if c.plan == opened.candidate.plan), None)
    name = f"proposal {opened.id}"
    return Dot(now, (name,)) if now else Dot(opened.candidate, (f"{name} as proposed",))


def of_front(front: ParetoFront) -> Columns:
    """Return the data of a front alone."""
    picks: dict[int, tuple[str, ...]] = {}
    for pick in front.picks:
        picks[pick.index] = (*picks.get(pick.index, ()), pick.name)
    dots = tuple(Dot(c, picks.get(i, ())) for i, c in enumerate(front.candidates))
    return Columns(dots, Dot(front.current, ("now",)), None, front.currency, front.n_plan)


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    near = data.near
    ordered = sorted(near, key=lambda d: d.candidate.cost)
    edge = Line(
        [d.candidate.cost for d in ordered],
        [d.candidate.prediction.samples_per_s for d in ordered],
        SKY,
        step=True,
    )
    picked = [d for d in near if d.names]
    unit = data.cost_unit
    layers = (
        edge,
        _points([d for d in near if not d.names], BLUE, "circle", "front", unit),
        replace(
            _points(picked, GREEN, "triangle", "pick", unit),
            labels=[", ".join(d.names) for d in picked],
        ),
        _points(_known(data.now), INK, "square", "now", unit),
        _points(_known(data.proposal), RED, "diamond", "proposal", unit, 6.0),
        _points([*data.queried], ORANGE, "diamond", "asked about", unit, 6.0),
    )
    some = data.front or data.now or data.proposal or data.queried
    title = "Pareto front (bars: 90 % band)" if data.front else f"{SHORT_TITLE}: none yet, no fit"
    plot = Plot(
        title, _words(data), data.cost_label, "samples/s", layers, height=320, note=data.beyond
    )  # fmt: skip
    empty = "" if some else "None yet: the fit waits for steady samples."
    return Drawing(SHORT_TITLE, plot.desc, (plot,), empty)


def _known(dot: Dot | None) -> list[Dot]:
    return [dot] if dot else []


def _points(dots: list[Dot], color: str, shape: str, label: str, unit: str, size: float = 4.0) -> Points:
    return Points(
        x=[d.candidate.cost for d in dots],
        y=[d.candidate.prediction.samples_per_s for d in dots],
        color=color,
        label=label,
        shape=shape,
        size=size,
        low=[d.candidate.prediction.low for d in dots],
        high=[d.candidate.prediction.high for d in dots],
        titles=[words(d, unit) for d in dots],
        values=[d.candidate for d in dots],
    )


def words(dot: Dot, cost_unit: str) -> str:
    """Return a plan's throughput and cost as one line."""
    c, p = dot.candidate, dot.candidate.prediction
    untried = ", extrapolated" if p.extrapolates else ""
    in_time = "" if c.in_time is None else f", {chance_words(c.in_time)} chance to meet the deadline"
    if c.in_budget is not None and c.end_cost is not None:
        in_time += f", {c.end_cost:,.4g} until the end ({chance_words(c.in_budget)} within the budget)"
    if is_worth_telling(c.quality):
        in_time += f", AUC {auc_words(c.quality)}"
    return (
        f"{dot.label}: {units.rate(p.samples_per_s)} ({units.interval(p.low, p.high)}{untried}), "
        f"{units.number(c.cost)} {cost_unit}, finish in {units.duration(c.finish_s)}{in_time}"
    )


def _words(data: Columns) -> str:
    now = f"now {units.rate(data.now.candidate.prediction.samples_per_s)}; " if data.now else ""
    return f"{TITLE}: {now}{len(data.front)} plans of {data.n_plan:,} weighed. {data.beyond}".rstrip()


def data_table(data: Columns, *, named_only: bool = False) -> Table:
    """Return the same numbers as a table: of all plans, or of those that have a name."""
    shown = [dot for dot in _merged(data) if dot.names or not named_only]
    always = ("which", "plan", data.cost_unit, "samples/s", "90 % band", "finish", "pause", "range")
    chances = [name for name, of in CHANCES.items() if any(of(dot.candidate) is not None for dot in shown)]
    has_quality = any(is_worth_telling(dot.candidate.quality) for dot in shown)
    rows = tuple(
        (
            *_row(dot),
            *(_chance(CHANCES[name](dot.candidate)) for name in chances),
            *((auc_words(dot.candidate.quality),) if has_quality else ()),
        )
        for dot in shown
    )
    head = (*always, *chances, *(("AUC",) if has_quality else ()))
    note = (
        f"{len(data.front)} of {data.n_plan:,} plans weighed, predicted now; cheapest first."
        if data.front
        else ""
    )
    note += " The other plans of the front are left out." * (named_only and len(rows) < len(_merged(data)))
    note += f" {ARE_ASSUMED}" * data.names_assumed_prices
    return Table("Pareto front", head, rows, note.strip(), _brief(data, shown))


def _brief(data: Columns, shown: Sequence[Dot]) -> tuple[int, ...]:
    """Return the places of the plans that have a name, and of those that cost about what today's does."""
    now = data.now.candidate.cost if data.now else 0.0
    away = [abs(dot.candidate.cost - now) for dot in shown]
    nearest = sorted((i for i, dot in enumerate(shown) if not dot.names), key=away.__getitem__)[:N_UNNAMED]
    return tuple(i for i, dot in enumerate(shown) if dot.names or i in nearest)


def _merged(data: Columns) -> list[Dot]:
    """Return each plan once, with all its names: today's and the proposed one often lie on the front.

    A proposal keeps its original numbers; the front has the present ones for the same plan.
    """
    extra = [d for d in (data.now, data.proposal, *data.queried) if d is not None]
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


CHANCES: Mapping[str, Callable[[Candidate], float | None]] = MappingProxyType(
    {"in time": lambda c: c.in_time, "in budget": lambda c: c.in_budget}
)


def _chance(chance: float | None) -> str:
    return units.MISSING if chance is None else chance_words(chance)


CHART = chart(
    "front",
    SHORT_TITLE,
    columns=columns,
    marks=marks,
    data_table=data_table,
    whole_columns=partial(columns, shows_all=True),
)
