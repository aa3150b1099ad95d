"""The charts of one live screen: throughput on the first screen, the others on pages that one chooses.

The figures of a page are made when it is opened for the first time, and updated while it is shown: each
figure that a screen holds, shown or not, makes every press in JupyterLab slower (four more: three times). All
charts over time share one range of time, whenever they are made: who zooms into one sees the same minutes in
the others. The curve and the front depend on the fit, which changes a little with each window: they are
redrawn every few ticks, and at once after a proposal, a decision or a change. They begin at what was tried
and its neighborhood; a button shows all plans. A cross marks the plan of the what-if sliders on both, red
where it is extrapolated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn

from dlrover_nb.core.client.until import first_steps
from dlrover_nb.core.structs.decisions.candidates import Candidate
from dlrover_nb.widgets.charts import CHARTS, PAGES, PLANS, STALENESS, all_charts, curve, front
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
OF_THE_FIT = PAGES[PLANS]
FIT_EVERY = 5  # ticks
ADDED = "More charts"  # the page of those that installed packages add
_REACH = {False: "Show all plans", True: "Show what is near"}


class ChartGrid:
    """The charts of one screen.

    Parameters
    ----------
    snapshot
        Any snapshot of the job, for the axes of the first chart.
    on_tap
        Called with the plan on the front that was tapped.
    on_change
        Called when another axis, or another range of plans, was chosen.

    Attributes
    ----------
    pages
        The names of the charts of each page.
    figures
        The charts that have been shown, by name.
    """

    def __init__(
        self,
        snapshot: JobSnapshot,
        on_tap: Callable[[Candidate], None],
        on_change: Callable[[], None],
    ) -> None:
        self._on_tap, self._on_change = on_tap, on_change
        self._charts, self._times = all_charts(), kit.time_range()
        added = tuple(name for name in self._charts if name not in CHARTS)
        self.pages = PAGES | ({ADDED: added} if added else {})
        self.figures: dict[str, LiveFigure] = {}
        self._make(FIRST, snapshot)
        self._crosses: dict[str, Cross] = {}  # on the curve and on the front, once their page was opened
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

    def _make(self, name: str, snapshot: JobSnapshot) -> LiveFigure:
        on_tap = self._tapped if name == "front" else None
        self.figures[name] = LiveFigure(self._charts[name], snapshot, on_tap, times=self._times)
        return self.figures[name]

    @property
    def first(self) -> object:
        """The chart below the sentence."""
        return pane(self.figures[FIRST].root)

    def open(self, page: str, state: ViewState) -> tuple[object, ...]:
        """Make the charts of a page, and return them as its parts.

        They are drawn before they are sent: a browser takes seconds for glyphs that come one by one.
        """
        for name in self.pages[page]:
            self._make(name, state.snapshot).update(state.snapshot, state.series)
        self._hide_empty(page)
        drawn = tuple(pane(self.figures[name].root) for name in self.pages[page])
        if page != PLANS:
            return drawn
        self._is_fit_due(state.snapshot)  # it was just drawn
        self._offer_reach(state.snapshot)
        labels = {"curve": "", "front": "what if"}
        self._crosses = {name: Cross(self.figures[name], label) for name, label in labels.items()}
        fitted, pareto = drawn
        left = pn.Column(fitted, self.axis, sizing_mode="stretch_width", styles=HALF)
        right = pn.Column(pareto, self.reach, sizing_mode="stretch_width", styles=HALF)
        return (pn.Row(left, right, sizing_mode="stretch_width", styles=WRAP),)

    def update(self, state: ViewState, page: str) -> None:
        """Update the first chart, and those of the page that is shown, once it was opened."""
        self.figures[FIRST].root.visible = not first_steps(state.snapshot)
        self._page = page
        shown = [name for name in self.pages.get(page, ()) if name in self.figures]
        if page != PLANS or not shown:
            self._fit_key = ()  # to be drawn when it is shown again
        is_due = page == PLANS and bool(shown) and self._is_fit_due(state.snapshot)
        for name in (FIRST, *shown):
            if is_due or name not in OF_THE_FIT:
                self.figures[name].update(state.snapshot, state.series)
        if shown:
            self._hide_empty(page)
        if is_due:
            self._offer_reach(state.snapshot)

    def _hide_empty(self, page: str) -> None:
        """Hide charts without data, but the first of a page, which says why; on that of ages a line does."""
        for name in self.pages[page][page != STALENESS :]:
            self.figures[name].root.visible = name in OF_THE_FIT or not self.figures[name].is_empty

    def _offer_reach(self, snapshot: JobSnapshot) -> None:
        fitted = curve.columns(snapshot)
        is_part = front.columns(snapshot).beyond or any(each.beyond for each in fitted)
        self.reach.visible = self.figures["curve"].shows_all or bool(is_part)

    def _is_fit_due(self, snapshot: JobSnapshot) -> bool:
        """Whether to draw the curve and the front: shown again, changed, or due."""
        fitted = self.figures["curve"]
        key = (*fit_key(snapshot), fitted.chosen, fitted.shows_all)
        self._n_tick += 1
        if key == self._fit_key and self._n_tick < FIT_EVERY:
            return False
        self._fit_key, self._n_tick = key, 0
        return True

    def mark(self, candidate: Candidate | None) -> None:
        """Mark a plan on the front and on the curve, if they are shown; None: its prediction is unknown."""
        if self._page != PLANS or not self._crosses:
            return
        if candidate is None:
            for cross in self._crosses.values():
                cross.hide()
            return
        self._crosses["front"].show(candidate.cost, candidate.prediction)
        at = value(candidate.plan, Axis(self.figures["curve"].chosen))
        self._crosses["curve"].show(at, candidate.prediction.without_host)  # as the curve

    def _tapped(self, value: object) -> None:
        if isinstance(value, Candidate):
            self._on_tap(value)

    def _choose_axis(self, event: object) -> None:  # noqa: ARG002 - param's signature
        self.figures["curve"].chosen = self.axis.value
        self._on_change()

    def _choose_reach(self, event: object) -> None:  # noqa: ARG002 - param's signature
        shows_all = not self.figures["curve"].shows_all
        for name in OF_THE_FIT:
            self.figures[name].shows_all = shows_all
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
