"""The limits of the container of this process, set by the kubelet and enforced by the kernel.

A node in a pod creates no control groups (`core.runtime.process.limits`): it may not, and the pod already has
the plan's CPU and memory as its limits. They are read and compared all the same: rules of a namespace may
have changed them, and a measurement counts for a plan only if the plan is enforced.

The memory limit charges more than the process holds, and less: pages of ``/dev/shm`` count, whichever process
maps them; pages of files count too, but the kernel reclaims those before it kills a process. So a node in a
container reports the charged memory of its group without pages of files. The kubelet's own figure, the
working set, includes pages of files that were read twice: data that are read once per epoch would look like a
leak.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.process.limits import ROOT, Enforced, own_group

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

_MIB = 1 << 20
_NEAR = 0.05  # tolerance between limit and plan: Kubernetes counts in thousandths of a core


class ContainerLimits:
    """The limits of this container, which are only read.

    Parameters
    ----------
    root
        Where the control groups are mounted.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root

    def apply(self, cpu: float, memory_mib: int) -> Enforced:
        """Return whether the container's limits are those of the plan."""
        limits = cpu_limit(self._root), memory_limit(self._root)
        mib = limits[1] and round(limits[1] / _MIB)
        _log.info("the container may take %s cores and %s MiB", limits[0], mib)
        return Enforced(_is_near(limits[0], cpu), _is_near(limits[1], memory_mib * _MIB))

    def release(self) -> None:
        """Do nothing: the limits go with the container."""


def _is_near(limit: float | None, planned: float) -> bool:
    return limit is not None and abs(limit - planned) <= _NEAR * planned


def cpu_limit(root: Path = ROOT) -> float | None:
    """Return how many cores this process's group may take; None: as many as there are."""
    try:
        group, is_v2 = own_group("cpu", root)
        if is_v2:
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 else None
    except (OSError, ValueError):
        return None


def memory_limit(root: Path = ROOT) -> int | None:
    """Return how many bytes this process's group may take; None: as many as there are."""
    try:
        group, is_v2 = own_group("memory", root)
        return int((group / ("memory.max" if is_v2 else "memory.limit_in_bytes")).read_text())
    except (OSError, ValueError):  # v2 says "max"
        return None


def charged_bytes(root: Path = ROOT) -> int | None:
    """Return the unreclaimable memory charged to this process's group; None: unknown."""
    with contextlib.suppress(OSError, ValueError):
        group, is_v2 = own_group("memory", root)
        charged = int((group / ("memory.current" if is_v2 else "memory.usage_in_bytes")).read_text())
        return max(0, charged - _file_bytes((group / "memory.stat").read_text(), is_v2=is_v2))
    return None


def _file_bytes(stat: str, *, is_v2: bool) -> int:
    """Return the bytes of pages of files; v1 tells those of the group alone, and with its children."""
    prefix = "" if is_v2 else "total_"
    fields = dict(line.split() for line in stat.splitlines())
    return sum(int(fields.get(f"{prefix}{name}_file", 0)) for name in ("active", "inactive"))
