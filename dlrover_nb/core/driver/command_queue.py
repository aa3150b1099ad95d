"""CommandQueue that other threads hand to a loop, each with a future that the loop answers."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.errors import BackendError, DlroverError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ANSWER_LIMIT_S = 30.0


class CommandQueue:
    """The queue; it takes nothing more once it is closed, so that nobody waits for a loop that has ended.

    Parameters
    ----------
    who
        Whose loop it is, for errors.
    over
        Says why nothing more is taken, once it is so.
    wake
        Lets the loop look at once; a loop that waits here for the next command needs none.
    """

    def __init__(
        self, who: str, *, over: Callable[[], DlroverError], wake: Callable[[], None] = lambda: None
    ) -> None:
        self._who, self._over, self._wake = who, over, wake
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
        BackendError
            When the loop does not answer; what `over` says when it has ended.
        """
        asked: Future[T] = Future()
        if not self.put(lambda: self._answer(asked, command)):
            raise self._over()
        try:
            return asked.result(ANSWER_LIMIT_S)
        except FutureTimeoutError as error:
            raise BackendError(
                f"{self._who} did not answer within {ANSWER_LIMIT_S:g} s; try again"
            ) from error

    def put(self, command: Callable[[], object]) -> bool:
        """Hand in a command; whether it is taken."""
        with self._lock:
            if self._is_closed:
                return False
            self._queue.put(command)
        self._wake()
        return True

    def run_next(self, wait_s: float = 0.0) -> bool:
        """Run the oldest one, after waiting for it at most so long; whether there was one."""
        try:
            command = self._queue.get(block=wait_s > 0, timeout=wait_s)
        except queue.Empty:
            return False
        command()
        return True

    def shut(self) -> None:
        """Take none any more; for any thread."""
        with self._lock:
            self._is_closed = True

    def close(self) -> None:
        """Take none any more, and run those that wait."""
        self.shut()
        while self.run_next():
            pass

    def _answer(self, asked: Future[T], command: Callable[[], T]) -> None:
        """Run a command; an error meant for the user is its answer, any other one ends the loop too."""
        try:
            asked.set_result(command())
        except DlroverError as error:
            asked.set_exception(error)
        except Exception as error:
            asked.set_exception(BackendError(f"{self._who} failed: {error}"))
            raise
