"""Commands that other threads hand to the one loop of a job, each with a future that the loop answers."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.errors import BackendError, StaleDecisionError
from dlrover_nb.core.session.answers import answer

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ANSWER_LIMIT_S = 30.0


class Commands:
    """The queue; it takes nothing more once it is closed, so that nobody waits for a loop that has ended.

    Parameters
    ----------
    job
        Name of the job.
    wake
        Lets the loop look at once.
    """

    def __init__(self, job: str, wake: Callable[[], None]) -> None:
        self._job, self._wake = job, wake
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards _is_closed against a command that comes too late
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether none waits."""
        return self._queue.empty()

    def ask(self, command: Callable[[], T]) -> T:
        """Hand in a command and wait for its answer; what it raises is raised here.

        Raises
        ------
        StaleDecisionError
            When the job has ended.
        BackendError
            When the loop does not answer.
        """
        asked: Future[T] = Future()
        if not self.put(lambda: answer(asked, command, who="the job master")):
            raise StaleDecisionError(f"job {self._job} has ended: nothing to do")
        try:
            return asked.result(ANSWER_LIMIT_S)
        except FutureTimeoutError as error:
            raise BackendError(
                f"the master of job {self._job} did not answer within {ANSWER_LIMIT_S:g} s; try again"
            ) from error

    def put(self, command: Callable[[], object]) -> bool:
        """Hand in a command; whether it is taken."""
        with self._lock:
            if self._is_closed:
                return False
            self._queue.put(command)
        self._wake()
        return True

    def run_next(self) -> None:
        """Run the oldest one; the loop's thread alone calls this."""
        self._queue.get()()

    def close(self) -> None:
        """Take none any more, and run those that wait."""
        with self._lock:
            self._is_closed = True
        while not self._queue.empty():
            self.run_next()
