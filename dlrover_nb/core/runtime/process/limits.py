"""CPU and memory limits of a node, enforced by the kernel where permitted.

A plan of 0.25 cores means nothing on a machine where the process may use any number, and the fit of Eqs. 1-6
would learn from wrong numbers. The CFS bandwidth controller gives a control group ``quota`` microseconds of
CPU in each ``period``. The usual period of 100 ms would show in iterations of 20 ms as full speed followed by
a long stop; we use 20 ms, and a longer one only for shares whose quota would fall below the millisecond that
the kernel requires. All threads of the process count together.

A node that exceeds its memory takes it from others, which the kernel may then kill; in a control group of its
own the kernel kills the node at fault, and the group shows that. Memory that a process had before it entered
the group (its imports) is not charged to it, so the group's limit is the rest. A smaller plan than that would
kill every node at once, so there is always a minimum.

A quota bounds a node and gives it nothing: on a busy host the kernel divides the processors by weight. Among
themselves nodes weigh what their cores weigh. Their common parent weighs what they would weigh together as
plain processes: 1024 for each, and more for a node of more than one core. With the weight of one process,
which a new group has, all nodes of all jobs of a host shared what one busy loop beside them got (measured: 3
workers beside 2 loops trained at .45 of their speed). The parent is weighed anew whenever a node enters,
leaves, is resized, or is found dead.

Works with cgroup v1 and v2 where this process may create groups (root in most containers); otherwise `apply`
returns what is advisory, and the node reports that in its Hello. Groups lie under ``dlrover-nb`` in the
process's own group (v1), so a limit above still holds; in v2 at the top of the mounted tree, since a v2 group
that holds processes may not have limited children.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import logging
import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

_log = logging.getLogger(__name__)

ROOT = Path("/sys/fs/cgroup")
# of a node's memory, by what it holds and copies of parameters; both may grow between two checks
MOST_USED = 7 / 8
_FOLDER = "dlrover-nb"
_PERIOD_US = 20_000
_LEAST_QUOTA_US = 1_000  # the kernel refuses less
_LONGEST_PERIOD_US = 1_000_000  # and more
_MIB = 1 << 20
_LEAST_ROOM_MIB = 128
_FILES_OF_WEIGHT = {False: "cpu.shares", True: "cpu.weight"}  # by v2
_WEIGHT_OF_PROCESS = {False: 1024, True: 100}  # the kernel's of a process of nice 0, and of a new group
_WEIGHTS = {False: (2, 262_144), True: (1, 10_000)}  # that the kernel takes
_ASKED_WITHIN_S = 60.0


def quota_us(cpu: float) -> tuple[int, int]:
    """Return (quota, period) in microseconds for a share of `cpu` cores."""
    period = min(max(_PERIOD_US, round(_LEAST_QUOTA_US / cpu)), _LONGEST_PERIOD_US)
    return max(round(cpu * period), _LEAST_QUOTA_US), period


def weight(cpu: float, *, is_v2: bool) -> int:
    """Return the weight of a group of `cpu` cores against others, in the units of its kind of group."""
    least, most = _WEIGHTS[is_v2]
    return min(max(round(cpu * _WEIGHT_OF_PROCESS[is_v2]), least), most)


def thread_count(cpu: float) -> int:
    """Return how many threads to compute with: one per whole core, at least one."""
    return max(1, int(cpu))


def thread_variables(cpu: float) -> dict[str, str]:
    """Return the variables that give libraries as many threads as the plan has cores, without spinning.

    They are read when a library is loaded.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS")
    return dict.fromkeys(names, str(thread_count(cpu))) | {"OMP_WAIT_POLICY": "PASSIVE"}


class Enforced(NamedTuple):
    """Which limits of a node the kernel enforces; the others are advisory."""

    cpu: bool
    memory: bool


class ControlGroupLimits:
    """The control groups of this process; nothing is changed before `apply`.

    Parameters
    ----------
    name
        Of the groups; the process id is added.
    root
        Where the control groups are mounted.
    """

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self._name = f"{name}-{os.getpid()}"
        self._root = root
        self._before: dict[Path, Path] = {}  # our groups, and where this process was before each
        self._entered: dict[str, Path] = {}  # our group by controller
        self._own_bytes: int | None = None  # of this process when it entered them

    def apply(self, cpu: float, memory_mib: int) -> Enforced:
        """Limit this process, with all its threads, to `cpu` cores and `memory_mib`.

        To be repeated with others; where those are refused, the limits before stay.
        """
        quota, period = quota_us(cpu)
        if self._own_bytes is None:
            self._own_bytes = psutil.Process().memory_info().rss
        n_byte = _rest_of(memory_mib, self._own_bytes)
        if _is_v2(self._root):
            cpu_files, memory_files = {"cpu.max": f"{quota} {period}"}, {"memory.max": str(n_byte)}
        else:
            cpu_files = {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}
            memory_files = {"memory.limit_in_bytes": str(n_byte)}
        is_v2 = _is_v2(self._root)
        cpu_files[_FILES_OF_WEIGHT[is_v2]] = str(weight(cpu, is_v2=is_v2))
        enforced = Enforced(self._limit("cpu", cpu_files), self._limit("memory", memory_files))
        if enforced.cpu:
            _weigh(self._entered["cpu"].parent, is_v2=is_v2)
        return enforced

    def release(self) -> None:
        """Return to the previous groups and remove ours."""
        for group in tuple(self._before):
            self._leave(group)

    def _limit(self, controller: str, files: dict[str, str]) -> bool:
        group = self._entered.get(controller)
        return self._enter(controller, files) if group is None else self._change(group, files)

    def _change(self, group: Path, files: dict[str, str]) -> bool:
        try:
            for name, value in files.items():
                (group / name).write_text(value)
        except OSError as error:
            _log.warning("the limits of %s stay as they were: %s", group, error)
            return False
        return True

    def _enter(self, controller: str, files: dict[str, str]) -> bool:
        group = None
        try:
            before, parent = _places(self._root, controller)
            parent.mkdir(exist_ok=True)
            _sweep(parent)
            group = parent / self._name
            group.mkdir(exist_ok=True)
            self._before.setdefault(group, before)
            if _is_v2(self._root):
                for folder in (self._root, parent):
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")
            for name, value in files.items():
                (group / name).write_text(value)
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            _log.info("the %s of %s is advisory: %s", controller, self._name, error)
            if group is not None and not _is_v2(self._root):
                self._leave(group)
            return False
        self._entered[controller] = group
        return True

    def _leave(self, group: Path) -> None:
        before = self._before.pop(group, None)
        with contextlib.suppress(OSError):
            if before is not None:
                (before / "cgroup.procs").write_text(str(os.getpid()))
                group.rmdir()
        _weigh(group.parent, is_v2=_is_v2(self._root))


def _weigh(parent: Path, *, is_v2: bool) -> None:
    """Give the parent of the nodes' groups the weight that they have together.

    One process at a time: the last one of those that enter or leave at once then counts them all.
    """
    name, each = _FILES_OF_WEIGHT[is_v2], _WEIGHT_OF_PROCESS[is_v2]
    with contextlib.suppress(OSError):  # no groups of processors here, or not ours to change
        folder = os.open(parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            weights = [int((group / name).read_text()) for group in parent.iterdir() if group.is_dir()]
            together = min(max(sum(max(w, each) for w in weights), each), _WEIGHTS[is_v2][1])
            if int((parent / name).read_text()) != together:
                (parent / name).write_text(str(together))
        finally:
            os.close(folder)


def _rest_of(memory_mib: int, own_bytes: int) -> int:
    """Return the bytes that this process may take beyond what it had: only these are charged to its group."""
    return max(memory_mib * _MIB - own_bytes, _LEAST_ROOM_MIB * _MIB)


def was_out_of_memory(name: str, pid: int | None = None) -> bool:
    """Whether the kernel killed a node of that name when out of memory; if so, remove its group."""
    with contextlib.suppress(OSError):  # no control groups here
        for group in _places(ROOT, "memory")[1].glob(f"{glob.escape(name)}-{pid or '*'}"):
            if _is_dead(group) and _has_oom_kill(group):
                with contextlib.suppress(OSError):  # what the node had started may still be in it
                    group.rmdir()
                return True
    return False


def sweep_groups() -> None:
    """Remove the groups of nodes that were killed, as far as they stand beside those of this process."""
    for controller in ("cpu", "memory"):
        with contextlib.suppress(OSError):  # no control groups here, so none of ours either
            parent = _places(ROOT, controller)[1]
            _sweep(parent)
            _weigh(parent, is_v2=_is_v2(ROOT))


def _is_v2(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def own_group(controller: str, root: Path = ROOT) -> tuple[Path, bool]:
    """Return the group of this process for a controller, and whether it is of v2; raises `OSError`."""
    return _places(root, controller)[0], _is_v2(root)


def _places(root: Path, controller: str) -> tuple[Path, Path]:
    """Return this process's present group and the parent of the nodes' groups."""
    own, is_v2 = _own_groups(), _is_v2(root)
    mount, path = (root, own.get("", "")) if is_v2 else (root / controller, own.get(controller, ""))
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

    An empty group may be one that a living process has just made, so the process of its name decides. One in
    which the kernel killed a node is kept for a while, so that the reason can be read.
    """
    for group in parent.iterdir():
        with contextlib.suppress(OSError):
            if _is_dead(group) and (not _has_oom_kill(group) or _is_old(group)):
                group.rmdir()


def _is_dead(group: Path) -> bool:
    pid = group.name.rpartition("-")[2]
    return group.is_dir() and pid.isdecimal() and not Path("/proc", pid).exists()


def _is_old(group: Path) -> bool:
    return time.time() - group.stat().st_mtime > _ASKED_WITHIN_S


def _has_oom_kill(group: Path) -> bool:
    """Whether the kernel killed a process of the group (v1: `memory.oom_control`, v2: `memory.events`)."""
    for name in ("memory.oom_control", "memory.events"):
        with contextlib.suppress(OSError):
            for line in (group / name).read_text().splitlines():
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count) > 0
    return False
