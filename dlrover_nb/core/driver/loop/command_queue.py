"""Commands from other threads to a loop, each with a future that the loop answers."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.errors import AwayError, BackendError, DlroverError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ANSWER_LIMIT_S = 30.0


class CommandQueue:
    """The queue; once closed it rejects commands, so that no caller waits for a loop that has ended.

    Parameters
    ----------
    who
        Name of the loop's owner, for errors.
    over
        Returns why commands are rejected, once the loop is over.
    wake
        Wakes the loop; a loop that waits here for the next command needs none.
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
        """Whether it is empty."""
        return self._queue.empty()

    def ask(self, command: Callable[[], T]) -> T:
        """Submit a command and wait for its answer; its exception is raised here.

        Raises
        ------
        AwayError
            When the loop does not answer. The error of `over` when it has ended.
        """
        future: Future[T] = Future()
        if not self.put(lambda: self._answer(future, command)):
            raise self._over()
        try:
            return future.result(ANSWER_LIMIT_S)
        except FutureTimeoutError as error:
            raise AwayError(f"{self._who} did not answer within {ANSWER_LIMIT_S:g} s; try again") from error

    def put(self, command: Callable[[], object]) -> bool:
        """Submit a command; return whether it is accepted."""
        with self._lock:
            if self._is_closed:
                return False
            self._queue.put(command)
        self._wake()
        return True

    def run_next(self, wait_s: float = 0.0) -> bool:
        """Run the oldest one, after waiting for it at most so long; return whether there was one."""
        try:
            command = self._queue.get(block=wait_s > 0, timeout=wait_s)
        except queue.Empty:
            return False
        command()
        return True

    def shut(self) -> None:
        """Reject further commands; for any thread."""
        with self._lock:
            self._is_closed = True

    def close(self) -> None:
        """Reject further commands, and run the waiting ones."""
        self.shut()
        while self.run_next():
            pass

    def _answer(self, future: Future[T], command: Callable[[], T]) -> None:
        """Run a command; an error meant for the user is its answer, any other one ends the loop too."""
        try:
            future.set_result(command())
        except DlroverError as error:
            future.set_exception(error)
        except Exception as error:
            future.set_exception(BackendError(f"{self._who} failed: {error}"))
            raise
