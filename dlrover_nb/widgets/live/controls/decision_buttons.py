"""The buttons that answer a proposal, decide on rows, undo the last decision, and set who decides.

They stand below the sentence that says what they do; while that is a proposal, undo stands with the last
change, which it takes back. Each names its object (``Do it (p2)``, ``Skip it (shard 7)``, ``Undo d3``,
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
from dlrover_nb.widgets.jobs.headline import answer_labels, rows_labels
from dlrover_nb.widgets.jobs.review_card import Answer, meaning, undo_label, undo_words
from dlrover_nb.widgets.live.controls.elements import choice, pane, press_button, relabel, text
from dlrover_nb.widgets.theme import HALF, WIDGETS, WRAP

if TYPE_CHECKING:
    from typing import Any

    from bokeh.models import Button

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
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
        self.retry = press_button("Try again", "success", width=150, visible=False)
        self.skip = press_button("Skip it", width=150, visible=False)
        self.undo, self.undo_below = (press_button("Undo", width=110, visible=False) for _ in range(2))
        self._undone = text()
        self.mode = choice("Who decides", _MODES, max_width=320, sizing_mode="stretch_width")

    @property
    def first(self) -> tuple[Button, ...]:
        """The buttons that answer the sentence."""
        return (self.retry, self.skip, self.accept, self.reject)

    @property
    def last(self) -> tuple[Button, ...]:
        """Those after the button for other choices."""
        return (self.undo,)

    @property
    def presses(self) -> tuple[Button, ...]:
        """All of them."""
        return (*self.first, *self.last, self.undo_below)

    @property
    def choices(self) -> Any:  # noqa: ANN401 - panel has no types
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
        self._show_rows(state.snapshot, card)
        self._show_undo(state.snapshot, card)
        self.mode.disabled = not card.can_act
        request = state.request
        self._clear_reason(request)
        if request is None or request.verdict is not Verdict.MODE or request.answer is not Answer.ASKED:
            holds = str(state.snapshot.mode)
            self.mode.tags = [holds]  # before the value: a page takes another value for the user's choice
            self.mode.value = holds

    def _show_rows(self, snapshot: JobSnapshot, card: Review) -> None:
        """Draw the buttons that decide on the rows in question; the sentence names the same ones."""
        for pressed, label in zip((self.retry, self.skip), rows_labels(snapshot), strict=True):
            relabel(pressed, label, meaning(label))
            pressed.visible, pressed.disabled = bool(label), not card.can_act

    def _show_undo(self, snapshot: JobSnapshot, card: Review) -> None:
        """Draw undo below the sentence, or beside the last change while the sentence is a proposal."""
        label, is_open = undo_label(snapshot), snapshot.open_proposal is not None
        for pressed, is_here in ((self.undo, not is_open), (self.undo_below, is_open)):
            relabel(pressed, label, meaning(label))
            pressed.visible = snapshot.undo is not None and is_here
            pressed.disabled = snapshot.undo is None or not card.can_act
        self._undone.text = escape(undo_words(snapshot))

    def _clear_reason(self, request: PendingAction | None) -> None:
        """Empty the reason once it was kept with a decision: it is none of the next one's."""
        if request is not None and request.answer is Answer.TAKEN and request is not self._cleared_after:
            self._cleared_after = request
            self._why.value = ""
