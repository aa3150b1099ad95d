"""Accounting of a node's time: every moment belongs to exactly one part, so that the parts sum to the whole.

A node sets which part begins (`switch`); nothing has to be closed. Once a second the agent takes the sums as
a `NodeSample`. Pauses and times without any shard count as idle, which for a worker is excluded from its
iteration: they belong to the change of plan or the end of the job and not to T_iter of Eq. 1.

An iteration of a worker belongs as a whole to the window in which it ends: an iteration of three seconds
would otherwise be reported as one of a second. Time that belongs to no iteration, such as a dropped step, is
removed with `forget`. A PS waits between requests as long as there are none; its time is that of the window.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING

import psutil

from dlrover_nb.core.runtime.process.cpu_waits import CpuWaits
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.runtime.process.gpu_use import Gpus

_MIB = 1 << 20


class Part(StrEnum):
    """Parts of an iteration; the fields of `TimeSplit`."""

    DATA = "data_s"
    LOOKUP = "lookup_s"
    COMPUTE = "compute_s"
    UPDATE = "update_s"
    IDLE = "idle_s"
    OTHER = "other_s"
    PEERS = "peers_s"


def own_memory() -> int:
    """Return the bytes of memory that this process holds."""
    return int(psutil.Process().memory_info().rss)


class TimeAccounting:
    """Sums of one node over the window since the last `take`; begins idle.

    Parameters
    ----------
    clock
        Of wall time; CPU time is that of this process.
    n_byte
        Returns the memory of the node in bytes.

    Attributes
    ----------
    link_gbit_per_s
        The most that a probe of the node's connection carried; 0: none was made.
    gpus
        Those of the node; None: it has none, or nothing counts their use.
    """

    def __init__(self, clock: Clock, n_byte: Callable[[], int] = own_memory) -> None:
        self._clock, self.n_byte = clock, n_byte
        self.link_gbit_per_s = 0.0
        self.gpus: Gpus | None = None
        self._part = self._last = Part.IDLE
        self._last_s = self._stretch_s = 0.0
        self._open = dict.fromkeys(Part, 0.0)
        self._cpu_s, self._waits = time.process_time(), CpuWaits()
        self._opened_at_s = self._since_s = clock.now_s()
        self._clear()

    @property
    def part(self) -> Part:
        """The current part."""
        return self._part

    def switch(self, part: Part) -> float:
        """End the current part and begin another; return the seconds of the current one."""
        self._flow()
        self._last, self._last_s, self._stretch_s = self._part, self._stretch_s, 0.0
        self._part = part
        return self._last_s

    def share(self, part: Part, share: float) -> None:
        """Assign a share of the last stretch to another part."""
        self._open[self._last] -= share * self._last_s
        self._open[part] += share * self._last_s

    def count_bytes(self, sent: int, received: int) -> None:
        """Count what was sent and received between workers and PS."""
        self._n_byte_sent += sent
        self._n_byte_received += received

    def count(self, n_sample: int = 0, loss: float | None = None, *, n_iter: int = 1) -> None:
        """Count finished iterations (PS: served requests) with the time since the last one."""
        self._flow()
        self._close()
        self._n_iter += n_iter
        self._n_sample += n_sample
        if loss is not None:
            self._loss_sum += loss
            self._n_loss += 1

    def forget(self) -> None:
        """Drop the time since the last iteration: it belongs to none, and counts as idle."""
        self._flow()
        self._open = dict.fromkeys(Part, 0.0)
        self._last_s = self._stretch_s = 0.0

    def take(self, node: str, role: Role) -> NodeSample:
        """Return the means of the window and open the next one."""
        self._flow()
        if role is Role.PS:
            self._close()
            self._last_s = self._stretch_s = 0.0  # its window is closed
        cpu_s, wait = time.process_time(), self._waits.take()
        gpu = None if self.gpus is None else self.gpus.use()
        window_s = max(self._since_s - self._opened_at_s, 1e-9)
        split = self._split(role)
        sample = NodeSample(
            node=node,
            role=role,
            at_s=self._since_s,
            window_s=window_s,
            n_iter=self._n_iter,
            n_sample=self._n_sample,
            iter_s=split.total_s,
            split=split,
            cpu_cores=(cpu_s - self._cpu_s) / window_s,
            memory_mib=self.n_byte() / _MIB,
            loss=self._loss_sum / self._n_loss if role is Role.WORKER and self._n_loss else None,
            n_byte_sent=self._n_byte_sent,
            n_byte_received=self._n_byte_received,
            link_gbit_per_s=self.link_gbit_per_s,
            throttled_s=wait and wait.throttled_s,
            starved_s=wait and wait.starved_s,
            host_cores=wait and wait.host_s / window_s,
            gpu_busy=gpu and gpu.busy,
            gpu_memory_mib=gpu and gpu.memory_mib,
        )
        self._opened_at_s, self._cpu_s = self._since_s, cpu_s
        self._clear()
        return sample

    def _flow(self) -> None:
        """Extend the current part up to now."""
        now_s = self._clock.now_s()
        self._open[self._part] += now_s - self._since_s
        self._stretch_s += now_s - self._since_s
        self._since_s = now_s

    def _close(self) -> None:
        """Add the time since the last iteration to this window."""
        for part, seconds in self._open.items():
            self._seconds[part] += seconds
        self._open = dict.fromkeys(Part, 0.0)

    def _split(self, role: Role) -> TimeSplit:
        """Return the parts of the mean iteration; zero without a finished one."""
        if not self._n_iter:
            return TimeSplit()
        parts = {
            part.value: seconds / self._n_iter
            for part, seconds in self._seconds.items()
            if role is Role.PS or part is not Part.IDLE
        }
        return TimeSplit(**parts)

    def _clear(self) -> None:
        self._seconds = dict.fromkeys(Part, 0.0)
        self._n_iter = self._n_loss = self._n_sample = self._n_byte_sent = self._n_byte_received = 0
        self._loss_sum = 0.0
