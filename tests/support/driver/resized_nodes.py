"""Local jobs whose nodes are resized in place, and the limits that the machine enforces for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import LocalBackend
from support.driver.real_job import plan

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

V1 = Path("/sys/fs/cgroup")
BEFORE = plan(2, 2, worker_cpu=0.4, ps_cpu=0.2)


class Resizing(LocalBackend):
    def __init__(self, folder: Path, *, cpus: float) -> None:
        super().__init__(folder, cpus=cpus, resizes=True)


def limit(pid: int, controller: str, name: str) -> int:
    """Return a limit of the control group that a process is in."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return int((V1 / controller / path.lstrip("/") / name).read_text())
    raise AssertionError(f"no group of {controller}")


def pids(now: JobSnapshot) -> dict[str, int | None]:
    return {node.id: node.pid for node in now.nodes}
