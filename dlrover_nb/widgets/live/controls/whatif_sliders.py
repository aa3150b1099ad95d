"""The what-if sliders of one screen: they set a plan, show its effect, and one button requests it.

The effect is queried from the master off the front end's thread, the newest query first; so the sliders work
while a cell is busy, and a slow master does not freeze them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.jobs.review_card import Answer, meaning
from dlrover_nb.widgets.jobs.whatif import (
    Axis,
    Consequence,
    Ladder,
    button_label,
    changed,
    consequence_html,
    ladders,
    nothing_to_send,
    plan_words,
    rest,
)
from dlrover_nb.widgets.live.controls.elements import button, pane, press_button, relabel, text
from dlrover_nb.widgets.live.controls.latest_only import LatestOnly
from dlrover_nb.widgets.live.controls.slider import Slider
from dlrover_nb.widgets.theme import ANY, HALF

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from threading import RLock
    from typing import Any

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.jobs.review_card import PendingAction
    from dlrover_nb.widgets.live.job_view_model import JobViewModel, ViewState

_HINT = (
    "Move a slider to see what another plan would bring, or tap a plan on the front. "
    "The cross on the curve and on the front is this plan."
)


class Sliders:
    """Sliders, predicted effect and buttons.

    Parameters
    ----------
    view_model
        View model that queries the master.
    lock
        Held while the screen is drawn; a user's move waits for it.
    on_change
        Called, from any thread, when there is something new to draw.
    can_act
        Whether there is the button that requests the plan.
    """

    def __init__(
        self, view_model: JobViewModel, lock: RLock, on_change: Callable[[], None], *, can_act: bool = True
    ) -> None:
        self._can_act = can_act
        self._view_model, self._lock, self._on_change = view_model, lock, on_change
        self._latest = LatestOnly(self._weigh)
        self._chosen: ResourcePlan | None = None  # None: the user has moved no slider
        self._request_before: PendingAction | None = (
            None  # the newest request when the user moved a slider last
        )
        self._is_drawing = False
        self._question: Hashable = None
        self._asked_at_s, self._is_unanswered = 0.0, False
        snapshot = view_model.state().snapshot
        self._consequence = Consequence(rest(snapshot))
        self.shown = self._consequence  # what is drawn, as text and as cross
        self._ladders: dict[Axis, Ladder] = {}
        self.knobs = {
            axis: Slider(sizing_mode="stretch_width", margin=(2, 10), min_width=120) for axis in Axis
        }
        for axis, knob in self.knobs.items():
            knob.param.watch(lambda event, axis=axis: self._moved(axis, event.new), "at")
        self.send = press_button("Override", "primary", sizing_mode="stretch_width")
        self.back = button("Back to the proposal", width=170)
        self.back.on_click(self._go_back)
        self._words, self._answer = text(), text()

    @property
    def layout(self) -> Any:  # noqa: ANN401 - panel has no types
        """The sliders in two columns, the predicted effect, the buttons."""
        workers, ps = ([k for a, k in self.knobs.items() if a.role == role] for role in ("worker", "ps"))
        return pn.Column(
            pane(text(text=f'<h3 style="margin:0;font-size:15px">What if</h3>{_HINT}')),
            pn.Row(
                pn.Column(*workers, sizing_mode="stretch_width", styles=ANY),
                pn.Column(*ps, sizing_mode="stretch_width", styles=ANY),
                sizing_mode="stretch_width",
                styles=ANY,
            ),
            pane(self._words),
            *((pane(self.send), pane(self._answer)) if self._can_act else ()),
            self.back,
            sizing_mode="stretch_width",
            styles=HALF,
        )

    @property
    def plan(self) -> ResourcePlan:
        """The plan set on the sliders."""
        return self._chosen or rest(self._view_model.state().snapshot)

    def is_about(self, words: str) -> bool:
        """Whether a button label with this plan text means the plan of the sliders."""
        return words == plan_words(self.plan, self._view_model.state().snapshot.target)

    def choose(self, plan: ResourcePlan) -> None:
        """Set the sliders to a plan, as a user's move would."""
        with self._lock:
            self._choose(plan)
        self._on_change()

    def _moved(self, axis: Axis, at: int) -> None:
        """Take a user's move, and not what drawing sets.

        While a slider is drawn in one thread, param dispatches a move that another thread receives in the
        drawing thread too: it is known by its value alone.
        """
        with self._lock:
            if self._is_drawing and at == self._ladders[axis].at:
                return
            self._choose(changed(self.plan, axis, self._ladders[axis].values[at]))
        self._on_change()

    def _choose(self, plan: ResourcePlan) -> None:
        self._chosen, self._request_before = plan, self._view_model.state().request

    def _go_back(self, event: object) -> None:  # noqa: ARG002 - param's signature
        with self._lock:
            self._chosen = None
        self._on_change()

    # asking

    def _weigh(self, plan: ResourcePlan) -> None:
        try:
            self._consequence = Consequence(plan, self._view_model.weigh(plan))
        except DlroverError as error:
            self._consequence = Consequence(plan, error=str(error).splitlines()[0])
            self._is_unanswered = True
        self._on_change()

    def _ask(self, snapshot: JobSnapshot) -> None:
        """Query the plan unless it was queried in the same state of the job.

        A failed query is repeated with the next snapshot only, as the answer itself triggers a redraw.
        """
        question = (self.plan, _state(snapshot))
        again = self._is_unanswered and snapshot.at_s != self._asked_at_s
        if (again or question != self._question) and not snapshot.phase.is_final:
            self._question, self._asked_at_s, self._is_unanswered = question, snapshot.at_s, False
            self._latest.ask(self.plan)

    @property
    def consequence(self) -> Consequence:
        """What is known of the plan of the sliders."""
        consequence = self._consequence  # read once: a thread replaces it
        return consequence if consequence.plan == self.plan else Consequence(self.plan)

    # drawing

    def show(self, state: ViewState, *, can_send: bool, answer: str = "") -> None:
        """Draw the sliders on their ladders, the known effect of their plan, and the answer to a press."""
        snapshot = state.snapshot
        self._let_go(state)
        self._ask(snapshot)
        self._is_drawing = True
        try:
            self._draw_knobs(snapshot)
        finally:
            self._is_drawing = False
        ended = snapshot.phase.is_final
        self.shown = consequence = self.consequence
        self._words.text = "" if ended else consequence_html(consequence, snapshot)
        nothing, label = nothing_to_send(snapshot, self.plan), button_label(snapshot, self.plan)
        relabel(self.send, nothing or label, meaning(label))
        self.send.disabled = not can_send or not consequence.is_possible or bool(nothing)
        self._answer.text = escape(answer)
        self.back.label = "Back to the proposal" if snapshot.open_proposal else "Back to the plan now"
        self.back.disabled = self._chosen is None

    def _let_go(self, state: ViewState) -> None:
        """Follow the job again once it has reached the plan that was requested here.

        A request older than the last move is none of these sliders': they may pass over its plan.
        """
        request = None if state.request is self._request_before else state.request
        decided = (
            request.decision.plan if request and request.answer is Answer.TAKEN and request.decision else None
        )
        if decided is not None and decided == self._chosen == state.snapshot.target:
            self._chosen = None

    def _draw_knobs(self, snapshot: JobSnapshot) -> None:
        for ladder in ladders(snapshot, self.plan):
            self._ladders[ladder.axis] = ladder
            knob, is_fixed = self.knobs[ladder.axis], ladder.is_fixed or snapshot.phase.is_final
            to = {"label": ladder.title, "choices": [*ladder.words], "at": ladder.at, "fixed": is_fixed}
            new = {name: value for name, value in to.items() if value != getattr(knob, name)}
            if new:  # a move that comes while a slider is set to what it shows would be lost
                knob.param.update(**new)


def _state(snapshot: JobSnapshot) -> Hashable:
    """Return what an answer depends on besides the plan."""
    statuses = tuple((p.id, p.status) for p in snapshot.proposals)
    return (snapshot.target, snapshot.running, snapshot.pins, snapshot.phase, snapshot.fit, statuses)
