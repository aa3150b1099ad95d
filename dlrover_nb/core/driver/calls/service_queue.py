"""Calls of an external job's programs: their HTTP threads wait here for answers of the job's loop.

A call is answered by an order (`SendAnswer`), which is carried out after the state behind it is lasting. So a
program never knows of a grant that a replacing master does not. `CommandQueue`, whose futures are answered
while the command runs, was rejected for that reason.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.wire.services import ANSWER_NAMES, CALL_NAMES, ServiceAnswer, ServiceCall

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_LIMIT_S = 30.0

_CALLS: Tagged[ServiceCall] = Tagged(ServiceCall, written=CALL_NAMES)
_ANSWERS: Tagged[ServiceAnswer] = Tagged(ServiceAnswer, written=ANSWER_NAMES)


class ServiceQueue:
    """The calls of one job.

    Attributes
    ----------
    wake
        Wakes the loop; set by it.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._calls: list[tuple[int, ServiceCall]] = []
        self._waiting: dict[int, Future[ServiceAnswer]] = {}
        self._n_call, self._is_closed = 0, False

    # for any thread

    def ask(self, body: bytes) -> bytes:
        """Return the answer to a call, both as JSON.

        Raises
        ------
        WireError
            When it is no call.
        BackendError
            When the loop does not answer, or the job has ended.
        """
        call, future = _CALLS.from_line(body), Future[ServiceAnswer]()
        with self._lock:
            if self._is_closed:
                raise BackendError("the job has ended")
            self._n_call = ticket = self._n_call + 1
            self._waiting[ticket] = future
            self._calls.append((ticket, call))
        self.wake()
        try:
            return _ANSWERS.to_line(future.result(ANSWER_LIMIT_S))
        except FutureTimeoutError as error:
            raise BackendError(
                f"the job's master did not answer within {ANSWER_LIMIT_S:g} s; ask again"
            ) from error
        finally:
            self._waiting.pop(ticket, None)

    # for the loop

    def take(self) -> list[tuple[int, ServiceCall]]:
        """Return the calls since the last time, each with its ticket."""
        with self._lock:
            calls, self._calls = self._calls, []
        return calls

    def answer(self, ticket: int, answer: ServiceAnswer) -> None:
        """Answer a call; nothing happens when no client waits for it any more."""
        future = self._waiting.get(ticket)
        if future is not None:
            future.set_result(answer)

    def close(self) -> None:
        """Refuse calls from now on, also those that wait."""
        with self._lock:
            self._is_closed = True
        for future in tuple(self._waiting.values()):
            if not future.done():
                future.set_exception(BackendError("the job has ended"))
