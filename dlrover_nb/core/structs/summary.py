"""The summary of a job in a list of jobs, made from its snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.resources import ResourcePlan
from dlrover_nb.core.structs.snapshot import NodePhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.shards import ShardCounts
    from dlrover_nb.core.structs.snapshot import JobSnapshot, NodeView


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One line of the list of jobs."""

    name: str
    phase: JobPhase
    owner: str
    started_at_s: float
    plan: ResourcePlan | None  # that runs, or ran last; before the first one ran, the wanted one
    samples_per_s: float
    done: float  # share of the training samples, 0 to 1
    open_proposal: str | None
    live: bool  # False: known from the history alone
    simulated: bool = False
    at_s: float = 0.0  # time of the summary by the clock of the job's master
    message: str = ""  # message about the phase
    left_s: float | None = None  # to the end of training at the current speed; None: unknown
    cpu: float = 0.0  # cores that its nodes hold
    memory_mib: int = 0  # memory that they hold
    memory_needs: tuple[str, ...] = ()  # why nodes are likely to run out of memory


def summarize(snapshot: JobSnapshot) -> JobSummary:
    """Return the one line that the list of jobs shows."""
    train, nodes = snapshot.train, holding(snapshot.nodes)
    return JobSummary(
        name=snapshot.spec.name,
        phase=snapshot.phase,
        owner=snapshot.spec.owner,
        started_at_s=snapshot.started_at_s,
        plan=snapshot.ran or snapshot.target,
        samples_per_s=snapshot.samples_per_s,
        done=share_done(train),
        open_proposal=snapshot.open_proposal.id if snapshot.open_proposal else None,
        live=True,
        simulated=snapshot.simulated,
        at_s=snapshot.at_s,
        message=snapshot.message,
        left_s=left_s(snapshot.phase, train, snapshot.samples_per_s),
        cpu=sum(node.cpu for node in nodes),
        memory_mib=sum(node.memory_mib for node in nodes),
        memory_needs=snapshot.memory_needs,
    )


def holding(nodes: Iterable[NodeView]) -> tuple[NodeView, ...]:
    """Return the nodes that hold cores and memory; pending ones hold none."""
    return tuple(node for node in nodes if node.phase is not NodePhase.PENDING)


def share_done(train: ShardCounts) -> float:
    """Return the share of the training samples that is done, 0 to 1."""
    return train.n_sample_done / train.n_sample_total if train.n_sample_total else 0.0


def left_s(phase: JobPhase, train: ShardCounts, samples_per_s: float) -> float | None:
    """Return the seconds to the end of the training at the current speed; None without progress."""
    if phase.is_final or samples_per_s <= 0:
        return None
    return (train.n_sample_total - train.n_sample_done) / samples_per_s
