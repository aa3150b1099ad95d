"""Find the process of a node, and refuse one that is not of the job or not of this machine.

A snapshot has a node's process id, but not its host: a number of another host may be any process here. So
the process must hold what only the node holds: the file of the run folder that its standard error goes to,
which is so for local processes and for actors of a local Ray alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psutil

from dlrover_nb.core.driver.detached import start_time
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.runtime.process.output import output_path

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import Role
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

_ELSEWHERE = (
    "run this on the node's machine; in a pod, choose a plan with less CPU, or have its network delayed "
    "(tc qdisc add dev eth0 root netem delay 20ms)"
)


class Snapshots(Protocol):
    """A job with a state to read: `dlrover_nb.api.Job`, a `JobHandle`, or a job's driver in this process."""

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """A node's process on this machine; `iter_s` is its last reported iteration, 0: none."""

    job: str
    node: str
    role: Role
    pid: int
    started_at_s: float
    folder: Path
    heartbeat_timeout_s: float
    iter_s: float


def find_target(job: Snapshots, node: str) -> Target:
    """Return the process of a node of a running job.

    Raises
    ------
    NotFoundError
        When the job has no such node.
    InvalidValueError
        When the node's process does not run, or not on this machine.
    """
    snapshot = job.snapshot()
    name = snapshot.spec.name
    if snapshot.simulated:
        raise InvalidValueError(f"job {name} is simulated: it has no processes to slow; submit a real job")
    view = _view(snapshot, node)
    if view.pid is None:
        raise InvalidValueError(f"{node} has no process yet (it is {view.state}); wait until it runs")
    folder = Path(snapshot.folder) if snapshot.folder else None
    try:
        started_at_s = start_time(view.pid)
        is_of_job = folder is not None and _writes_to(view.pid, output_path(folder, node, "stderr"))
    except (psutil.NoSuchProcess, FileNotFoundError):
        is_of_job = False
    except PermissionError as error:
        raise InvalidValueError(
            f"process {view.pid} of {node} belongs to another account; use the job's own"
        ) from error
    if folder is None or not is_of_job:
        raise InvalidValueError(
            f"process {view.pid} on this machine is not {node} of job {name}: the node has ended, or runs on "
            f"another machine; {_ELSEWHERE}"
        )
    return Target(
        name,
        node,
        view.role,
        view.pid,
        started_at_s,
        folder,
        snapshot.spec.heartbeat_timeout_s,
        view.last.iter_s if view.last is not None else 0.0,
    )


def _view(snapshot: JobSnapshot, node: str) -> NodeView:
    view = next((view for view in snapshot.nodes if view.id == node), None)
    if view is None:
        nodes = ", ".join(view.id for view in snapshot.nodes) or f"none: the job is {snapshot.phase}"
        raise NotFoundError(f"job {snapshot.spec.name} has no node {node}; its nodes are {nodes}")
    return view


def _writes_to(pid: int, log: Path) -> bool:
    """Whether the standard error of a process is this file."""
    return log.exists() and Path(f"/proc/{pid}/fd/2").samefile(log)
