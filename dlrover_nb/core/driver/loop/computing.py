"""Fits and advice of a job with many nodes, computed beside its loop in a process of their own.

The loop shows each open question of the controller here (`attend`). In a job of few nodes it is answered at
once, in the loop: no caller waits for long, and a process of 100 MiB for each small job is not worth it. In a
larger one a process computes it (`core.driver.loop.compute_process`, started at the first question), while
the loop answers the nodes. The answer comes back as a command of the loop, with the event `Computed`.

A process that ends is replaced once for each question; where that fails too, or takes longer than `LIMIT_S`,
the event says why, and the controller computes the same itself. So nothing is lost with the process, at
whatever moment it is killed. It ends with the master, as it reads from it.

Rejected: a thread. A fit is thousands of short calls, between which the loop would wait for the interpreter's
lock. And `multiprocessing`, which imports the main module of a Ray worker again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Protocol, cast

from dlrover_nb.core.driver.loop import compute_process
from dlrover_nb.core.runtime.process.limits import thread_variables
from dlrover_nb.core.structs.views.events import Computed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.controller.plans.questions import Answer, Question

logger = logging.getLogger(__name__)

LEAST_NODES = 64  # from which on a process computes
LIMIT_S = 60.0  # of one answer


class Asking(Protocol):
    """What has a question: the controller's reviews."""

    @property
    def question(self) -> Question | None:
        """The open one."""
        ...

    def hand_over(self, answer: Answer, /) -> None:
        """Take its answer, just before the event `Computed`."""
        ...


class Computing:
    """Has the questions of one job's controller answered; `attend` and `close` are for its loop's thread.

    Parameters
    ----------
    job
        Its name.
    reviews
        Returns what has the open question.
    n_node
        Counts its nodes; called for each question, and not for each turn of the loop.
    emit
        Passes an event to the controller and carries out what follows.
    put
        Submits a command to the loop, for any thread; returns whether it is accepted.
    now_s
        Returns the time.
    """

    def __init__(
        self,
        job: str,
        *,
        reviews: Callable[[], Asking],
        n_node: Callable[[], int],
        emit: Callable[[Computed], object],
        put: Callable[[Callable[[], object]], bool],
        now_s: Callable[[], float],
    ) -> None:
        self._job, self._reviews, self._n_node = job, reviews, n_node
        self._emit, self._put, self._now_s = emit, put, now_s
        self._process = _Process()
        self._thread: threading.Thread | None = None
        self._asked, self._asked_at_s = 0, now_s()

    def attend(self) -> None:
        """Let the open question, if there is one, be answered."""
        while (question := self._reviews().question) is not None:
            if question.number == self._asked:
                if self._now_s() > self._asked_at_s + LIMIT_S:
                    self._process.give_up(f"no answer within {LIMIT_S:g} s")
                return
            self._asked, self._asked_at_s = question.number, self._now_s()
            if self._n_node() < LEAST_NODES:
                self._emit(Computed(self._now_s(), question.number))
            else:
                self._start(question)

    def close(self) -> None:
        """End the process and wait for its end."""
        self._process.close()
        if self._thread is not None:
            self._thread.join()

    def _start(self, question: Question) -> None:
        if self._thread is not None:
            self._thread.join()  # it has handed its answer over already
        self._process.begin()
        self._thread = threading.Thread(
            target=self._compute, args=(question,), name=f"computing-{self._job}", daemon=True
        )
        self._thread.start()

    def _compute(self, question: Question) -> None:
        answer, error = self._process.compute(question)
        if error:
            logger.warning("fits and advice of job %s are computed in its loop: %s", self._job, error)
        self._put(lambda: self._answered(question.number, answer, error))

    def _answered(self, number: int, answer: Answer | None, error: str) -> None:
        now = self._reviews().question
        if now is None or now.number != number:  # the job has ended
            return
        if answer is not None:
            self._reviews().hand_over(answer)
        self._emit(Computed(self._now_s(), number, error))


class _Process:
    """The process, which is started when something is to be computed; for one question at a time."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # guards starting against ending
        self._is_closed, self._why_not = False, ""

    def begin(self) -> None:
        """Forget that the last computation was given up, before the next one begins."""
        self._why_not = ""

    def compute(self, question: Question) -> tuple[Answer | None, str]:
        """Return the answer, or why there is none."""
        error = ""
        for _ in range(2):
            try:
                answer = self._exchange(question)
            except (OSError, EOFError, pickle.UnpicklingError) as failed:
                error = self._why_not or f"its process for that has ended ({self._end() or failed})"
            except Exception as failed:  # noqa: BLE001 - a policy of another package may hold anything
                self._end()
                return None, self._why_not or f"{type(failed).__name__}: {failed}"
            else:
                return (None, answer) if isinstance(answer, str) else (answer, "")
            if self._is_closed or self._why_not:
                break
        return None, error

    def give_up(self, why: str) -> None:
        """Let the present computation fail; for any thread."""
        self._why_not = self._why_not or why
        self._end()

    def close(self) -> None:
        """End it for good; for any thread."""
        self._is_closed = True
        self._end()

    def _exchange(self, question: Question) -> Answer | str:
        request = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        return cast("Answer | str", pickle.load(process.stdout))  # noqa: S301 - of our own child

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed or self._why_not:
                raise EOFError("the job has ended, or the answer comes too late")
            if self._running is None:
                paths = os.pathsep.join(each for each in sys.path if each)
                self._running = subprocess.Popen(
                    [sys.executable, "-m", compute_process.__name__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | thread_variables(1) | {"PYTHONPATH": paths},
                    start_new_session=True,  # an interrupt of the user's terminal is not meant for it
                )
            return self._running

    def _end(self) -> str:
        """End it and return how it ended; empty where there is none."""
        with self._lock:
            process, self._running = self._running, None
        if process is None:
            return ""
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, ValueError):
                assert pipe is not None
                pipe.close()
        return f"exit code {code}"
