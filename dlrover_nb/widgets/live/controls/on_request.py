"""Text that a job's master is asked for while a page shows it: an explanation, log lines.

It is asked for off the front end's thread, and again once what it is about has changed. A question that the
master could not answer is repeated with its next picture, as the answer itself triggers a drawing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html
from dlrover_nb.widgets.live.controls.latest_only import LatestOnly

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_ASKING = block_html(Paragraph("Asking the master..."))


class OnRequest:
    """One text of a screen.

    Parameters
    ----------
    answer
        Returns the text as HTML; called on a pool thread, as it waits for the master.
    on_change
        Called, from any thread, when there is an answer to draw.
    """

    def __init__(self, answer: Callable[[], str], on_change: Callable[[], None]) -> None:
        self._answer, self._on_change = answer, on_change
        self._latest: LatestOnly[Hashable] = LatestOnly(self._fetch)
        self._html = _ASKING
        self._question: Hashable = object()  # equal to none
        self._asked_at_s, self._is_unanswered = 0.0, False

    def html(self, question: Hashable, at_s: float) -> str:
        """Return the newest answer, and ask where `question` is another one than before.

        Parameters
        ----------
        question
            What the answer depends on.
        at_s
            The time of the picture that is drawn.
        """
        again = self._is_unanswered and at_s != self._asked_at_s
        if again or question != self._question:
            self._question, self._asked_at_s, self._is_unanswered = question, at_s, False
            self._latest.ask(question)
        return self._html

    def _fetch(self, question: Hashable) -> None:  # noqa: ARG002 - it says when to ask, not what
        try:
            self._html = self._answer()
        except DlroverError as error:
            self._html = block_html(Paragraph(str(error), Tone.WARNING))
            self._is_unanswered = True
        self._on_change()
