"""The card of a live view about an action against a straggler: its reason and effect, and two buttons.

It stands below the card of the proposal and has buttons of its own, since a proposal and an action may wait
at the same time: one pair of buttons for both would change its meaning under the user's hand. Without an
action it takes no room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn

from dlrover_nb.widgets import mitigations
from dlrover_nb.widgets.blocks import Facts, block_html, escape
from dlrover_nb.widgets.jobs.review_card import meaning
from dlrover_nb.widgets.live.controls.elements import pane, press_button, relabel, text
from dlrover_nb.widgets.theme import WRAP

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.core.structs.decisions.decisions import Mitigation
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.jobs.review_card import PendingAction, Review
    from dlrover_nb.widgets.live.job_view_model import ViewState


class ActionCard:
    """Content and buttons of one screen.

    Parameters
    ----------
    can_act
        Whether there are the buttons.
    """

    def __init__(self, *, can_act: bool = True) -> None:
        self._can_act = can_act
        self._card = text(visible=False)
        self.accept = press_button("Accept action", "success", width=130, visible=False)
        self.reject = press_button("Reject action", width=130, visible=False)

    @property
    def layout(self) -> Any:  # noqa: ANN401 - panel has no types
        """The content above the buttons."""
        pressed = [pn.pane.Bokeh(each) for each in (self.accept, self.reject)] if self._can_act else []
        return pn.Column(pane(self._card), pn.Row(*pressed, styles=WRAP), sizing_mode="stretch_width")

    def show(self, state: ViewState, card: Review) -> None:
        """Draw the action that waits, or the one that is under way."""
        opened = state.snapshot.open_mitigation if card.can_answer_action else None
        shown = shown_action(state.snapshot, state.request)
        self._card.text = "" if shown is None else action_html(shown)
        self._card.visible = shown is not None
        for pressed, verb in ((self.accept, "Accept"), (self.reject, "Reject")):
            pressed.visible = shown is not None and shown.is_open
            label = f"{verb} {opened.id}" if opened is not None else f"{verb} action"
            relabel(pressed, label, meaning(label))
            pressed.disabled = opened is None


def shown_action(snapshot: JobSnapshot, request: PendingAction | None) -> Mitigation | None:
    """Return the action that a card is about: the open one, the one just answered, or one under way."""
    if snapshot.phase.is_final:
        return None
    if snapshot.open_mitigation is not None:
        return snapshot.open_mitigation
    answered = request.proposal if request is not None else ""
    return next(
        (each for each in reversed(snapshot.mitigations) if each.id == answered or each.is_under_way),
        None,
    )


def action_html(mitigation: Mitigation) -> str:
    """Return the card's content: the action, its reason, its gain and its cost."""
    state = "" if mitigation.is_open else f" ({mitigations.status_words(mitigation)})"
    head = escape(f"Action {mitigations.head_words(mitigation)}{state}")
    facts = block_html(Facts(mitigations.facts(mitigation)))
    return f'<h3 style="margin:0 0 4px;font-size:15px">{head}</h3>{facts}'
