"""Slow a node of a real job on this machine, to see what the job and its plans make of a straggler.

`slow` does it in one of three ways: a pattern of delays per iteration (`Persistent`, `Transient`, or several
`Together`), a `CpuShare`, or a `Latency` of the requests to a PS. All of them work on the running processes
from outside. A hook in the loop of workers and PS was rejected: it would be code for tests in the path of
every iteration, and jobs of other releases would not have it.
"""

from __future__ import annotations

from dlrover_nb.testing.faults.fault import Fault, restore, slow
from dlrover_nb.testing.faults.patterns import Pattern, Persistent, Together, Transient, delay_s, in_time
from dlrover_nb.testing.faults.ways import CpuShare, Latency

__all__ = [
    "CpuShare",
    "Fault",
    "Latency",
    "Pattern",
    "Persistent",
    "Together",
    "Transient",
    "delay_s",
    "in_time",
    "restore",
    "slow",
]
