"""Events that the controller handles, and instructions that it returns."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.decisions.actions import MitigationChoice, SetSize
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.capacity import Capacity
from dlrover_nb.core.structs.plan.offers import Allotment
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.training.batch_cost import ProgramCost
from dlrover_nb.core.structs.training.quality import QualityCurve
from dlrover_nb.core.structs.training.samples import NodeSample
from dlrover_nb.core.structs.training.shards import BatchChoice
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, SeriesRow


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """The job exists; `n_sample_total` samples are to be trained; M of Eq. 4 and D of Eq. 5 are known."""

    at_s: float
    spec: JobSpec
    capacity: Capacity
    n_sample_total: int
    dense_bytes: int
    embedding_dim: int
    traits: JobTraits | None = None  # None: unknown, then no warm start
    prior: FitSummary | None = None  # fit of similar finished jobs
    why: str = ""  # reason of the first plan, if earlier jobs influenced it
    must_move: bool = False  # nothing outlives its nodes: new PS must fit beside those that serve
    pauses: tuple[tuple[str, float], ...] = ()  # kind and seconds of changes of plan, usual on this cluster
    defers: bool = False  # fits and advice are computed beside the job's loop, and end with `Computed`
    spent: float = 0.0  # money of earlier runs whose rows it goes on with
    is_endless: bool = False  # of a stream: `n_sample_total` is an estimate for planning
    usual_samples_per_s: float | None = None  # of an external job, as earlier runs of its name were
    curves: tuple[QualityCurve, ...] = ()  # quality by age of gradients, of this job's and of similar ones
    program: str = ""  # what a mini-batch computes, as `JobTraits.program`; empty: not known


@dataclass(frozen=True, slots=True)
class NodeReported:
    """A node's report arrived; `plan` is what runs when all nodes are in place, else None."""

    at_s: float
    sample: NodeSample
    plan: ResourcePlan | None


@dataclass(frozen=True, slots=True)
class ProgressMade:
    """Samples trained so far."""

    at_s: float
    n_sample_done: int


@dataclass(frozen=True, slots=True)
class QualityMeasured:
    """The metric of early stopping was measured after so many samples: `value`."""

    at_s: float
    n_sample_done: int
    value: float


@dataclass(frozen=True, slots=True)
class CurvesMeasured:
    """Quality against the age of gradients was measured for the job: all curves that count from now on."""

    at_s: float
    curves: tuple[QualityCurve, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """A user or auto mode decided."""

    at_s: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class PlanApplied:
    """Observed equals target: the plan runs. Training was paused for `pause_s`."""

    at_s: float
    plan: ResourcePlan
    pause_s: float


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The plan could not be applied; the job runs (or returns to) the previous plan."""

    at_s: float
    plan: ResourcePlan
    why: str


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """The job entered a phase."""

    at_s: float
    phase: JobPhase
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeOutOfMemory:
    """A node ran out of memory; `memory_mib` is its last use."""

    at_s: float
    node: str
    role: Role
    memory_mib: float


@dataclass(frozen=True, slots=True)
class RoomChanged:
    """The capacity in reach of the job has changed with machines or other jobs."""

    at_s: float
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """The quota of auto mode has changed, which it shares with other jobs on the same machines.

    `by` planned for all jobs in its `term`; `lasts_s`: how long it holds without another (None: as long as
    the job), `admit` and `queue`: of a job that waits in the queue; see `structs.offers.Allotment`.
    """

    at_s: float
    quota: Quota
    why: str = ""
    by: str = ""
    term: int = 0
    lasts_s: float | None = None
    admit: ResourcePlan | None = None
    queue: QueuePlace | None = None


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node is up; it waited for its place in the cluster for `pending_s`, its own start not counted."""

    at_s: float
    node: str
    role: Role
    pending_s: float


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """A node is gone: ordered, lost or ended by an error; `error` is empty where that is none."""

    at_s: float
    node: str
    role: Role
    error: str = ""
    is_retryable: bool = True


@dataclass(frozen=True, slots=True)
class BatchSizesSet:
    """Mini-batches of all workers whose size is not the job's, set by a command or by a policy.

    `accumulate` is how many of them make one update, of workers where that is not one.
    """

    at_s: float
    sizes: tuple[tuple[str, int], ...]
    accumulate: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSizesSet:
    """Sizes of all nodes that do not have the size of their role, set by a command or by a policy."""

    at_s: float
    sizes: tuple[SetSize, ...]


@dataclass(frozen=True, slots=True)
class MitigationEnded:
    """An action against stragglers is in effect; or it is not, and `why_not` says why."""

    at_s: float
    decision: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Computed:
    """The controller's question of a number is answered; `error`: why not, so that it is computed now.

    The answer is not in the event: it follows from the events before it, and a replay computes it again.
    """

    at_s: float
    number: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class CostChanged:
    """The nodes that are up cost `per_hour` from now on.

    None: not known since the last event, as the job had no master. The next one says which nodes have stayed.
    """

    at_s: float
    per_hour: float | None


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""

    at_s: float


Event = (
    JobSubmitted
    | NodeReported
    | ProgressMade
    | QualityMeasured
    | CurvesMeasured
    | Decided
    | PlanApplied
    | PlanFailed
    | PhaseChanged
    | NodeOutOfMemory
    | RoomChanged
    | QuotaChanged
    | NodeStarted
    | NodeLeft
    | BatchSizesSet
    | NodeSizesSet
    | MitigationEnded
    | Computed
    | CostChanged
    | Ticked
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Bring the job to `target`; `decision` is the id of the decision."""

    decision: str
    target: ResourcePlan


@dataclass(frozen=True, slots=True)
class Mitigate:
    """Change how the present plan works, and not the plan: batch sizes of a policy, or a decided action."""

    choice: BatchChoice | MitigationChoice


@dataclass(frozen=True, slots=True)
class EndJob:
    """Save a checkpoint and stop the job, as its budget is spent; `why` says so for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Write to the history; a `JobSpec` starts a run, to which the following records belong."""

    at_s: float
    record: (
        JobSpec
        | JobTraits
        | PhaseChanged
        | Proposal
        | Decision
        | Mitigation
        | Outcome
        | FitSummary
        | SeriesRow
        | ProgramCost
    )


Instruction = Scale | Mitigate | EndJob | Remember


def quota_changed(allotment: Allotment, at_s: float) -> QuotaChanged:
    """Return the event of an allotment that arrived."""
    a = allotment
    return QuotaChanged(at_s, a.quota, a.why, a.by, a.term, a.lasts_s, a.admit, a.queue)
