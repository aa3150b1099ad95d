"""Questions to a job master while somebody moves a slider: one on its way at a time, and then the newest.

A slider asks faster than a master answers. A queue would show answers to what was asked long ago, and keep
the master from its work; so of the questions that come while one is being answered only the newest is kept.
Every answer that is shown is thus newer than the one before, and the last one asked is always answered.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

Question = TypeVar("Question")

_QUESTIONS = ThreadPoolExecutor(2, thread_name_prefix="dlrover-question")  # apart from those for decisions


class LatestOnly(Generic[Question]):
    """Has questions answered off the caller's thread, the newest first and the outdated never.

    Parameters
    ----------
    answer
        Gets one question at a time, on a pool thread; it shows its answer, or its error, by itself.
    pool
        Where it runs.
    """

    def __init__(self, answer: Callable[[Question], None], pool: Executor = _QUESTIONS) -> None:
        self._answer, self._pool = answer, pool
        self._lock = threading.Lock()
        self._waiting: list[Question] = []  # one at most
        self._is_running = False

    def ask(self, question: Question) -> None:
        """Have `question` answered after the one that is on its way, in place of any other that waits."""
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
