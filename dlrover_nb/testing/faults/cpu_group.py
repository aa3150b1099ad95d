"""The CPU quota of a node's control group: read, lowered, and set back.

A node enters a group of its own where that is permitted (`core.runtime.process.limits`). We lower the quota
of that group and make none: moving a process into another one would take its memory limit along in v2. A node
that is resized in place writes its quota anew; `renewed` then lowers the new one, and it is the new one that
is set back.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass
from pathlib import Path

from dlrover_nb.core.runtime.process.limits import ROOT, quota_us

FOLDER = "dlrover-nb"  # the parent of nodes' groups
_V2, _PERIOD, _QUOTA = "cpu.max", "cpu.cfs_period_us", "cpu.cfs_quota_us"


@dataclass(frozen=True, slots=True)
class Quota:
    """A group's quota as it was, and as we set it; values of its files, in the order to write them."""

    group: str
    before: tuple[tuple[str, str], ...]
    ours: tuple[tuple[str, str], ...]

    @property
    def words(self) -> str:
        """Both as text."""
        return f"{_cores(self.ours):.3g} cores instead of {_cores(self.before):.3g}"


def own_group(pid: int, name: str) -> Path | None:
    """Return the control group that a node made for itself; None: it has none with a quota.

    Parameters
    ----------
    name
        Of the group as the node made it, without the process id.
    """
    path = _paths(pid).get("" if (ROOT / "cgroup.controllers").exists() else "cpu", "")
    if Path(path).name != f"{name}-{pid}" or Path(path).parent.name != FOLDER:
        return None  # one that it shares with others
    mount = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "cpu"
    for group in (mount / path.lstrip("/"), mount / FOLDER / Path(path).name):  # a container sees its own top
        if group.is_dir() and cores_of(group) is not None:
            return group
    return None


def cores_of(group: Path) -> float | None:
    """Return the cores that a group may use; None: any number."""
    return _cores(_values(group))


def lowered(group: Path, share: float) -> Quota:
    """Return a share of a group's quota, which `write` sets; raises `OSError`."""
    before = _values(group)
    cores = _cores(before)
    if cores is None:
        raise OSError(errno.EINVAL, "it has no quota", str(group))
    quota, period = quota_us(cores * share)
    ours = {_V2: f"{quota} {period}"} if _V2 in dict(before) else {_PERIOD: str(period), _QUOTA: str(quota)}
    return Quota(str(group), before, tuple(ours.items()))


def write(quota: Quota) -> None:
    """Set a quota; raises `OSError`."""
    _write(Path(quota.group), quota.ours)


def renewed(quota: Quota, share: float) -> Quota:
    """Return the same quota, or a share of the one that the node has set meanwhile; raises `OSError`."""
    group = Path(quota.group)
    return quota if _values(group) == quota.ours else lowered(group, share)


def set_back(quota: Quota) -> None:
    """Set a quota back, unless the node has set another one or its group has gone with it."""
    half_written = (*quota.ours[:-1], *quota.before[-1:])  # by an injector that was killed just then
    with contextlib.suppress(OSError):
        group = Path(quota.group)
        if _values(group) in {quota.ours, half_written}:
            _write(group, quota.before)


def _paths(pid: int) -> dict[str, str]:
    """Return the path of a process's group by controller; v2's is the one named ''."""
    paths: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _values(group: Path) -> tuple[tuple[str, str], ...]:
    names = (_V2,) if (group / _V2).exists() else (_PERIOD, _QUOTA)
    return tuple((name, (group / name).read_text().strip()) for name in names)


def _cores(values: tuple[tuple[str, str], ...]) -> float | None:
    """Return the quota in cores; None: there is none."""
    texts = dict(values)
    quota, period = texts[_V2].split() if _V2 in texts else (texts[_QUOTA], texts[_PERIOD])
    return None if quota in {"max", "-1"} else int(quota) / int(period)


def _write(group: Path, values: tuple[tuple[str, str], ...]) -> None:
    for name, value in values:
        (group / name).write_text(value)
