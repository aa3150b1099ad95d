"""Descriptors of one process that another one of the same user opens under ``/proc``.

The process is named by its number, and in a container of its own that would be another one: so what is opened
must be the inode that was named.
"""

from __future__ import annotations

import os
from pathlib import Path

from dlrover_nb.core.runtime.exchange.push_pull import DescriptorName


def named(descriptor: int) -> DescriptorName:
    """Return what another process opens this descriptor by, beside the number of this process."""
    return DescriptorName(descriptor, os.fstat(descriptor).st_ino)


def open_named(pid: int, name: DescriptorName) -> int:
    """Open a descriptor of another process for reading and writing, without waiting.

    Raises
    ------
    OSError, ValueError
        When this process cannot see the other's, or finds another one.
    """
    path = Path(f"/proc/{pid}/fd/{name.descriptor}")
    _check(path.stat(), name)  # before it is opened: a device could act on that
    opened = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(opened), name)
    except ValueError:
        os.close(opened)
        raise
    return opened


def _check(status: os.stat_result, name: DescriptorName) -> None:
    if status.st_ino != name.inode:
        raise ValueError(f"descriptor {name.descriptor} is not the one of the worker")
