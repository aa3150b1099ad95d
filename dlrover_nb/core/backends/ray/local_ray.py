"""The local head of this user as calls of a shell need it: Ray's client is loaded for what only Ray knows.

Jobs are listed and asked over loopback (`near_masters`). The rest (what the machine has, submits, deletions,
the end of the head) goes to `RayCluster`, to which the first such call connects.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.ray.near_masters import NearLink, address_of, addresses, runs_of
from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.client.cluster import OfThisAccount, no_job
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.client.link.rollcall import live_summaries
from dlrover_nb.core.client.past.history_queries import past_jobs
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.rundir.last_share import last_share
from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.backends.ray.cluster import RayCluster
    from dlrover_nb.core.backends.ray.head import HeadRecord
    from dlrover_nb.core.client.link.calls import Answer, Call
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity

SUMMARY_LIMIT_S = 2.0  # a training master answers in milliseconds
JOBS_OF_OTHERS = "RAY_API_SERVER_ADDRESS"  # variable that names where Ray serves them; our head serves none


class LocalRay(OfThisAccount):
    """The local head of this user, joined by Ray's client only where that is needed.

    Parameters
    ----------
    head
        The head, which runs.
    """

    def __init__(self, head: HeadRecord) -> None:
        self._head = head
        self._by_ray: RayCluster | None = None
        self._lock = threading.Lock()

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return False

    @property
    def description(self) -> str:
        """One line: kind, address and capacity."""
        return self._ray().description

    def capacity(self) -> Capacity:
        """Return the capacity for jobs."""
        return self._ray().capacity()

    def load(self) -> ClusterLoad:
        """Return what the machine has, who holds it, and what is used."""
        return self._ray().load()

    def standing(self) -> ClusterAccess:
        """Return no restrictions: everyone who reaches it has all rights."""
        return ClusterAccess()

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return at once; see `Cluster.submit`."""
        return self._ray().submit(spec, model=model, data=data)

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first: those with a live master, then those only in the history."""
        runs = runs_of(self._head)
        if addresses(runs, self._head) is None:
            return self._ray().jobs()
        live = {summary.name: summary for summary in self._live(runs)}
        answered = [live.get(name) or _without_answer(name, folder) for name, folder in runs.items()]
        past = [summary for summary in past_jobs() if summary.name not in runs]
        return tuple(sorted([*answered, *past], key=lambda s: s.started_at_s, reverse=True))

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs whose masters answer at once, newest first."""
        runs = runs_of(self._head)
        return self._ray().live_jobs() if addresses(runs, self._head) is None else self._live(runs)

    def job(self, name: str) -> JobHandle:
        """Find a job by name; for one only in the history, the error says how to read it."""
        runs = runs_of(self._head)
        if name in runs and address_of(runs[name], self._head) is not None:
            return JobHandle(name, NearLink(name, runs[name], self._head, partial(self._send_by_ray, name)))
        if addresses(runs, self._head) is None:
            return self._ray().job(name)
        raise NotFoundError(no_job(name, f"at {self._head.address}", runs, {job.name for job in past_jobs()}))

    def delete(self, name: str, *, force: bool = False) -> str:
        """Remove a job: its master, its run folders on this machine; see `Cluster.delete`."""
        return self._ray().delete(name, force=force)

    def shutdown(self, *, force: bool = False) -> str:
        """End the head; refused while jobs run, unless forced."""
        return self._ray().shutdown(force=force)

    def unmanaged_jobs(self) -> tuple[UnmanagedJob, ...]:
        """Return Ray jobs of others, newest first: none, unless a variable says where they are served."""
        return self._ray().unmanaged_jobs() if os.environ.get(JOBS_OF_OTHERS) else ()

    def unmanaged_log(self, job: UnmanagedJob, n_line: int) -> tuple[str, ...]:
        """Return the last lines that one of them wrote."""
        return self._ray().unmanaged_log(job, n_line)

    def _send_by_ray(self, name: str, call: Call) -> Answer:
        """Send a call to the master of a job through Ray, which restarts one that was killed."""
        return self._ray().link(name).send(call)

    def _live(self, runs: dict[str, Path]) -> tuple[JobSummary, ...]:
        links = {
            name: NearLink(name, folder, self._head, _refuse, limit_s=SUMMARY_LIMIT_S)
            for name, folder in runs.items()
        }
        return live_summaries(links)

    def _ray(self) -> RayCluster:
        with self._lock:
            if self._by_ray is None:
                tell("Ray to load")
                from dlrover_nb.core.backends.ray.cluster import connect_ray  # noqa: PLC0415 - see the module

                self._by_ray = connect_ray(None)
            return self._by_ray


def _refuse(call: Call) -> Answer:
    raise BackendError(f"no answer to {type(call).__name__}: the master is starting again")


def _without_answer(name: str, folder: Path) -> JobSummary:
    """Return the line of a job whose master is too busy to answer."""
    why = f"not within {SUMMARY_LIMIT_S:g} s; its master is busy or stopped"
    began_s, done = folder.stat().st_mtime, last_share(folder)
    return JobSummary(name, JobPhase.STARTING, "", began_s, None, 0.0, done, None, live=False, message=why)
