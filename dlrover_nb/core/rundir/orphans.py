"""Remains of jobs ended by force: sockets that no process serves, groups and memory without processes.

A killed process cannot clean up. Checkpoints and logs are kept: they hold the trained state and why the job
ended.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.checkpoints import sweep_memory
from dlrover_nb.core.runtime.process.limits import sweep_groups

if TYPE_CHECKING:
    from pathlib import Path


def sweep(jobs: Path) -> None:
    """Remove the remains of ended jobs whose run folders lie in `jobs`; live ones are not touched."""
    for folder in jobs.glob("*/"):
        remove_unserved(folder)
    sweep_groups()
    sweep_memory()


def remove_unserved(folder: Path) -> None:
    """Remove the sockets of processes that have ended from a folder."""
    with contextlib.suppress(OSError):  # another process is cleaning up
        for path in folder.iterdir():
            if path.is_socket() and not _is_served(path):
                path.unlink(missing_ok=True)


def _is_served(path: Path) -> bool:
    """Whether a process listens; a path that cannot be tried counts as served.

    A datagram is of another type than the sockets of nodes, which the kernel finds out after it has found the
    listener. A connection would be one of a stranger there, who is counted and shown as refused.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) != errno.ECONNREFUSED
