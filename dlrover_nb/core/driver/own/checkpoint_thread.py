"""Works on the folders of checkpoints beside the job's loop, which must go on while their disk hangs.

A network disk may take minutes to answer; in the loop's own thread the job would hear no node and no user
meanwhile. Actions are carried out in their order, one at a time. The thread does not keep the process alive.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.master.shared.orders import (
    CheckpointAction,
    DropCheckpoint,
    PrepareCheckpoint,
    SweepCheckpoints,
    WriteManifest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder

logger = logging.getLogger(__name__)

PATIENCE_S = 30.0  # with the last actions of a job


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the preparation or the manifest of a checkpoint.

    `dropped` are checkpoints that made room for it; `error` says why it failed, empty: it did not.
    """

    action: PrepareCheckpoint | WriteManifest
    dropped: tuple[int, ...] = ()
    error: str = ""


class CheckpointThread:
    """Carries out actions on the checkpoints of one job; for its loop alone.

    Parameters
    ----------
    folder
        The checkpoints.
    wake
        Called, by the thread, when there is an outcome.
    in_thread
        Whether there is a thread; without one an action is carried out at once, as in virtual time.
    """

    def __init__(self, folder: CheckpointFolder, wake: Callable[[], None], *, in_thread: bool = True) -> None:
        self._folder, self._wake, self._in_thread = folder, wake, in_thread
        self._actions: queue.SimpleQueue[CheckpointAction | None] = queue.SimpleQueue()
        self._outcomes: deque[Outcome] = deque()
        self._thread = threading.Thread(target=self._run, name="checkpoint-folders", daemon=True)
        if in_thread:
            self._thread.start()

    def do(self, action: CheckpointAction) -> None:
        """Carry an action out, after all earlier ones."""
        if isinstance(action, PrepareCheckpoint):
            self._folder.note_journal(action.number)  # the journal goes on while the thread is busy
        self._actions.put(action)
        if not self._in_thread:
            self._actions.put(None)
            self._run()

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes since the last call."""
        while self._outcomes:
            yield self._outcomes.popleft()

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Wait for the last actions, but not for a disk that hangs."""
        self._wake = _nothing  # its descriptor may belong to another file soon
        if not self._in_thread:
            return
        self._actions.put(None)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            logger.warning("the disk of the checkpoints did not answer within %g s; it is left", patience_s)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            outcome = self._carry_out(action)
            if outcome is not None:
                self._outcomes.append(outcome)
                self._wake()

    def _carry_out(self, action: CheckpointAction) -> Outcome | None:
        match action:
            case PrepareCheckpoint(number, n_byte, spare):
                try:
                    return Outcome(action, self._folder.prepare(number, n_byte, spare))
                except CheckpointError as error:
                    return Outcome(action, error=str(error))
            case WriteManifest(manifest):
                try:
                    self._folder.write(manifest)
                except CheckpointError as error:
                    return Outcome(action, error=str(error))
                return Outcome(action)
            case DropCheckpoint(number):
                self._folder.drop(number)
            case SweepCheckpoints(numbers, last):
                self._folder.sweep(numbers, last)
            case _ as never:
                assert_never(never)
        return None


def _nothing() -> None:
    """Do nothing: no caller waits for the outcome any more."""
