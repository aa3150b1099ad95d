"""What a snapshot reads of a simulated job; evaluations, and rows that kill workers, are not simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.training.shards import ShardCounts

if TYPE_CHECKING:
    from dlrover_nb.core.simulator.cluster import Place
    from dlrover_nb.core.simulator.one_job.progress import Progress
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNodes
    from dlrover_nb.core.structs.job.job import JobPhase
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import QuarantinedShard, SkippedBatch
    from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound, NodeView


class SnapshotSource:
    """Read access to a simulated job, with its plan, `_sim_nodes` and `progress`."""

    evaluation: Evaluation | None = None
    evaluation_counts = ShardCounts()
    rounds: tuple[EvaluationRound, ...] = ()
    quarantined: tuple[QuarantinedShard, ...] = ()
    skipped_batches: tuple[SkippedBatch, ...] = ()
    reported: None = None
    resizes_in_place = False

    phase: JobPhase
    progress: Progress
    target: ResourcePlan
    _sim_nodes: SimNodes
    _steady_since_s: float | None

    @property
    def running(self) -> ResourcePlan | None:
        """The plan that runs; None during a change."""
        return None if self._steady_since_s is None else self.target

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """All living nodes, oldest first."""
        return tuple(node.view for node in self._sim_nodes.nodes)

    @property
    def places(self) -> tuple[Place, ...]:
        """Machines of its placed nodes."""
        return tuple(node.place for node in self._sim_nodes.nodes if node.place is not None)

    @property
    def placed(self) -> tuple[tuple[Place, NodeView], ...]:
        """Its placed nodes, with their machines."""
        return tuple((node.place, node.view) for node in self._sim_nodes.nodes if node.place is not None)

    @property
    def samples_per_s(self) -> float:
        """The current speed."""
        return self.progress.speed

    @property
    def train_counts(self) -> ShardCounts:
        """Training shards, as a queue of shards would count them now."""
        return self.progress.shards(is_over=self.phase.is_final)
