"""One drawing of a job with Panel: the sentence, its buttons, one chart, what is always asked, and pages.

The first screen is for deciding: all else stands on pages that one opens (`tab_bar`), "Why?" first, and is
neither fetched nor drawn before. Its parts are in `chart_grid`, `whatif_sliders` and `decision_buttons`;
`render_target` sends changes to the browser.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import panel as pn

from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, table_html
from dlrover_nb.widgets.charts import CHARTS, PLANS, STALENESS
from dlrover_nb.widgets.jobs.again import GO_ON, RUN_AGAIN, again_blocks, goes_on
from dlrover_nb.widgets.jobs.always_asked import always_asked_html
from dlrover_nb.widgets.jobs.headline import OTHER_LABEL, headline, missed, old_picture
from dlrover_nb.widgets.jobs.logs import logs_view
from dlrover_nb.widgets.jobs.review_card import (
    PendingAction,
    Press,
    card_html,
    header_html,
    nameless,
    read_press,
    review,
    too_early,
)
from dlrover_nb.widgets.jobs.staleness_view import no_ages_blocks
from dlrover_nb.widgets.jobs.status import nodes_blocks
from dlrover_nb.widgets.jobs.why import why_view
from dlrover_nb.widgets.live.browser.render_target import RenderTarget
from dlrover_nb.widgets.live.chart_grid import ChartGrid
from dlrover_nb.widgets.live.controls.action_card import ActionCard
from dlrover_nb.widgets.live.controls.decision_buttons import DecisionButtons
from dlrover_nb.widgets.live.controls.elements import button, pane, press_field, sends, sends_choice, text
from dlrover_nb.widgets.live.controls.on_request import OnRequest
from dlrover_nb.widgets.live.controls.tab_bar import TabBar
from dlrover_nb.widgets.live.controls.whatif_sliders import Sliders
from dlrover_nb.widgets.theme import PAGE, UNSEEN, WRAP

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import RLock

    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.widgets.jobs.review_card import Review
    from dlrover_nb.widgets.live.job_view_model import JobViewModel, ViewState

WHY, NODES, LOGS, NUMBERS, AGAIN = "Why?", "Nodes", "Logs", "Numbers", "Run again"  # pages
N_LOG_LINE = 100
LOGS_EVERY_S = 5.0  # while their page is shown


class Screen:
    """One layout drawn from a view model.

    Parameters
    ----------
    view_model
        View model: source of snapshots and receiver of actions.
    on_close
        Called when the page or the cell that shows this screen is gone.
    on_connect
        Called when a notebook's page has rendered the view.
    lock
        Held while the screen is drawn; of its render target, or its own.
    can_act
        Whether it has the controls that send a command, and the field that tells of a press: what is not
        there can neither be pressed nor set by a message.
    is_part
        Whether the page around it says the job's sentence; that the picture is old is said here all the same.
    """

    def __init__(
        self,
        view_model: JobViewModel,
        on_close: Callable[[Screen], None],
        on_connect: Callable[[], None] = lambda: None,
        *,
        lock: RLock | None = None,
        can_act: bool = True,
        is_part: bool = False,
    ) -> None:
        self._view_model, self._can_act, self._is_part = view_model, can_act, is_part
        lock = lock or threading.RLock()
        self.chart_grid = ChartGrid(view_model.state().snapshot, self._tapped, self.flush)
        self.sliders = Sliders(view_model, lock, self.flush, can_act=can_act)
        self.buttons, self.action = DecisionButtons(), ActionCard(can_act=can_act)
        self._make_texts()
        self.tabs = self._make_pages()
        if can_act:
            self._bind_presses()
        self.stage = RenderTarget(
            self._arrange(),
            lambda: self._show(view_model.state()),
            lock=lock,
            on_close=lambda: on_close(self),
            on_connect=on_connect,
            rests=lambda: view_model.state().snapshot.phase.is_final,
        )
        self.stage.add = lambda: self._open_page(view_model.state())
        self.layout = self.stage.layout
        self._show(view_model.state())

    # parts

    def _make_texts(self) -> None:
        self._header, self._lead, self._facts = text(), text(), text()
        self._card, self._why, self._nodes, self._no_ages, self._logs = (text() for _ in range(5))
        self._message = text(html_attributes={"role": "status", "aria-live": "polite"})  # for screen readers
        self._want_other = button(OTHER_LABEL, width=150)
        self._want_other.on_click(self._toggle_other)
        self._want_why = button(WHY, width=90, visible=False)
        self._want_why.on_click(lambda _: self.tabs.choose(WHY))
        self._want_logs = button(LOGS, width=90, visible=False)
        self._want_logs.on_click(lambda _: self.tabs.choose(LOGS))
        self._tables, self._again = text(), text()
        self._want_again = button(RUN_AGAIN, width=130, visible=False)
        self._want_again.on_click(lambda _: self.tabs.choose(AGAIN))
        self._explanation = OnRequest(self._explain, self.flush)
        self._log_lines = OnRequest(self._read_logs, self.flush)

    def _make_pages(self) -> TabBar:
        """Return the bar of pages, in the order of what is asked."""
        names = (WHY, *self.chart_grid.pages, LOGS, NUMBERS, AGAIN)
        self._texts = {
            WHY: (self._card, self._why),
            NODES: (self._nodes,),
            STALENESS: (self._no_ages,),
            LOGS: (self._logs,),
            NUMBERS: (self._tables,),
            AGAIN: (self._again,),
        }
        return TabBar(names, self.flush)

    def _open_page(self, state: ViewState) -> None:
        """Add the parts of a page that is shown for the first time."""
        if not (name := self.tabs.to_open):
            return
        charts = self.chart_grid.open(name, state) if name in self.chart_grid.pages else ()
        with self.stage.changed(self.tabs.page(name)):
            self.tabs.open(name, (*map(pane, self._texts.get(name, ())), *charts))

    def _bind_presses(self) -> None:
        self._press = press_field(self._pressed)
        answers = (*self.buttons.presses, self.action.accept, self.action.reject)
        for pressed in (*answers, self.sliders.send):
            sends(pressed, self._press)
        sends_choice(self.buttons.mode, "mode", self._press)

    def _arrange(self) -> pn.Column:
        acts = (self.buttons.first, self.buttons.last) if self._can_act else ((), ())
        undo = [pn.pane.Bokeh(self.buttons.undo_below)] if self._can_act else []
        choices, press = ([self.buttons.choices], [pane(self._press)]) if self._can_act else ([], [])
        self._other = pn.Column(*choices, self.sliders.layout, sizing_mode="stretch_width", visible=False)
        wants = (self._want_why, self._want_again, self._want_logs)
        row = (*map(pn.pane.Bokeh, acts[0]), self._want_other, *map(pn.pane.Bokeh, acts[1]), *wants)
        return pn.Column(
            pane(self._header),
            pane(self._lead),
            pn.Row(*row, sizing_mode="stretch_width", styles=WRAP),
            pane(self._message),
            self._other,
            self.action.layout,
            self.chart_grid.first,
            pn.Row(pane(self._facts), *undo, sizing_mode="stretch_width", styles=WRAP),
            self.tabs.layout,
            *press,
            styles=PAGE,
            sizing_mode="stretch_width",
            max_width=1200,
        )

    # what the user does

    def _toggle_other(self, event: object) -> None:  # noqa: ARG002 - param's signature
        self._show_other(not self._other.visible)
        self.flush()

    def _show_other(self, is_shown: bool) -> None:  # noqa: FBT001 - its one meaning is its name
        self._other.visible = is_shown
        self._want_other.label = "Close" if is_shown else OTHER_LABEL
        if is_shown and not self.tabs.chosen:
            self.tabs.choose(PLANS)  # the sliders' cross stands there

    def _explain(self) -> str:
        snapshot = self._view_model.state().snapshot
        opened = snapshot.open_proposal
        return why_view(self._view_model.explain(opened.id if opened else None), snapshot).html()

    def _read_logs(self) -> str:
        return logs_view(self._view_model.name, self._view_model.logs(N_LOG_LINE)).html()

    def _tapped(self, candidate: Candidate) -> None:
        self._show_other(True)
        self.sliders.choose(candidate.plan)

    def _pressed(self, label: str, shown_s: float, version: str) -> None:
        """Handle a press: the browser sent the label that the user saw, which names its object."""
        press, why = read_press(label), self.buttons.reason
        if refusal := too_early(label, shown_s) or nameless(press, version):
            self._view_model.refuse(_request(press), refusal)
            return
        match press.verb:
            case Verdict.MODE:
                self._view_model.set_mode(Mode(press.plan), why, version=version)
            case Verdict.OVERRIDE | Verdict.SCALE:
                self._send_plan(press, why, version)
            case _:
                self._view_model.press(press, why)

    def _send_plan(self, press: Press, why: str, version: str) -> None:
        plan = self.sliders.plan
        if not self.sliders.is_about(press.plan):
            moved = "the sliders have moved since; check the plan on the button and press it again"
            self._view_model.refuse(_request(press), moved)
        elif press.verb == Verdict.OVERRIDE:
            self._view_model.override(press.subject, plan, why)
        else:
            self._view_model.scale(plan, why, version=version)

    # drawing

    def flush(self) -> None:
        """Show the newest snapshot; from any thread."""
        self.stage.flush()

    def _show(self, state: ViewState) -> None:
        card = review(state.snapshot, state.request, state.link)
        self._header.text = header_html(state.snapshot, state.link)
        is_old = bool(state.link.badge) and not state.snapshot.phase.is_final
        self._lead.text = block_html(old_picture(state.link.age_s) if is_old else headline(state.snapshot))
        self._lead.visible = is_old or not self._is_part
        is_news = state.request is not None or is_old  # else the sentence says it, and only readers hear it
        message = block_html(Paragraph(card.message, Tone.NEWS))
        self._message.text = message if is_news else f'<div style="{UNSEEN}">{message}</div>'
        self._facts.text = always_asked_html(state.snapshot)
        if self._can_act:
            self._press.tags = [state.snapshot.version]
        self.buttons.show(state, card)
        self._want_other.visible = not state.snapshot.phase.is_final
        self._want_why.visible = missed(state.snapshot)
        self._want_logs.visible = state.snapshot.phase is JobPhase.FAILED
        self._want_again.visible = state.snapshot.phase.is_final
        self._want_again.label = GO_ON if goes_on(state.snapshot) else RUN_AGAIN
        self.action.show(state, card)
        is_own = state.request is not None and state.request.verdict in {Verdict.OVERRIDE, Verdict.SCALE}
        self.sliders.show(state, can_send=card.can_act, answer=card.message if is_own else "")
        self.tabs.show()
        self.chart_grid.update(state, self.tabs.chosen)
        self.chart_grid.mark(self.sliders.shown.candidate)
        self._show_page(state, card)

    def _show_page(self, state: ViewState, card: Review) -> None:
        """Draw the texts of the page that is shown."""
        snapshot, page = state.snapshot, self.tabs.chosen
        if page == WHY:
            opened = snapshot.open_proposal
            about = (opened.id if opened else "", snapshot.version, snapshot.phase)
            self._card.text = card_html(card, snapshot)
            self._why.text = self._explanation.html(about, snapshot.at_s)
        elif page == NODES:
            self._nodes.text = "".join(map(block_html, nodes_blocks(snapshot)))
        elif page == STALENESS:
            self._no_ages.text = "".join(map(block_html, no_ages_blocks(snapshot, state.series)))
        elif page == LOGS:
            self._logs.text = self._log_lines.html(snapshot.at_s // LOGS_EVERY_S, snapshot.at_s)
        elif page == NUMBERS:
            self._tables.text = tables_html(state)
        elif page == AGAIN:
            self._again.text = "".join(map(block_html, again_blocks(snapshot)))


def _request(press: Press) -> PendingAction:
    """Return a press as a request that is not sent."""
    joined = f"to {press.plan}" if press.verb == Verdict.SCALE else f"with {press.plan}"
    aim = " ".join(filter(None, (press.verb, press.subject, joined if press.plan else "")))
    verdict = Verdict(press.verb) if press.verb in [*Verdict] else None
    return PendingAction(verdict, press.subject if verdict else "", aim=aim)


def tables_html(state: ViewState) -> str:
    """Return the tables of all charts."""
    return "".join(table_html(c.data_table(state.snapshot, state.series)) for c in CHARTS.values())
