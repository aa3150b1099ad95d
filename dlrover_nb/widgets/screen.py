"""One drawing of a job with Panel: the charts, the review card and its buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import Div, NumericInput

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions import Verdict
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, table_html
from dlrover_nb.widgets.charts import CHARTS, curve, front
from dlrover_nb.widgets.review import card_html, header_html, review
from dlrover_nb.widgets.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dlrover_nb.core.structs.decisions import Candidate
    from dlrover_nb.widgets.feed import Feed, Picture

_WHITE = {"background": "#ffffff", "color": "#1a1a1a", "padding": "10px", "font-size": "13px"}
_LABELS = {
    Verdict.ACCEPT: "Accept {}",
    Verdict.REJECT: "Reject {}",
    Verdict.OVERRIDE: "Override {} with this plan",
}
_TABLES = {False: "Show the charts' numbers as tables", True: "Hide the tables"}
# The press carries what the browser showed: between a change here and its arrival there, a press means the
# proposal that was still on the button, and the master refuses it as stale instead of taking it for another.
_PRESS = "press.value = '%s ' + button.label.split(' ')[1] + ' ' + Date.now()"
_TAP_HINT = "Tap a plan on the front to look at it; its numbers go into the fields of Override."


class Screen:
    """One layout drawn from a feed.

    Parameters
    ----------
    feed
        Where pictures come from and actions go to.
    on_close
        Told when the served page that shows this screen is gone.
    on_connect
        Told when a notebook's page has taken the view in.
    """

    def __init__(
        self,
        feed: Feed,
        on_close: Callable[[Screen], None],
        on_connect: Callable[[], None] = lambda: None,
    ) -> None:
        self._feed = feed
        self._make_charts()
        self._make_controls()
        self.stage = Stage(
            self._arrange(),
            lambda: self._show(feed.picture()),
            on_close=lambda: on_close(self),
            on_connect=on_connect,
        )
        self.layout, self.flush = self.stage.layout, self.stage.flush
        self._show(feed.picture())

    # parts

    def _make_charts(self) -> None:
        self._curve = curve.Figure()
        self._front = front.Figure(self._inspect)
        self._figures = (CHARTS["throughput"].figure(), CHARTS["memory"].figure(), self._curve, self._front)
        self._axis = pn.widgets.Select(
            label="Axis of the fitted curve",
            options={label: axis for axis, label in curve.AXIS_NAMES.items()},
            value="workers",
            width=220,
        )
        self._axis.param.watch(self._choose_axis, "value")

    def _make_controls(self) -> None:
        self._header, self._card, self._tables = _text(), _text(min_width=320), _text()
        self._message = _text(html_attributes={"role": "status", "aria-live": "polite"})  # read out
        self._tapped = _text(text=block_html(Paragraph(_TAP_HINT)))
        self._table_shown = False
        self._want_tables = pn.widgets.Button(label=_TABLES[False], color="default", width=280)
        self._want_tables.on_click(self._toggle_tables)
        self._why = pn.widgets.TextInput(label="Reason (kept with the decision)", sizing_mode="stretch_width")
        self._accept = pn.widgets.Button(label="Accept", color="success", width=110)
        self._reject = pn.widgets.Button(label="Reject", color="default", width=110)
        self._override = pn.widgets.Button(label="Override with this plan", color="primary", width=190)
        self._press = pn.widgets.TextInput(label="pressed", visible=False)
        self._press.param.watch(self._pressed, "value")
        for verdict, button in self._buttons().items():
            button.js_on_click(args={"button": button, "press": self._press}, code=_PRESS % verdict)
        snapshot = self._feed.picture().snapshot
        plan = snapshot.open_proposal.candidate.plan if snapshot.open_proposal else snapshot.target
        self._n_worker = _number("Workers", plan.worker.count, "int")
        self._n_ps = _number("PS", plan.ps.count, "int")
        self._worker_cpu = _number("Cores per worker", plan.worker.cpu, "float")
        self._ps_cpu = _number("Cores per PS", plan.ps.cpu, "float")

    def _buttons(self) -> dict[Verdict, pn.widgets.Button]:
        return {
            Verdict.ACCEPT: self._accept,
            Verdict.REJECT: self._reject,
            Verdict.OVERRIDE: self._override,
        }

    def _arrange(self) -> pn.Column:
        throughput, memory, fitted, pareto = (_pane(figure.root) for figure in self._figures)
        controls = pn.Column(
            self._why,
            pn.Row(self._accept, self._reject),
            pn.Row(pn.pane.Bokeh(self._n_worker), pn.pane.Bokeh(self._n_ps)),
            pn.Row(pn.pane.Bokeh(self._worker_cpu), pn.pane.Bokeh(self._ps_cpu)),
            self._override,
            self._press,
            _pane(self._tapped),
            width=340,
        )
        return pn.Column(
            _pane(self._header),
            _pane(self._message),
            pn.Row(throughput, memory, sizing_mode="stretch_width"),
            pn.Row(
                pn.Column(fitted, self._axis, sizing_mode="stretch_width"),
                pareto,
                sizing_mode="stretch_width",
            ),
            pn.Row(_pane(self._card), controls, sizing_mode="stretch_width"),
            self._want_tables,
            _pane(self._tables),
            styles=_WHITE,
            sizing_mode="stretch_width",
            max_width=1200,
        )

    # what the user does

    def _choose_axis(self, event: object) -> None:  # noqa: ARG002 - param's signature
        self._curve.axis = self._axis.value
        self.flush()

    def _toggle_tables(self, event: object) -> None:  # noqa: ARG002 - param's signature
        self._table_shown = not self._table_shown
        self._want_tables.label = _TABLES[self._table_shown]
        self.flush()

    def _inspect(self, candidate: Candidate) -> None:
        plan = candidate.plan
        with self.stage.lock:
            self._n_worker.value, self._n_ps.value = plan.worker.count, plan.ps.count
            self._worker_cpu.value, self._ps_cpu.value = plan.worker.cpu, plan.ps.cpu
            self._tapped.text = front.inspect_html(candidate, self._feed.picture().snapshot)
            self.stage.push()

    def _pressed(self, event: Any) -> None:  # noqa: ANN401 - param's event
        """Act on a press: the browser sent the label that the user saw, with the proposal's id in it."""
        verdict, proposal, _once = event.new.split(" ")
        match Verdict(verdict):
            case Verdict.ACCEPT:
                self._feed.accept(proposal, self._why.value)
            case Verdict.REJECT:
                self._feed.reject(proposal, self._why.value)
            case _:
                self._send_override(proposal)

    def _send_override(self, proposal: str) -> None:
        try:
            plan = self._typed_plan()
        except DlroverError as error:
            self._feed.refuse(Verdict.OVERRIDE, proposal, str(error))
        else:
            self._feed.override(proposal, plan, self._why.value)

    def _typed_plan(self) -> ResourcePlan:
        """Return the plan in the fields; memory per node stays as it is."""
        now = self._feed.picture().snapshot.target
        return ResourcePlan(
            RolePlan(self._n_worker.value or 0, self._worker_cpu.value or 0.0, now.worker.memory_mib),
            RolePlan(self._n_ps.value or 0, self._ps_cpu.value or 0.0, now.ps.memory_mib),
        )

    # drawing

    def _show(self, picture: Picture) -> None:
        card = review(picture.snapshot, picture.asked, picture.link)
        self._header.text = header_html(picture.snapshot, picture.link)
        self._message.text = block_html(Paragraph(card.message, Tone.NEWS))
        self._card.text = card_html(card, picture.snapshot)
        opened = card.proposal.id if card.proposal and card.can_decide else ""
        for verdict, button in self._buttons().items():
            button.label = _LABELS[verdict].format(opened).replace("  ", " ").strip()
            button.disabled = not card.can_decide
        for figure in self._figures:
            figure.update(picture.snapshot, picture.series)
        self._tables.text = tables_html(picture) if self._table_shown else ""


def _text(**options: object) -> Div:
    """Return text that changes: a Bokeh model, because Panel's panes send their style sheets each time."""
    return Div(**{"text": "", "sizing_mode": "stretch_width", "disable_math": True, **options})


def _number(title: str, value: float, mode: str) -> NumericInput:
    """Return a named field for a number; Bokeh's own: a spinner's arrows are buttons without a name."""
    return NumericInput(title=title, value=value, mode=mode, width=140)


def _pane(model: object) -> pn.pane.Bokeh:
    return pn.pane.Bokeh(model, sizing_mode="stretch_width")


def tables_html(picture: Picture) -> str:
    """Return the table twins of all charts."""
    pictures = (chart.picture(picture.snapshot, picture.series) for chart in CHARTS.values())
    return "".join(table_html(p.twin) for p in pictures)
