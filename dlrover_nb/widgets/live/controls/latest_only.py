"""Queries to a job master while a slider moves: one at a time, and then the newest.

A slider produces queries faster than a master answers. A queue would show outdated answers and load the
master. So of the queries that arrive while one is pending only the newest is kept: answers are shown in
order, and the last query is always answered.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

Question = TypeVar("Question")

_QUESTIONS = ThreadPoolExecutor(2, thread_name_prefix="dlrover-question")  # separate from those for decisions


class LatestOnly(Generic[Question]):
    """Answers queries off the caller's thread, the newest first and outdated ones never.

    Parameters
    ----------
    answer
        Called with one query at a time, on a pool thread; it shows the answer, or the error, itself.
    pool
        Where it runs.
    """

    def __init__(self, answer: Callable[[Question], None], pool: Executor = _QUESTIONS) -> None:
        self._answer, self._pool = answer, pool
        self._lock = threading.Lock()
        self._waiting: list[Question] = []  # one at most
        self._is_running = False

    def ask(self, question: Question) -> None:
        """Answer `question` after the pending one, in place of any other that waits."""
        with self._lock:
            self._waiting = [question]
            if self._is_running:
                return
            self._is_running = True
        self._pool.submit(self._run)

    def _run(self) -> None:
        while (question := self._next()) is not None:
            self._answer(question[0])

    def _next(self) -> tuple[Question] | None:
        with self._lock:
            self._is_running = bool(self._waiting)
            return (self._waiting.pop(),) if self._waiting else None
