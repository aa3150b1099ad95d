"""Facts that the controller hears, and orders that it gives."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.decisions import Decision, Outcome, Proposal
from dlrover_nb.core.structs.job import JobPhase, JobSpec
from dlrover_nb.core.structs.resources import Capacity, ResourcePlan
from dlrover_nb.core.structs.samples import NodeSample


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """The job exists; `n_sample_total` samples are to be trained; M of Eq. 4 and D of Eq. 5 are known."""

    at_s: float
    spec: JobSpec
    capacity: Capacity
    n_sample_total: int
    dense_bytes: int
    embedding_dim: int


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
class Decided:
    """A user or auto mode decided."""

    at_s: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class PlanApplied:
    """Observed equals target: the plan runs. Training stood still for `pause_s`."""

    at_s: float
    plan: ResourcePlan
    pause_s: float


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The plan could not be brought about; the job runs (or tries to run) the plan before."""

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
class Ticked:
    """Time passed."""

    at_s: float


Event = (
    JobSubmitted | NodeReported | ProgressMade | Decided | PlanApplied | PlanFailed | PhaseChanged | Ticked
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Bring the job to `target`; `decision` is the id of who asked for it."""

    decision: str
    target: ResourcePlan


@dataclass(frozen=True, slots=True)
class Remember:
    """Write to the history: a job's start or phase, a proposal's state, a decision, an outcome."""

    at_s: float
    record: JobSpec | PhaseChanged | Proposal | Decision | Outcome


Instruction = Scale | Remember
