"""A cluster in memory that records what it is asked: it stands at the protocol seams `Cluster` and `MasterLink`.

Jobs on real processes and real Ray are tested elsewhere; here it is about words, routing and texts.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.client.cluster import still_runs
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.rundir.node_logs import newest
from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
from dlrover_nb.core.structs.decisions.decisions import (
    Decision,
    Proposal,
    ProposalKind,
    ProposalStatus,
    Verdict,
)
from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan, diff
from dlrover_nb.core.structs.training.shards import BatchChoice, ShardCounts
from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.training.shards import UserChoice

AT_S = 1_750_000_000.0
CAPACITY = Capacity((NodeShape(8.0, 16_384),))
BETTER = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.5, 512))


def candidate(now: ResourcePlan, plan: ResourcePlan, samples_per_s: float) -> Candidate:
    told = Prediction(samples_per_s, samples_per_s * 0.9, samples_per_s * 1.1, extrapolates=False)
    return Candidate(
        plan, told, 0.1, 0.01, 60.0, diff(now, plan), 2.0, 100.0, (), "two workers share the rows"
    )


def proposal(job: JobSpec, number: int, plan: ResourcePlan = BETTER) -> Proposal:
    now = candidate(job.plan, job.plan, 10_000.0)
    better = candidate(job.plan, plan, 18_000.0)
    return Proposal(f"p{number}", job.name, ProposalKind.IMPROVE, better, now, "faster", AT_S)


def refusal_of(plan: ResourcePlan) -> str:
    over = plan.total_cpu > CAPACITY.total_cpu
    return f"the plan needs {plan.total_cpu:g} cores, the cluster has 8" if over else ""


def snapshot_of(spec: JobSpec) -> JobSnapshot:
    return JobSnapshot(
        at_s=AT_S + 30,
        spec=spec,
        capacity=CAPACITY,
        phase=JobPhase.TRAINING,
        message="",
        mode=spec.mode,
        started_at_s=AT_S,
        ended_at_s=None,
        target=spec.plan,
        running=spec.plan,
        samples_per_s=10_000.0,
        loss=0.3,
        nodes=(),
        train=ShardCounts(5, 1, 4, 40_000, 100_000),
        evaluate=ShardCounts(),
        fit=None,
        curves=(),
        samples=(),
        front=None,
        memory=(),
        proposals=(),
        decisions=(),
        outcomes=(),
        markers=(),
        evaluation=None,
        story=("t+0 submitted",),
    )


class Link:
    """A job master that keeps a snapshot and every decision."""

    def __init__(self, spec: JobSpec) -> None:
        self.state = snapshot_of(spec)
        self.decisions: list[Decision] = []
        self.stopped: list[str] = []
        self.choices: list[UserChoice] = []
        self.on_snapshot: Callable[[], None] = lambda: None

    def snapshot(self) -> JobSnapshot:
        self.on_snapshot()
        return self.state

    def series(self, cursor: int) -> SeriesChunk:
        columns = {"at_s": [AT_S + 1], "samples_per_s": [9e3], "workers": [1.0], "ps": [1.0]}
        return SeriesChunk(1, columns if cursor == 0 else {key: [] for key in columns}, {})

    def decide(self, decision: Decision) -> Decision:
        action = self.state.open_mitigation
        opened = action if action is not None and action.id == decision.proposal else self.state.open_proposal
        answers = decision.verdict in {Verdict.ACCEPT, Verdict.OVERRIDE, Verdict.REJECT}
        if answers and (opened is None or opened.id != decision.proposal):
            raise StaleDecisionError(
                f"{decision.proposal} is no longer open", ("superseded by a better plan",)
            )
        self.decisions.append(replace(decision, id=f"d{len(self.decisions) + 1}"))
        return self.decisions[-1]

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        now = self.state.target
        return tuple(
            Weighed(plan, candidate(now, plan, 9_000.0 * plan.worker.count), refusal_of(plan))
            for plan in plans
        )

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        nodes = [told.id for told in self.state.nodes] or ["worker-0"]
        written = {name: [LogLine(AT_S, name, "INFO", f"{name} is up")] for name in nodes}
        return newest(written, node, n_line)

    def explain(self, proposal: str | None) -> Explanation:
        shown = {told.id: told for told in self.state.proposals}
        told = shown.get(proposal) if proposal else self.state.open_proposal
        if proposal and told is None:
            raise NotFoundError(f"job {self.state.spec.name} has no proposal {proposal!r}")
        now = candidate(self.state.target, self.state.target, 10_000.0)
        if told is None:
            return Explanation(self.state.target, None, now, now, "No plan is surely better.")
        return Explanation(told.candidate.plan, told.id, told.candidate, now, told.why)

    def choose(self, choice: UserChoice) -> None:
        if isinstance(choice, BatchChoice):
            self.choices.append(choice)
            return
        waiting = {told.shard: told for told in self.state.quarantined}
        if choice.shard not in waiting:
            raise InvalidValueError(f"shard {choice.shard} is not in quarantine; none is")
        del waiting[choice.shard]
        self.choices.append(choice)
        self.state = replace(self.state, quarantined=tuple(waiting.values()))

    def stop(self, by: str, why: str) -> None:
        assert by == "ada"
        self.stopped.append(why)
        self.end(JobPhase.STOPPED)

    def propose(self, number: int) -> None:
        kept = tuple(replace(p, status=ProposalStatus.SUPERSEDED) for p in self.state.proposals)
        self.state = replace(self.state, proposals=(*kept, proposal(self.state.spec, number)))

    def end(self, phase: JobPhase) -> None:
        self.state = replace(self.state, phase=phase, ended_at_s=AT_S + 60)


class MemoryCluster:
    """A `Cluster` that remembers its jobs."""

    user, namespace = "ada", ""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self.connected: list[tuple[str, str | None, float | None]] = []
        self.may_start: list[bool] = []
        self.options: list[dict[str, object]] = []
        self.own: list[tuple[object, object]] = []

    def connect(
        self,
        kind: str,
        address: str | None,
        *,
        start: bool = True,
        **options: object,
    ) -> MemoryCluster:
        if kind not in {"ray", "kubernetes"}:
            raise InvalidValueError(f"cannot connect to {kind!r}; choose from ray")
        self.connected.append((kind, address, options.pop("cpus", None)))
        self.options.append({name: value for name, value in options.items() if value is not None})
        self.may_start.append(start)
        return self

    simulated = False

    @property
    def description(self) -> str:
        return "a cluster in memory"

    def capacity(self) -> Capacity:
        return CAPACITY

    def load(self) -> ClusterLoad:
        return ClusterLoad(
            (
                MachineLoad(
                    "one", Amount(8.0, 16_384.0), (("ctr", Amount(0.75, 768.0)),), used=Amount(0.5, 600.0)
                ),
            )
        )

    def standing(self) -> ClusterAccess:
        return ClusterAccess()

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        self.own.append((model, data))
        if spec.plan.total_cpu > CAPACITY.total_cpu:
            raise CapacityError(f"the plan needs {spec.plan.total_cpu:g} cores, the cluster has 8")
        self.links[spec.name] = Link(spec)
        return JobHandle(spec.name, self.links[spec.name], user="ada")

    def jobs(self) -> tuple[JobSummary, ...]:
        return tuple(
            JobSummary(name, s.phase, "ada", AT_S, s.target, s.samples_per_s, 0.4, None, live=True)
            for name, s in ((name, link.state) for name, link in self.links.items())
        )

    def live_jobs(self) -> tuple[JobSummary, ...]:
        return self.jobs()

    def job(self, name: str) -> JobHandle:
        if name not in self.links:
            near = difflib.get_close_matches(name, self.links, n=1)
            raise NotFoundError(f"no job {name!r} here" + (f"; did you mean {near[0]}?" if near else ""))
        return JobHandle(name, self.links[name], user="ada")

    def delete(self, name: str, *, force: bool = False) -> str:
        phase = self.job(name).snapshot().phase
        if not phase.is_final and not force:
            raise InvalidValueError(still_runs(name, phase))
        del self.links[name]
        return f"job {name} is deleted"

    def shutdown(self, *, force: bool = False) -> str:
        if self.links and not force:
            raise InvalidValueError("1 job(s) still run here; stop them first, or shutdown --force")
        return "the cluster in memory has ended"
