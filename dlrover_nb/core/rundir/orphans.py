"""What jobs ended by force leave behind: sockets that no process serves, groups and memory without processes.

A process that is killed cannot clean up after itself.
Their checkpoints and logs are kept: they hold what the job learnt and why it ended.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.flash import sweep_memory
from dlrover_nb.core.runtime.limits import sweep_groups

if TYPE_CHECKING:
    from pathlib import Path


def sweep(jobs: Path) -> None:
    """Remove the remains of ended jobs whose run folders lie in `jobs`; living ones are left alone."""
    for path in jobs.glob("*/*"):
        with contextlib.suppress(OSError):  # another process sweeps at this moment
            if path.is_socket() and not _is_served(path):
                path.unlink()
    sweep_groups()
    sweep_memory()


def _is_served(path: Path) -> bool:
    """Whether somebody listens; a path that cannot be tried counts as served."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) != errno.ECONNREFUSED
