"""Time as an argument: the one place that reads the machine's clocks.

Decisions take `at_s`, seconds since the epoch, as a value. Only the loops at the edge own a `Clock`.

The wall clock of a machine is set back and forth, by people and by time servers; it is right about dates, and
about nothing else. So it is read once per job, when the job begins. From then on the *job's time* passes with
the monotonic clock, also across masters: a master that resumes a job on the same boot of the same machine
continues from the job's `Anchor`, and its time is exact. The monotonic clock of another boot or machine has
no relation to that, so there the job's time continues from the last event known of it: the time without any
master is not counted. The wall clock could say how long that was, or a day more; a deadline and the limits of
time of nodes must not depend on that.

The monotonic clock stands still while a machine sleeps. That is wanted: processes of that machine slept too,
and none of them was silent. A job's time lags behind the date by what it slept or was without a machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")


class Clock(Protocol):
    """Source of the present time."""

    def now_s(self) -> float:
        """Return seconds since the epoch; never less than the value before."""
        ...


class Machine(Protocol):
    """The clocks of a machine."""

    @property
    def boot(self) -> str:
        """Name of what its monotonic clock counts from; empty: not known."""
        ...

    def wall_s(self) -> float:
        """Return the wall clock: seconds since the epoch, as far as it is set right."""
        ...

    def up_s(self) -> float:
        """Return the monotonic clock."""
        ...


class ThisMachine:
    """The machine that this process runs on."""

    @property
    def boot(self) -> str:
        """The kernel's id of its boot, and of the time namespace; empty where there is none."""
        try:
            return f"{_BOOT_ID.read_text().strip()} {_TIME_NAMESPACE.readlink()}"
        except OSError:
            return ""

    def wall_s(self) -> float:
        """Return the wall clock."""
        return time.time()

    def up_s(self) -> float:
        """Return the monotonic clock: the same for all processes of one boot."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment by two clocks.

    Parameters
    ----------
    at_s
        In the time of the job.
    up_s
        By the monotonic clock of `boot`.
    boot
        See `Machine`.
    """

    at_s: float
    up_s: float
    boot: str


class SystemClock:
    """Time that passes with the monotonic clock, from the wall clock's time at its making on.

    Parameters
    ----------
    machine
        Whose clocks are read.
    anchor
        A moment to count from instead, on the same boot of the machine.
    """

    def __init__(self, machine: Machine | None = None, anchor: Anchor | None = None) -> None:
        self._machine = machine = machine or ThisMachine()
        self.anchor = anchor or Anchor(machine.wall_s(), machine.up_s(), machine.boot)

    def now_s(self) -> float:
        """Return seconds since the epoch."""
        return self.anchor.at_s + (self._machine.up_s() - self.anchor.up_s)

    def continued(self, anchor: Anchor | None, last_s: float) -> SystemClock:
        """Return the clock of a job that began under another master.

        Parameters
        ----------
        anchor
            Of the job; None: not known, as of a job of release 0.1.
        last_s
            The latest time known of the job. The clock is never behind it.
        """
        machine = self._machine
        if anchor is not None and anchor.boot and anchor.boot == machine.boot:
            same = SystemClock(machine, anchor)
            if same.now_s() >= last_s:
                return same
        return SystemClock(machine, Anchor(last_s, machine.up_s(), machine.boot))
