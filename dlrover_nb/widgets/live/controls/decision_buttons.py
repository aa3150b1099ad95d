"""The buttons that answer a proposal, undo the last decision, and set who decides.

Each names its object (``Accept p2``, ``Undo d3``, ``Cancel d3`` while its plan is being applied) and sends
exactly that, so a press always means what the user read; one that had just changed takes no press (see
`review_card.too_early`). The review's message, beside the buttons, shows the result, not the button.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import TextInput

from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.jobs.review_card import Answer, meaning, undo_label, undo_words
from dlrover_nb.widgets.live.controls.elements import choice, pane, press_button, relabel, text
from dlrover_nb.widgets.theme import HALF, WIDGETS, WRAP

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.widgets.jobs.review_card import PendingAction, Review
    from dlrover_nb.widgets.live.job_view_model import ViewState

_MODES = (
    (str(Mode.MANUAL), "manual: no proposals"),
    (str(Mode.SUGGEST), "suggest: I decide"),
    (str(Mode.AUTO), "auto: all applied"),
)


class DecisionButtons:
    """Reason, buttons and mode of one screen."""

    def __init__(self) -> None:
        self._cleared_after: PendingAction | None = None
        self._why = TextInput(
            title="Reason", placeholder="optional", sizing_mode="stretch_width", stylesheets=[WIDGETS]
        )
        self.accept, self.reject = (
            press_button("Accept", "success", width=95),
            press_button("Reject", width=95),
        )
        self.undo, self._undone = press_button("Undo", width=95), text()
        self.mode = choice("Who decides", _MODES, max_width=320, sizing_mode="stretch_width")

    @property
    def layout(self) -> Any:  # noqa: ANN401 - panel has no types
        """The controls in a column, to stand beside the message that tells what became of a press."""
        return pn.Column(
            pn.Row(*(pn.pane.Bokeh(b) for b in (self.accept, self.reject, self.undo)), styles=WRAP),
            pane(self._undone),
            pn.Row(pane(self._why, min_width=150), pane(self.mode), sizing_mode="stretch_width", styles=WRAP),
            sizing_mode="stretch_width",
            styles=HALF,
        )

    @property
    def reason(self) -> str:
        """The reason that the user typed."""
        return str(self._why.value or "")

    def show(self, state: ViewState, card: Review) -> None:
        """Draw the enabled buttons and the present mode."""
        opened = card.proposal if card.can_decide else None
        for pressed, verb in ((self.accept, "Accept"), (self.reject, "Reject")):
            label = f"{verb} {opened.id}" if opened else verb
            relabel(pressed, label, meaning(label))
            pressed.disabled = opened is None
        back = state.snapshot.undo
        label = undo_label(state.snapshot)
        relabel(self.undo, label, meaning(label))
        self._undone.text = escape(undo_words(state.snapshot))
        self.undo.disabled = back is None or not card.can_act
        self.mode.disabled = not card.can_act
        request = state.request
        self._clear_reason(request)
        if request is None or request.verdict is not Verdict.MODE or request.answer is not Answer.ASKED:
            holds = str(state.snapshot.mode)
            self.mode.tags = [holds]  # before the value: a page takes another value for the user's choice
            self.mode.value = holds

    def _clear_reason(self, request: PendingAction | None) -> None:
        """Empty the reason once it was kept with a decision: it is none of the next one's."""
        if request is not None and request.answer is Answer.TAKEN and request is not self._cleared_after:
            self._cleared_after = request
            self._why.value = ""
