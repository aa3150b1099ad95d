"""The buttons that answer a proposal, undo the last decision, and set who decides.

Each names its object (``Accept p2``, ``Undo d3``, ``Cancel d3`` while its plan is being applied) and sends
exactly that, so a press always means what the user read. The review's message shows the result, not the
button.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import TextInput

from dlrover_nb.core.structs.decisions import Verdict
from dlrover_nb.core.structs.job import Mode
from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.parts import pane, press_button, text
from dlrover_nb.widgets.review import Answer, undo_label, undo_words

if TYPE_CHECKING:
    from threading import RLock
    from typing import Any

    from dlrover_nb.widgets.job_view_model import JobViewModel, ViewState
    from dlrover_nb.widgets.review import Review

_MODES = {
    "manual: I decide, nothing is proposed": Mode.MANUAL,
    "suggest: plans are proposed, I decide": Mode.SUGGEST,
    "auto: plans are applied": Mode.AUTO,
}


class DecisionButtons:
    """Reason, buttons and mode of one screen.

    Parameters
    ----------
    view_model
        View model that receives a change of mode.
    lock
        Held while the screen is drawn; a user's choice waits for it.
    """

    def __init__(self, view_model: JobViewModel, lock: RLock) -> None:
        self._view_model, self._lock = view_model, lock
        self._is_drawing = False
        self._why = TextInput(title="Reason (kept with the decision)", sizing_mode="stretch_width")
        self.accept, self.reject = (
            press_button("Accept", "success", width=130),
            press_button("Reject", width=130),
        )
        self.undo, self._undone = press_button("Undo", width=130), text()
        self.mode = pn.widgets.Select(label="Who decides", options=_MODES, width=320)
        self.mode.param.watch(self._choose_mode, "value")

    @property
    def layout(self) -> Any:  # noqa: ANN401 - panel has no types
        """The controls in a column."""
        return pn.Column(
            pane(self._why, min_width=200),
            pn.Row(*(pn.pane.Bokeh(b) for b in (self.accept, self.reject, self.undo))),
            pane(self._undone),
            self.mode,
            sizing_mode="stretch_width",
        )

    @property
    def reason(self) -> str:
        """The reason that the user typed."""
        return str(self._why.value or "")

    def _choose_mode(self, event: Any) -> None:  # noqa: ANN401 - param's event
        with self._lock:
            if self._is_drawing or event.new is self._view_model.state().snapshot.mode:
                return
        self._view_model.set_mode(event.new, self.reason)

    def show(self, state: ViewState, card: Review) -> None:
        """Draw the enabled buttons and the present mode."""
        opened = card.proposal if card.can_decide else None
        for pressed, verb in ((self.accept, "Accept"), (self.reject, "Reject")):
            pressed.label, pressed.disabled = (f"{verb} {opened.id}" if opened else verb), opened is None
        back = state.snapshot.undo
        self.undo.label = undo_label(state.snapshot)
        self._undone.text = escape(undo_words(state.snapshot))
        self.undo.disabled = back is None or not card.can_act
        self.mode.disabled = not card.can_act
        asked = state.asked
        if asked is None or asked.verdict is not Verdict.MODE or asked.answer is not Answer.ASKED:
            self._is_drawing = True
            self.mode.value = state.snapshot.mode
            self._is_drawing = False
