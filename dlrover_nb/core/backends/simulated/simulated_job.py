"""One simulated job: its controller, its telemetry, its snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.driver.loop import job_snapshot
from dlrover_nb.core.driver.loop.own_actions import perform
from dlrover_nb.core.driver.policies import find_policy
from dlrover_nb.core.rundir.node_logs import N_GONE, newest
from dlrover_nb.core.straggler.methods import find_methods
from dlrover_nb.core.structs.decisions.actions import MitigationChoice
from dlrover_nb.core.structs.decisions.decisions import Decision, version_of
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.offers import NoOffer
from dlrover_nb.core.structs.views.events import (
    EndJob,
    Mitigate,
    MitigationEnded,
    NodeOutOfMemory,
    NodeReported,
    ProgressMade,
    Remember,
    Scale,
)
from dlrover_nb.core.structs.views.past_jobs import FitSummary, PastJob
from dlrover_nb.core.structs.views.summary import JobSummary, holding, left_s, outlook_of, share_done
from dlrover_nb.core.telemetry import JobTelemetry

if TYPE_CHECKING:
    from dlrover_nb.core.controller.plan_queries import PlanQueries
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.simulator import SimJob
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.offers import Offer
    from dlrover_nb.core.structs.views.events import Decided, Event, Instruction, JobSubmitted
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

WorldOrders = tuple[Scale | Mitigate | EndJob, ...]
N_JOB_ROW, N_NODE_ROW = 2000, 10_000  # per job: a hundred jobs share one process


class SimulatedRun:
    """One job of a `SimulatedCluster`, whose loop is the only caller.

    Parameters
    ----------
    job
        The job in the simulated world.
    submitted
        The first event of the job.
    capacity
        Of all machines.
    settings
        Of its controller.
    """

    def __init__(
        self, job: SimJob, submitted: JobSubmitted, capacity: Capacity, settings: ControllerSettings
    ) -> None:
        self._job, self._capacity = job, capacity
        self._controller = Controller(
            submitted,
            settings,
            policy=find_policy(submitted.spec.policy),
            stragglers=find_methods(submitted.spec),
        )
        self._telemetry = JobTelemetry(n_job_row=N_JOB_ROW, n_node_row=N_NODE_ROW)
        self._lines: dict[str, list[LogLine]] = {}  # of each node, the dead ones too
        self._fit: FitSummary | None = None

    @property
    def name(self) -> str:
        """The job's name."""
        return self._job.job.spec.name

    @property
    def phase(self) -> JobPhase:
        """Phase of the job."""
        return self._job.phase

    @property
    def past(self) -> PastJob | None:
        """What later jobs can learn from it; None until it has succeeded, or without known traits."""
        traits = self._job.job.traits
        if traits is None or self.phase is not JobPhase.SUCCEEDED:
            return None
        return PastJob(traits, self._job.job.spec.plan, self._job.target, self._fit)

    def offer(self) -> Offer:
        """Return the plans that the job could use, or why it takes no part in a choice among jobs."""
        if self.phase is not JobPhase.TRAINING:
            return NoOffer(f"it is {self.phase}")
        return self._controller.queries().offer()

    def handle(self, event: Event) -> WorldOrders:
        """Handle an event; return the orders to the world."""
        self._note(event)
        if isinstance(event, NodeReported):
            self._telemetry.record_node(event.sample)
        elif isinstance(event, ProgressMade):
            plan = self._job.running or self._job.target
            speed = self._job.samples_per_s
            shards = self._job.train_counts
            self._telemetry.record_job(event.at_s, speed, plan.worker.count, plan.ps.count, shards=shards)
        instructions = self._carried_out(event.at_s, self._controller.handle(event))
        for instruction in instructions:
            if isinstance(instruction, Remember) and isinstance(instruction.record, FitSummary):
                self._fit = instruction.record
        return _of_world(instructions)

    def _carried_out(self, at_s: float, instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        """Carry out actions of packages, which are real; return the other instructions and what follows."""
        rest: tuple[Instruction, ...] = ()
        for each in instructions:
            choice = each.choice if isinstance(each, Mitigate) else None
            if isinstance(choice, MitigationChoice) and choice.action.own is not None:
                why_not = perform(choice.action.own, self._job.job.spec)
                rest += self._controller.handle(MitigationEnded(at_s, choice.decision, why_not))
            else:
                rest += (each,)
        return rest

    def _note(self, event: Event) -> None:
        """Record events of a node as log lines: a simulated node writes none itself."""
        if isinstance(event, NodeReported) and event.sample.node not in self._lines:
            node, what = (
                event.sample.node,
                "simulated node is up; it runs no program and has no output of its own",
            )
            self._lines[node] = [LogLine(event.at_s, node, "INFO", what)]
            self._forget_oldest()
        elif isinstance(event, NodeOutOfMemory):
            what = f"simulated node killed at {event.memory_mib:.0f} MiB, above its limit"
            self._lines.setdefault(event.node, []).append(LogLine(event.at_s, event.node, "ERROR", what))

    def _forget_oldest(self) -> None:
        """Drop the lines of the oldest ended nodes."""
        there = {node.id for node in self._job.nodes}
        gone = [node for node in self._lines if node not in there]
        for node in gone[:-N_GONE]:
            del self._lines[node]

    def decide(self, event: Decided) -> tuple[Decision, WorldOrders]:
        """Handle a decision; return it with its id, and the orders to the world."""
        instructions = self._controller.handle(event)
        records = [i.record for i in instructions if isinstance(i, Remember)]
        return next(r for r in records if isinstance(r, Decision)), _of_world(instructions)

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the events of a node, or of all of them; see `logs.newest`."""
        silent: dict[str, list[LogLine]] = {node_view.id: [] for node_view in self._job.nodes}
        return newest(silent | self._lines, node, n_line)

    def queries(self) -> PlanQueries:
        """Return the queries about the current state of the job."""
        return self._controller.queries()

    def snapshot(self, at_s: float) -> JobSnapshot:
        """Return the snapshot at a virtual time."""
        return job_snapshot.build_snapshot(
            at_s,
            spec=self._job.job.spec,
            capacity=self._capacity,
            started_at_s=self._job.started_at_s,
            ended_at_s=self._job.ended_at_s,
            loss=None,
            samples_per_s=self._job.samples_per_s,
            master=self._job,
            controller=self._controller,
            simulated=True,
        )

    def summary(self, at_s: float) -> JobSummary:
        """Return the summary for a list of jobs, without building a snapshot."""
        job, spec, train = self._job, self._job.job.spec, self._job.train_counts
        nodes, brief = holding(job.nodes), self._controller.brief()
        return JobSummary(
            name=spec.name,
            phase=job.phase,
            owner=spec.owner,
            started_at_s=job.started_at_s,
            plan=job.ran or job.target,
            samples_per_s=job.samples_per_s,
            done=share_done(train),
            open_proposal=brief.opened.id if brief.opened else None,
            live=True,
            simulated=True,
            at_s=at_s,
            message=job.message,
            left_s=left_s(job.phase, train, job.samples_per_s),
            cpu=sum(node.cpu for node in nodes),
            memory_mib=sum(node.memory_mib for node in nodes),
            memory_needs=self._controller.memory_needs,
            outlook=outlook_of(
                job.ran or job.target,
                spec.prices,
                mode=brief.mode,
                current=brief.current,
                opened=brief.opened,
                memory=brief.memory,
                nodes=job.nodes,
                deadline=brief.deadline,
                version=version_of(brief.undo),
                mitigation=brief.mitigation,
                budget=brief.budget,
                target=job.target,
            ),
            ended_at_s=job.ended_at_s,
            tags=spec.tags,
        )

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        return self._telemetry.read(cursor)


def _of_world(instructions: tuple[Instruction, ...]) -> WorldOrders:
    """Return the orders to the world; records for the history are dropped, as they are simulated."""
    return tuple(i for i in instructions if isinstance(i, Scale | Mitigate | EndJob))
