"""A live view of ipywidgets, for the front ends that show these and run no scripts of Panel: VS Code, Colab.

It has the sentence with its buttons, and below them the static view, made anew every few seconds; the charts
are pictures, and there are no sliders. Rejected: Panel by way of ipywidgets (jupyter_bokeh), and anywidget.
Both bring Bokeh in a bundle of their own, which knows nothing of numbered frames: what a page has missed
(`delivery`) would go unnoticed, and a press would answer a proposal that it does not show.

Here a button is made anew for each thing that it answers. A press of one that has been replaced still arrives
under its old label, so the master refuses it where that is no longer open.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html
from dlrover_nb.widgets.jobs.headline import answer_labels, headline, old_picture, rows_labels
from dlrover_nb.widgets.jobs.plans import plans_view
from dlrover_nb.widgets.jobs.review_card import header_html, read_press, review, undo_label
from dlrover_nb.widgets.jobs.status import status_view

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dlrover_nb.widgets.live.job_view_model import JobViewModel, ViewState

RENEW_S = 5.0  # of the static view: its pictures take a tenth of a second to draw
_OF_VSCODE = ("VSCODE_PID", "VSCODE_CWD")


def shows_widgets() -> bool:
    """Return whether the front end shows ipywidgets and runs no scripts of Panel."""
    is_there = "google.colab" in sys.modules or any(name in os.environ for name in _OF_VSCODE)
    return is_there and find_spec("ipywidgets") is not None


class WidgetScreen:
    """A screen of a job's live view.

    Parameters
    ----------
    view_model
        Source of snapshots, and receiver of presses.
    can_act
        Whether it has buttons.
    monotonic
        A monotonic clock in seconds.
    """

    def __init__(
        self,
        view_model: JobViewModel,
        *,
        can_act: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        import ipywidgets  # noqa: PLC0415 - only such front ends need it

        self._widgets, self._view_model = ipywidgets, view_model
        self._can_act, self._monotonic = can_act, monotonic
        self._lock = threading.Lock()
        self._head, self._message, self._body = (ipywidgets.HTML() for _ in range(3))
        self._row = ipywidgets.HBox()
        self._buttons: dict[str, Any] = {}  # those that are shown, by label
        self._drawn: tuple[float, object] = (float("-inf"), None)  # when the static view was, and of what
        self.layout = ipywidgets.VBox([self._head, self._row, self._message, self._body])
        self.flush()

    def flush(self) -> None:
        """Show the newest snapshot; from any thread."""
        with self._lock:
            self._show(self._view_model.state())

    def close(self) -> None:
        """Remove it from the page."""
        self.layout.close_all()

    def _show(self, state: ViewState) -> None:
        card = review(state.snapshot, state.request, state.link)
        is_old = bool(state.link.badge) and not state.snapshot.phase.is_final
        lead = old_picture(state.link.age_s) if is_old else headline(state.snapshot)
        self._head.value = header_html(state.snapshot, state.link) + block_html(lead)
        is_news = state.request is not None or is_old
        self._message.value = block_html(Paragraph(card.message, Tone.NEWS)) if is_news else ""
        self._show_buttons(state, can_act=card.can_act)
        self._show_body(state)

    def _show_buttons(self, state: ViewState, *, can_act: bool) -> None:
        snapshot = state.snapshot
        answers = answer_labels(snapshot.open_proposal) if snapshot.open_proposal is not None else ()
        undo = (undo_label(snapshot),) if snapshot.undo is not None else ()
        labels = [*filter(None, (*rows_labels(snapshot), *answers, *undo))] if self._can_act else []
        if labels != [*self._buttons]:
            self._buttons = {label: self._buttons.get(label) or self._button(label) for label in labels}
            self._row.children = tuple(self._buttons.values())
        for each in self._buttons.values():
            each.disabled = not can_act

    def _button(self, label: str) -> Any:  # noqa: ANN401 - of a package without types
        made = self._widgets.Button(description=label, layout={"width": "auto"})
        made.on_click(lambda _: self._view_model.press(read_press(label)))
        return made

    def _show_body(self, state: ViewState) -> None:
        snapshot, now_s = state.snapshot, self._monotonic()
        about = snapshot.phase, snapshot.version, len(snapshot.proposals), len(snapshot.decisions)
        if now_s < self._drawn[0] + RENEW_S and about == self._drawn[1]:
            return
        self._drawn = now_s, about
        views = status_view(snapshot, state.series), plans_view(snapshot)
        self._body.value = "".join(view.html() for view in views)
