"""A PS that its host stops while it waits for requests counts as work how long they waited for it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.runtime.kernel_world import needs_c
from support.waiting import LIMIT_S, until

from dlrover_nb.core.runtime.exchange.slab.bell import WorkersBell
from dlrover_nb.core.runtime.kernels import VARIABLE
from dlrover_nb.core.runtime.kernels.bell_requests import Request

PS = Path(__file__).with_name("frozen_ps.py")
WHILE_S = 0.1  # how long something lasts; nothing is awaited by it


class Worker:
    """Asks a PS in a process of its own for the dense parameters."""

    def __init__(self, kernel: str) -> None:
        self.bell, self._step = WorkersBell(), 0
        name = self.bell.name
        pipes = (each for pipe in (name.ask, name.answers) for each in (pipe.descriptor, pipe.inode))
        command = [sys.executable, str(PS), str(name.pid), *map(str, pipes)]
        environment = os.environ | {VARIABLE: kernel}
        self.ps = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def ask(self) -> float:
        """Ring for a request; return when."""
        self._step += 1
        rung_s = time.monotonic()
        self.bell.ask(bytes(Request(1, self._step, 0, 0, 0, 0, 0, 0, 1.0, rung_s)))
        return rung_s

    def await_answer(self) -> float:
        """Wait for the answer; return when it came."""
        assert select.select([self.bell.fileno()], [], [], LIMIT_S)[0]
        answer = self.bell.answer()
        assert answer is not None
        assert answer.step == self._step
        return time.monotonic()

    def await_status(self, status: str) -> None:
        until(lambda: psutil.Process(self.ps.pid).status() == status, status)

    def late_s(self) -> float:
        """End the PS; return the seconds that it counted as work."""
        told, _ = self.ps.communicate(timeout=LIMIT_S)
        return float(told)


@pytest.fixture(params=[pytest.param("c", marks=needs_c), "numpy"])
def worker(request):
    worker = Worker(request.param)
    yield worker
    worker.ps.kill()
    worker.ps.communicate()
    worker.bell.close()


def test_what_waits_for_a_frozen_ps_is_its_work(worker):
    rung_s = worker.ask()
    usual_s = worker.await_answer() - rung_s
    worker.await_status(psutil.STATUS_SLEEPING)  # it waits for the next request
    worker.ps.send_signal(signal.SIGSTOP)
    worker.await_status(psutil.STATUS_STOPPED)
    time.sleep(WHILE_S)  # nothing waits for it meanwhile
    rung_s = worker.ask()
    time.sleep(WHILE_S)  # the request waits
    thawed_s = time.monotonic()
    worker.ps.send_signal(signal.SIGCONT)
    answered_s = worker.await_answer()
    assert thawed_s - rung_s <= worker.late_s() <= answered_s - rung_s + usual_s


def test_a_ps_that_nobody_asks_is_idle(worker):
    asked_s = 0.0
    for _ in range(3):
        rung_s = worker.ask()
        asked_s += worker.await_answer() - rung_s
        time.sleep(WHILE_S)  # it is idle
    assert worker.late_s() <= asked_s
