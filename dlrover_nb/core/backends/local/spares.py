"""Spare processes of a local job: workers that start without importing anything (`core.runtime.node.spare`).

A new job gets as many as its plan has workers, at most one per core, before its master has imported what it
needs itself: the two take equally long. While the job trains, one spare waits for the next worker, where the
machine has memory for it. It counts among what this machine's jobs hold, with `SPARE_MIB` and no core.

A spare that cannot be used, for whatever reason, is ended, and the node is started as without it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import psutil

from dlrover_nb.core.backends.programs.exits import kill_group
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.process.limits import thread_count, thread_variables
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.runtime.node.spare import Assignment
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

SPARE_MIB = 320  # of an idle one, with torch
FREE_MIB = 2048  # of the machine beyond it, or there is none
_END_S = 5.0


class Spare(NamedTuple):
    """A spare process, and the threads that its libraries were started with."""

    process: subprocess.Popen[bytes]
    n_thread: int


class Spares:
    """The spare processes of one job.

    Parameters
    ----------
    command
        Returns what starts one, such that it dies with the thread that starts it.
    """

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        self._command = command
        self._idle: deque[Spare] = deque()

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the idle ones."""
        return tuple(each.process.pid for each in self._idle)

    def start(self, cpu: float) -> None:
        """Start one for a worker with so many cores, where the machine has memory and processes for it."""
        if psutil.virtual_memory().available >> 20 < SPARE_MIB + FREE_MIB:
            return
        with contextlib.suppress(OSError):
            process = subprocess.Popen(
                self._command(),
                env=os.environ | thread_variables(cpu),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._idle.append(Spare(process, thread_count(cpu)))

    def assign(self, config: NodeConfig, assignment: Assignment) -> subprocess.Popen[bytes] | None:
        """Let one become a node; None: there is none for it."""
        if config.role is not Role.WORKER:
            return None
        while self._idle:
            spare = self._idle.popleft()
            if spare.n_thread == thread_count(config.cpu) and _has_taken(spare.process, to_json(assignment)):
                return spare.process
            _end(spare.process)
        return None

    def keep(self, most: int) -> None:
        """End all beyond a number, and forget those that have ended."""
        idle, self._idle = self._idle, deque()
        for spare in idle:
            if spare.process.poll() is None and len(self._idle) < most:
                self._idle.append(spare)
            else:
                _end(spare.process)


def _has_taken(process: subprocess.Popen[bytes], line: bytes) -> bool:
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(line + b"\n")
    except OSError:  # it has ended
        return False
    return process.poll() is None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        kill_group(process.pid)
    with contextlib.suppress(
        OSError, subprocess.TimeoutExpired
    ):  # its pipe is broken, or it hangs in the kernel
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_END_S)
