"""Actions of installed packages against stragglers, carried out beside the loop of a job.

A function of a package may take as long as it likes: it runs in a thread, and the loop asks at each tick what
has ended. A master that is replaced meanwhile begins it anew, as nothing says how far it came: such a
function has to bear being called twice for one node.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions.actions import OwnAction
from dlrover_nb.core.structs.views.events import MitigationEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.job.job import JobSpec

logger = logging.getLogger(__name__)

NONE: Mapping[str, Callable[[OwnAction, JobSpec], None]] = {}  # of ours: they are records of their own


def perform(action: OwnAction, spec: JobSpec) -> str:
    """Carry an action out; return why it failed, nothing where it did not."""
    try:
        extensions.find_function(extensions.ACTIONS, action.name, NONE)(action, spec)
    except DlroverError as error:
        logger.warning("%s: not done: %s", action.words, error)
        return str(error)
    return ""


class OwnActions:
    """Carries out the actions of one job; all methods are for its loop's thread."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._ended: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def begin(self, choice: MitigationChoice) -> bool:
        """Begin an action of a package; False: it is none."""
        action = choice.action.action
        if not isinstance(action, OwnAction):
            return False

        def run() -> None:
            self._ended.put((choice.decision, perform(action, self._spec)))

        threading.Thread(target=run, name=f"{action.name}-{self._spec.name}", daemon=True).start()
        return True

    def ended(self, at_s: float) -> Iterator[MitigationEnded]:
        """Yield what has ended since the last call."""
        while not self._ended.empty():
            yield MitigationEnded(at_s, *self._ended.get())
