"""What all processes of this machine use now, as the kernel counts it: no privileges are needed.

Cores are those that this process may run on, as in the capacity: in a container that was given some of a
machine's cores, others' use of the other cores is none of it. Memory is the machine's: what is not available
to new processes without swapping.
"""

from __future__ import annotations

import os

import psutil

from dlrover_nb.core.structs.cluster.cluster_load import Amount

SPAN_S = 0.1  # over which CPU time is counted: long against a tick of the kernel, short for who waits
_MIB = 1 << 20


def host_use() -> Amount:
    """Return the cores busy over the next `SPAN_S` seconds and the MiB in use; it waits that long."""
    busy = psutil.cpu_percent(SPAN_S, percpu=True)
    mine = [busy[core] for core in os.sched_getaffinity(0) if core < len(busy)]
    memory = psutil.virtual_memory()
    return Amount(round(sum(mine) / 100, 2), float((memory.total - memory.available) // _MIB))
