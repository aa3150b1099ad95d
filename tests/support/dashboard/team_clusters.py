"""Clusters for tests of the dashboard: in-process masters that a test moves by hand, or a simulated one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from support.jobs import builders
from support.jobs.masters import Master
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.views.summary import JobSummary

PLAN = ResourcePlan(RolePlan(1, 1.0, 4096), RolePlan(1, 1.0, 8192))
BOUNDS = PlanBounds(max_workers=4, max_ps=2, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))


class JobMaster(Master):
    """A master that can be stopped, and that decides nothing while it is away."""

    def decide(self, decision: Decision) -> Decision:
        if not self.reachable:
            raise BackendError("the master does not answer; it is asked again")
        return super().decide(decision)

    def stop(self, by: str, why: str) -> None:
        message = f"stopped by {by}{why and ': ' + why}"
        self.state = replace(self.state, phase=JobPhase.STOPPED, message=message)


class MastersCluster:
    """A cluster of in-process masters."""

    simulated, description = False, "masters of a test"

    def __init__(self, *masters: JobMaster) -> None:
        self.masters = {master.state.spec.name: master for master in masters}
        self.away = ""
        self.further: tuple[JobSummary, ...] = ()  # lines of jobs that are no more than that

    def capacity(self) -> Capacity:
        return Capacity((NodeShape(8, 32768),))

    def load(self) -> ClusterLoad:
        return ClusterLoad(
            (MachineLoad("big-one", Amount(8.0, 32768.0), (("ctr", Amount(2.5, 4096.0)),)),),
            ("nothing is measured",),
        )

    def live_jobs(self) -> tuple[JobSummary, ...]:
        if self.away:
            raise BackendError(self.away)
        masters = [master for master in list(self.masters.values()) if master.reachable]
        return (*(summarize(master.snapshot()) for master in masters), *self.further)

    def job(self, name: str) -> JobHandle:
        if name not in self.masters:
            raise NotFoundError(f"no job {name!r} here")
        return JobHandle(name, self.masters[name], user="server")


def job_snapshot(name: str = "quick-start", *, owner: str = "ada", **changes: object) -> JobSnapshot:
    """Return the snapshot of a job by another name."""
    base = builders.snapshot(**changes)
    proposals = tuple(replace(each, job=name) for each in base.proposals)
    return replace(base, spec=replace(base.spec, name=name, owner=owner), proposals=proposals)


def master_of(name: str = "quick-start", **changes: object) -> JobMaster:
    return JobMaster(job_snapshot(name, **changes))


@contextmanager
def masters_team(folder: Path, *clusters: object, url: str = "", **options: object) -> Iterator[Team]:
    """Give a team whose clusters are ``a``, ``b``, … and whose records lie in a folder, or at an address."""
    watched = {
        key: WatchedCluster(cluster, period_s=0.05)  # type: ignore[arg-type]  # as far as pages use one
        for key, cluster in zip("abcdef", clusters, strict=False)
    }
    for each in watched.values():
        until(lambda each=each: each.jobs().heard_s is not None or each.jobs().error, what="the list of jobs")
    url = url or f"sqlite:///{folder / 'team.sqlite'}"
    team = Team(watched, lambda: builders.START_S + 1000, url=url, **options)  # type: ignore[arg-type]
    try:
        yield team
    finally:
        team.close()


def simulated_cluster(*, namespace: str = "", speed: float = 600.0) -> WatchedCluster:
    """Return a watched simulated cluster; end its `core` after it."""
    return WatchedCluster(connect("sim", machines=4, speed=speed), namespace=namespace, period_s=0.1)


def submitted(cluster: WatchedCluster, name: str, *, proposes: bool = True, **fields: Any) -> JobHandle:
    """Return a job that trains, once it has a proposal."""
    spec = JobSpec(name, plan=PLAN, bounds=BOUNDS, n_epoch=100_000, **fields)
    handle = cluster.core.submit(spec)
    if proposes:
        until(lambda: handle.snapshot().open_proposal, f"a proposal of {name}")
    until(lambda: any(job.name == name for job in cluster.jobs().jobs), f"{name} in the list")
    return handle
