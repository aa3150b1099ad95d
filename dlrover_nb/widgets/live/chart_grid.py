"""The charts of one live screen: throughput on the first screen, the others on pages that one chooses.

A chart on a page that is not shown is not updated until it is. All charts over time share one range of time:
who zooms into one sees the same minutes in the others. The curve and the front depend on the fit, which
changes a little with each window: they are redrawn every few ticks, and at once after a proposal, a decision
or a change. They begin at what was tried and its neighborhood; a button shows all plans. A cross marks the
plan of the what-if sliders on both, red where it is extrapolated.

Charts that are looked at seldom (age of gradients, distance, mini-batches, rows against speed) are not here:
each figure that a page holds, shown or not, makes all of it slower, and four more made a press in JupyterLab
take three times as long. `show --staleness` and the report have them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import panel as pn

from dlrover_nb.core.client.until import first_steps
from dlrover_nb.core.structs.decisions.candidates import Candidate
from dlrover_nb.widgets.charts import CHARTS, all_charts, curve, front
from dlrover_nb.widgets.jobs.whatif import Axis, value
from dlrover_nb.widgets.live.controls.elements import button, pane, select
from dlrover_nb.widgets.live.live_charts import kit
from dlrover_nb.widgets.live.live_charts.legend import Entry
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure
from dlrover_nb.widgets.live.live_charts.live_plot import LivePlot
from dlrover_nb.widgets.live.live_charts.sources import Source
from dlrover_nb.widgets.svg.marks import Points
from dlrover_nb.widgets.svg.palette import PURPLE, RED
from dlrover_nb.widgets.theme import HALF, WRAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.live.job_view_model import ViewState

FIRST = "throughput"
OF_THE_FIT = ("curve", "front")
FIT_EVERY = 5  # ticks
PLANS = "Plans"
PAGES = {
    PLANS: OF_THE_FIT,
    "Memory": ("memory",),
    "Nodes": ("workers", "breakdown", "stragglers"),
    "Rows": ("shards", "rounds"),
    "Scores": ("scores",),
}
ADDED = "More charts"  # the page of those that installed packages add
_REACH = {False: "Show all plans", True: "Show what is near"}


class ChartGrid:
    """The charts of one screen.

    Parameters
    ----------
    snapshot
        Any snapshot of the job, for the charts' axes.
    on_tap
        Called with the plan on the front that was tapped.
    on_change
        Called when another axis, or another range of plans, was chosen.
    """

    def __init__(
        self,
        snapshot: JobSnapshot,
        on_tap: Callable[[Candidate], None],
        on_change: Callable[[], None],
    ) -> None:
        self._on_tap, self._on_change = on_tap, on_change
        charts, times = all_charts(), kit.time_range()
        added = tuple(name for name in charts if name not in CHARTS)
        self.pages = PAGES | ({ADDED: added} if added else {})
        self.figures = {
            name: LiveFigure(charts[name], snapshot, self._tapped if name == "front" else None, times=times)
            for name in (FIRST, *chain(*self.pages.values()))
        }
        self._curve, self._front = self.figures["curve"], self.figures["front"]
        self._on_curve, self._on_front = Cross(self._curve), Cross(self._front, "what if")
        self.axis = select(
            "Axis of the fitted curve",
            {label: axis for axis, label in curve.AXIS_NAMES.items()},
            value="workers",
            width=220,
        )
        self.axis.param.watch(self._choose_axis, "value")
        self.reach = button(_REACH[False], width=150)
        self.reach.on_click(self._choose_reach)
        self._fit_key: tuple[object, ...] = ()
        self._n_tick = 0  # since the charts of the fit were drawn
        self._page = ""

    @property
    def first(self) -> object:
        """The chart below the sentence."""
        return pane(self.figures[FIRST].root)

    def parts(self) -> dict[str, tuple[object, ...]]:
        """Return the other charts, as the parts of pages."""
        return {name: self._parts(name) for name in self.pages}

    def _parts(self, page: str) -> tuple[object, ...]:
        drawn = tuple(pane(self.figures[name].root) for name in self.pages[page])
        if page != PLANS:
            return drawn
        fitted, pareto = drawn
        left = pn.Column(fitted, self.axis, sizing_mode="stretch_width", styles=HALF)
        right = pn.Column(pareto, self.reach, sizing_mode="stretch_width", styles=HALF)
        return (pn.Row(left, right, sizing_mode="stretch_width", styles=WRAP),)

    def prepare(self, state: ViewState) -> None:
        """Draw all charts once, before a page is sent.

        Their glyphs then are part of it: figures that get them one by one later take a browser seconds.
        """
        for figure in self.figures.values():
            figure.update(state.snapshot, state.series)

    def update(self, state: ViewState, page: str) -> None:
        """Update the first chart, and those of the page that is shown."""
        self.figures[FIRST].root.visible = not first_steps(state.snapshot)
        self._page = page
        is_due = self._is_fit_due(state.snapshot)
        for name in (FIRST, *self.pages.get(page, ())):
            if is_due or name not in OF_THE_FIT:
                self.figures[name].update(state.snapshot, state.series)
        for name in self.pages.get(page, ())[1:]:
            self.figures[name].root.visible = name in OF_THE_FIT or not self.figures[name].is_empty
        if is_due and page == PLANS:
            fitted = curve.columns(state.snapshot)
            is_part = front.columns(state.snapshot).beyond or any(each.beyond for each in fitted)
            self.reach.visible = self._curve.shows_all or bool(is_part)

    def _is_fit_due(self, snapshot: JobSnapshot) -> bool:
        """Whether to draw the curve and the front: first shown, changed, or due."""
        key = (*fit_key(snapshot), self._curve.chosen, self._curve.shows_all, self._page)
        self._n_tick += 1
        if key == self._fit_key and self._n_tick < FIT_EVERY:
            return False
        self._fit_key, self._n_tick = key, 0
        return True

    def mark(self, candidate: Candidate | None) -> None:
        """Mark a plan on the front and on the curve, if they are shown; None: its prediction is unknown."""
        if self._page != PLANS:
            return
        if candidate is None:
            self._on_front.hide()
            self._on_curve.hide()
            return
        self._on_front.show(candidate.cost, candidate.prediction)
        at = value(candidate.plan, Axis(self._curve.chosen))
        self._on_curve.show(at, candidate.prediction.without_host)  # as the curve

    def _tapped(self, value: object) -> None:
        if isinstance(value, Candidate):
            self._on_tap(value)

    def _choose_axis(self, event: object) -> None:  # noqa: ARG002 - param's signature
        self._curve.chosen = self.axis.value
        self._on_change()

    def _choose_reach(self, event: object) -> None:  # noqa: ARG002 - param's signature
        shows_all = not self._curve.shows_all
        self._curve.shows_all = self._front.shows_all = shows_all
        self.reach.label = _REACH[shows_all]
        self._on_change()


def fit_key(snapshot: JobSnapshot) -> tuple[object, ...]:
    """Return the state whose changes the curve and the front show at once."""
    opened, fit, front = snapshot.open_proposal, snapshot.fit, snapshot.front
    return (
        snapshot.phase,
        snapshot.target,
        opened.id if opened else "",
        len(snapshot.decisions),
        snapshot.pins,
        fit.n_plan if fit else 0,
        len(front.candidates) if front else 0,
    )


class Cross:
    """A cross with its band on a chart whose y is throughput; `label` names it in the legend."""

    def __init__(self, figure: LiveFigure, label: str = "") -> None:
        plot = figure.panels[0]
        assert isinstance(plot, LivePlot)
        self._plot, self._label = plot, label
        self._at = Source(x=[], y=[], low=[], high=[], color=[])
        look = {"source": self._at.model, "line_color": "color", "line_width": 3}
        plot.root.segment(
            "x", "low", "x", "high", **look, line_alpha=0.5
        )  # an overlay is not cut at the edge
        plot.root.scatter("x", "y", marker="x", size=15, **look, level="overlay")

    def hide(self) -> None:
        """Hide it."""
        self._show()

    def show(self, x: float, prediction: Prediction) -> None:
        """Place it at a prediction."""
        self._show((x, prediction))

    def _show(self, *at: tuple[float, Prediction]) -> None:
        colors = [RED if p.extrapolates else PURPLE for _, p in at]
        xs, ys = [x for x, _ in at], [p.samples_per_s for _, p in at]
        low, high = [p.low for _, p in at], [p.high for _, p in at]
        self._plot.reach(Points(xs, ys, low=low, high=high))
        self._at.show({"x": xs, "y": ys, "low": low, "high": high, "color": colors})
        if self._label:
            self._plot.legend.show_also(Entry(self._label, "x", color) for color in colors)
