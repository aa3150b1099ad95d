"""Kills the master of a local job for good: what would start it again goes first."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.record import read_master, read_supervisor
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.backends.local.record import MasterRecord


def kill_for_good(folder: Path) -> MasterRecord:
    """Kill supervisor and master of a run folder; return the address of that master once both are gone."""
    master, supervisor = read_master(folder), read_supervisor(folder)
    assert master is not None
    for process in (supervisor, master):
        if process is not None and process.is_alive:
            os.kill(process.pid, signal.SIGKILL)
    until(lambda: not master.is_alive, what="the end of the master")
    return master
