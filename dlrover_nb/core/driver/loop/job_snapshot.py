"""The published snapshot of a job: state of master and controller, and the present throughput."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.controller.controller import Controller
    from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
    from dlrover_nb.core.structs.job.start_from import BeganFrom
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.reported import TrainerStatus
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.training.shards import QuarantinedShard, ShardCounts, SkippedBatch
    from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound, MasterRestart

FRESH_S = 3.0  # an older report does not count as present,
N_WINDOW = 2  # unless its own window was long: the next one is not due yet


def fresh(samples: Iterable[NodeSample], at_s: float) -> list[NodeSample]:
    """Return the present reports."""
    return [sample for sample in samples if sample.at_s >= at_s - max(FRESH_S, N_WINDOW * sample.window_s)]


def throughput(samples: Iterable[NodeSample]) -> float:
    """Return the workers' total throughput by these reports."""
    return sum(s.n_sample / s.window_s for s in samples if s.window_s > 0)


def _of_workers(nodes: Iterable[NodeView], at_s: float) -> list[NodeSample]:
    samples = (node.last for node in nodes if node.role is Role.WORKER and node.last is not None)
    return fresh(samples, at_s)


def samples_per_s(nodes: Iterable[NodeView], at_s: float) -> float:
    """Return the throughput of all workers over their last reports."""
    return throughput(_of_workers(nodes, at_s))


def mean_loss(nodes: Iterable[NodeView], at_s: float) -> float | None:
    """Return the mean loss per sample over the last reports; None when nothing was trained."""
    losses = [(s.loss, s.n_sample) for s in _of_workers(nodes, at_s) if s.loss is not None and s.n_sample]
    n_sample = sum(n for _, n in losses)
    return sum(loss * n for loss, n in losses) / n_sample if n_sample else None


class Run(Protocol):
    """Source of a job's state: the job master, or a simulated job."""

    @property
    def phase(self) -> JobPhase:
        """The job's phase."""
        ...

    @property
    def message(self) -> str:
        """Details of the phase."""
        ...

    @property
    def target(self) -> ResourcePlan:
        """The plan that should run."""
        ...

    @property
    def running(self) -> ResourcePlan | None:
        """The plan that runs, None while nodes are missing."""
        ...

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """All live nodes."""
        ...

    @property
    def train_counts(self) -> ShardCounts:
        """Shards to train."""
        ...

    @property
    def evaluation_counts(self) -> ShardCounts:
        """Shards to evaluate."""
        ...

    @property
    def quarantined(self) -> tuple[QuarantinedShard, ...]:
        """Shards that wait for a decision."""
        ...

    @property
    def skipped_batches(self) -> tuple[SkippedBatch, ...]:
        """The last batches that could not be trained."""
        ...

    @property
    def rounds(self) -> tuple[EvaluationRound, ...]:
        """Evaluations between passes."""
        ...

    @property
    def evaluation(self) -> Evaluation | None:
        """Quality on the held-out rows."""
        ...

    @property
    def reported(self) -> TrainerStatus | None:
        """What a program told last by the protocol of Kubeflow Trainer."""
        ...

    @property
    def resizes_in_place(self) -> bool | None:
        """Whether the cluster resizes nodes in place; None: it is not known yet."""
        ...


def build_snapshot(  # noqa: PLR0913 - several sources, all by keyword
    at_s: float,
    *,
    spec: JobSpec,
    capacity: Capacity,
    started_at_s: float,
    ended_at_s: float | None,
    loss: float | None,
    samples_per_s: float,
    master: Run,
    controller: Controller,
    n_dropped: int = 0,
    n_refused: int = 0,
    simulated: bool = False,
    folder: str = "",
    began_from: BeganFrom | None = None,
    damage: str = "",
    restart: MasterRestart | None = None,
) -> JobSnapshot:
    """Return the snapshot at `at_s`; `loss` is the last known one."""
    view, nodes = controller.view(), master.nodes
    now = mean_loss(nodes, at_s)
    return JobSnapshot(
        at_s=at_s,
        spec=spec
        if view.budget_total == spec.budget_total
        else replace(spec, budget_total=view.budget_total),
        capacity=capacity,
        phase=master.phase,
        message=master.message if view.queue is None else view.queue.words,
        mode=view.mode,
        started_at_s=started_at_s,
        ended_at_s=ended_at_s,
        target=master.target,
        running=master.running,
        samples_per_s=samples_per_s,
        loss=loss if now is None else now,
        nodes=nodes,
        train=master.train_counts,
        evaluate=master.evaluation_counts,
        fit=view.fit,
        curves=view.curves,
        samples=view.samples,
        front=view.front,
        memory=view.memory,
        memory_needs=view.memory_needs,
        proposals=view.proposals,
        decisions=view.decisions,
        outcomes=view.outcomes,
        markers=view.markers,
        evaluation=master.evaluation,
        rounds=master.rounds,
        quarantined=master.quarantined,
        skipped_batches=master.skipped_batches,
        story=view.story,
        n_dropped_message=n_dropped,
        n_refused_client=n_refused,
        pins=view.pins,
        simulated=simulated,
        folder=folder,
        began_from=began_from,
        undo=view.undo,
        under_way=view.under_way,
        measuring=view.measuring,
        deadline=view.deadline,
        stragglers=view.stragglers,
        mitigations=view.mitigations,
        node_errors=view.node_errors,
        queue=view.queue,
        reported=master.reported,
        resizes_in_place=master.resizes_in_place,
        stop=view.stop,
        host=view.host,
        damage=damage,
        restart=restart,
        budget=view.budget,
    )
