"""The CPU share of a node, enforced by the kernel where we may.

A plan that says 0.25 cores means nothing on a machine where the process may take what it likes, and the
fit of Eqs. 1-6 would learn from numbers that were not so. The CFS bandwidth controller gives a control group
``quota`` microseconds of CPU in each ``period``. The usual period of 100 ms would show in iterations of 20 ms
as full speed followed by a long stop; we take 20 ms, and a longer one only for shares whose quota would
fall below the millisecond that the kernel asks for. All threads of the process count together.

Works with cgroup v1 and v2 where this process may make groups (root in most containers); else
`CpuLimit.apply` returns False, the share is advisory, and the node says so in its Hello. Groups lie under
``dlrover-nb`` in the process's own group (v1), so a limit that stands above still holds; in v2 at the top of
the mounted tree, since a v2 group that holds processes may not have limited children.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

_log = logging.getLogger(__name__)

ROOT = Path("/sys/fs/cgroup")
_FOLDER = "dlrover-nb"
_PERIOD_US = 20_000
_LEAST_QUOTA_US = 1_000  # the kernel refuses less
_LONGEST_PERIOD_US = 1_000_000  # and more


def quota_us(cpu: float) -> tuple[int, int]:
    """Return (quota, period) in microseconds for a share of `cpu` cores."""
    period = min(max(_PERIOD_US, round(_LEAST_QUOTA_US / cpu)), _LONGEST_PERIOD_US)
    return max(round(cpu * period), _LEAST_QUOTA_US), period


def thread_count(cpu: float) -> int:
    """Return how many threads to compute with: one per whole core, at least one."""
    return max(1, int(cpu))


class CpuLimit:
    """The control group of this process; nothing is changed before `apply`.

    Parameters
    ----------
    name
        Of the group; the process id is added.
    root
        Where the control groups are mounted.
    """

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self._name = f"{name}-{os.getpid()}"
        self._root = root
        self._group: Path | None = None
        self._before: Path | None = None

    def apply(self, cpu: float) -> bool:
        """Limit this process, with all its threads, to `cpu` cores; whether the kernel enforces it."""
        try:
            self._before, parent = _places(self._root)
            parent.mkdir(exist_ok=True)
            _sweep(parent)
            self._group = parent / self._name
            self._group.mkdir(exist_ok=True)
            self._write_quota(cpu)
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            _log.info("the CPU share of %s is advisory: %s", self._name, error)
            self.release()
            return False
        return True

    def release(self) -> None:
        """Go back to the group of before and remove ours."""
        with contextlib.suppress(OSError):
            if self._group is not None and self._before is not None:
                (self._before / "cgroup.procs").write_text(str(os.getpid()))
                self._group.rmdir()
        self._group = None

    def _write_quota(self, cpu: float) -> None:
        assert self._group is not None
        quota, period = quota_us(cpu)
        if _is_v2(self._root):
            for folder in (self._root, self._group.parent):
                (folder / "cgroup.subtree_control").write_text("+cpu")
            (self._group / "cpu.max").write_text(f"{quota} {period}")
        else:
            (self._group / "cpu.cfs_period_us").write_text(str(period))
            (self._group / "cpu.cfs_quota_us").write_text(str(quota))


def sweep_groups(root: Path = ROOT) -> None:
    """Remove the groups of nodes that were killed, as far as they stand beside those of this process."""
    with contextlib.suppress(OSError):  # no control groups here, so none of ours either
        _sweep(_places(root)[1])


def _is_v2(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def _places(root: Path) -> tuple[Path, Path]:
    """Return this process's present group and the parent of the nodes' groups."""
    own, is_v2 = _own_groups(), _is_v2(root)
    mount, path = (root, own.get("", "")) if is_v2 else (root / "cpu", own.get("cpu", ""))
    before = mount / path.lstrip("/")
    if not before.is_dir():  # a container may see the host's path, and its own group as the top
        before = mount
    return before, (mount if is_v2 else before) / _FOLDER


def _own_groups() -> dict[str, str]:
    """Return the path of this process's group by controller; v2's is the one named ''."""
    groups: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _sweep(parent: Path) -> None:
    """Remove groups whose process was killed before it could.

    An empty group may be one that a living process has just made, so the process of its name decides.
    """
    for group in parent.iterdir():
        pid = group.name.rpartition("-")[2]
        if group.is_dir() and pid.isdecimal() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                group.rmdir()
