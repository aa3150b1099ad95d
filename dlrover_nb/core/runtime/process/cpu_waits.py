"""What a node's threads waited for processors, apart from what its own quota made them wait.

The kernel counts for each thread the time in which it could run and did not (`schedstat`, the second number).
In a group with a quota that is mostly the quota's doing, which the group counts as throttled time
(`cpu.stat`). The rest is what other processes of the host took, those of the same job's other nodes among
them; who reads the reports of all nodes can tell these apart by the processor time of the whole host.
Pressure (PSI) is no substitute: it says that some process waits, not whether the quota or the neighbors are
the cause. Measured with a quota of .25 on an idle processor: 2.89 s of waiting in 4 s, of which 2.87 s were
throttled.

On a virtual machine the hypervisor may run other guests where a thread seems to run. That time (`steal`) is
lost to others too: the process loses of it what it had of the machine's processor time.

Both counters are read wherever Linux shows them, also in a container; elsewhere nothing is known.

A process that gets no processor at all cannot say so. Another one on its host can, as the kernel shows the
waits of all processes of a user (`SilentWaits`). Those of a stopped or hung process do not grow.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from dlrover_nb.core.runtime.process.limits import ROOT, own_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PROC, PRESSURE = Path("/proc"), Path("/proc/pressure/cpu")
TASKS = Path("/proc/self/task")
_NS = 1e-9
_US = 1e-6


class CpuWait(NamedTuple):
    """Seconds in which threads of a process could not run, and processors were busy; all added up."""

    throttled_s: float  # by the quota of their group
    starved_s: float  # as other processes had the processors
    host_s: float  # processor time of all processes of the host, and of other guests of its processors


class _HostTimes(NamedTuple):
    """Processor seconds of a host so far: of its processes, and stolen from them by other guests."""

    busy_s: float
    stolen_s: float


class CpuWaits:
    """Counts the waits of this process between two readings.

    Parameters
    ----------
    root
        Where the control groups are mounted.
    tasks
        The folder of this process's threads.
    cpu_times
        Reads the processor times of the host, as `psutil.cpu_times`.
    """

    def __init__(
        self,
        root: Path = ROOT,
        tasks: Path = TASKS,
        cpu_times: Callable[[], NamedTuple] = psutil.cpu_times,
    ) -> None:
        self._root, self._tasks, self._cpu_times = root, tasks, cpu_times
        self._waited_ns = _read_waits(self._tasks)
        self._throttled_s = self._read_throttled()
        self._host, self._own_s = self._read_host(), time.process_time()

    def take(self) -> CpuWait | None:
        """Return the waits since the last reading; None where the kernel does not tell them.

        A thread that ended meanwhile takes its last waits with it.
        """
        before, before_s, host, own_s = self._waited_ns, self._throttled_s, self._host, self._own_s
        self._waited_ns, self._throttled_s = _read_waits(self._tasks), self._read_throttled()
        self._host, self._own_s = self._read_host(), time.process_time()
        if self._waited_ns is None or before is None or self._throttled_s is None or before_s is None:
            return None
        waited_ns = sum(ns - before.get(thread, 0) for thread, ns in self._waited_ns.items())
        throttled_s = max(self._throttled_s - before_s, 0.0)  # less: the process has entered another group
        busy_s, stolen_s = (max(now - then, 0.0) for now, then in zip(self._host, host, strict=True))
        own_part = min((self._own_s - own_s) / busy_s, 1.0) if busy_s > 0 else 0.0
        starved_s = max(waited_ns * _NS - throttled_s, 0.0) + own_part * stolen_s
        return CpuWait(throttled_s, starved_s, busy_s + stolen_s)

    def _read_throttled(self) -> float | None:
        try:
            group, is_v2 = own_group("cpu", self._root)
            lines = (group / "cpu.stat").read_text().splitlines()
            counts = dict(line.split() for line in lines)
            # without a quota v2 counts none, and neither does the top group of a machine
            return (
                int(counts.get("throttled_usec", 0)) * _US if is_v2 else int(counts["throttled_time"]) * _NS
            )
        except (OSError, ValueError, KeyError):
            return None

    def _read_host(self) -> _HostTimes:
        times = self._cpu_times()._asdict()
        no_process = ("idle", "iowait", "guest", "guest_nice", "steal")  # guests are in user already
        busy_s = sum(value for name, value in times.items() if name not in no_process)
        return _HostTimes(float(busy_s), float(times.get("steal", 0.0)))


class Starvation:
    """Counts for how long a thread of this process could run and got no processor, quotas included.

    Parameters
    ----------
    tasks
        The folder of this process's threads.
    """

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks, self._began_ns = tasks, _read_waits(tasks)

    @property
    def longest_s(self) -> float:
        """Of the thread that waited longest since the beginning; 0 where the kernel does not tell."""
        if self._began_ns is None or (now_ns := _read_waits(self._tasks)) is None:
            return 0.0
        return max(ns - self._began_ns.get(thread, 0) for thread, ns in now_ns.items()) * _NS


def own_wait_s(path: Path = PROC / "thread-self" / "schedstat") -> float:
    """Return how long the calling thread waited for processors so far; 0 where the kernel does not tell."""
    try:
        return int(path.read_text().split()[1]) * _NS
    except (OSError, ValueError, IndexError):
        return 0.0


class SilentProcess(NamedTuple):
    """A process of this host that should have sent something, and the time of its last word."""

    name: str
    pid: int
    since_s: float


class SilentWaits:
    """Counts from outside for how long silent processes of this host could run and got no processor.

    Parameters
    ----------
    proc
        Where the kernel shows processes.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._counted: dict[SilentProcess, Starvation] = {}

    def read(self, silent: Iterable[SilentProcess]) -> dict[str, float]:
        """Return the waits of each in seconds, counted from when it was first read after its last word."""
        self._counted = {
            each: self._counted.get(each) or Starvation(self._proc / str(each.pid) / "task")
            for each in silent
        }
        return {each.name: waits.longest_s for each, waits in self._counted.items()}


def cpu_pressure(path: Path = PRESSURE) -> float | None:
    """Return the share of the last 10 s in which some process of this host waited for a processor (PSI).

    None where the kernel does not tell.
    """
    try:
        fields = dict(word.split("=") for word in path.read_text().splitlines()[0].split()[1:])
        return float(fields["avg10"]) / 100
    except (OSError, ValueError, LookupError):
        return None


def _read_waits(tasks: Path) -> Mapping[str, int] | None:
    """Return the ns that each thread waited for a processor so far; None where the kernel does not tell."""
    waited: dict[str, int] = {}
    try:
        for thread in tasks.iterdir():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
                waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return waited or None
