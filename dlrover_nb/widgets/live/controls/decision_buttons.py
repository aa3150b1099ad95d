"""The buttons that answer a proposal, undo the last decision, and set who decides.

They stand below the sentence that says what they do. Each names its object (``Do it (p2)``, ``Undo d3``,
``Cancel d3`` while its plan is being applied) and sends exactly that, so a press always means what the user
read; one that had just changed takes no press (see `review_card.too_early`). The review's message, below the
buttons, shows the result, not the button.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import TextInput

from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.jobs.headline import answer_labels
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
        self.accept = press_button("Accept", "success", width=110)
        self.reject = press_button("Reject", width=110)
        self.undo, self._undone = press_button("Undo", width=110), text()
        self.mode = choice("Who decides", _MODES, max_width=320, sizing_mode="stretch_width")

    def answers(self, other: object) -> Any:  # noqa: ANN401 - panel has no types
        """Return the buttons in a row, with the one that opens all `other` choices."""
        accept, reject, undo = map(pn.pane.Bokeh, (self.accept, self.reject, self.undo))
        return pn.Row(accept, reject, other, undo, sizing_mode="stretch_width", styles=WRAP)

    @property
    def choices(self) -> Any:  # noqa: ANN401 - as above
        """The reason, who decides, and where undo leads."""
        return pn.Column(
            pn.Row(pane(self._why, min_width=150), pane(self.mode), sizing_mode="stretch_width", styles=WRAP),
            pane(self._undone),
            sizing_mode="stretch_width",
            styles=HALF,
        )

    @property
    def reason(self) -> str:
        """The reason that the user typed."""
        return str(self._why.value or "")

    def show(self, state: ViewState, card: Review) -> None:
        """Draw the enabled buttons and the present mode."""
        proposal = state.snapshot.open_proposal
        for pressed, label in zip((self.accept, self.reject), answer_labels(proposal), strict=True):
            relabel(pressed, label, meaning(label))
            pressed.disabled, pressed.visible = not card.can_decide, proposal is not None
        back = state.snapshot.undo
        label = undo_label(state.snapshot)
        relabel(self.undo, label, meaning(label))
        self.undo.visible = back is not None
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
