"""What one job offers to a planner of many jobs, and what it is allotted.

Plans are columns of numbers, not records: a thousand jobs are asked each interval, and a record of each plan
would take a hundred times as long to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace, WaitingOffer
from dlrover_nb.core.structs.plan.resources import Need, PsShare, ResourcePlan, Size, with_gpus

N_COLUMN = 7  # workers, PS, cores of each worker and PS, samples/s, gain of Eq. 8, cost of an hour
BYTES_PER_NUMBER = 8
MOST_PLANS = 4096


@dataclass(frozen=True, slots=True)
class JobOffer:
    """The plans that one running job could use, by its own fit.

    Parameters
    ----------
    job, owner
        Its name, and who submitted it.
    plan
        That runs.
    samples_per_s, cost
        Of that plan: predicted throughput, and money per hour, or effort in cores where a price is unknown.
    is_priced
        Whether costs are money.
    n_sample_left
        Training samples still to do.
    columns
        float64, little-endian, of shape (7, n_plans): workers, PS, cores per worker, cores per PS, samples/s,
        TG of Eq. 8 in samples/s, cost as above.
    worker_memory_mib, ps_memory_mib
        Of each node, in all these plans; of each PS by their number where `ps_share` tells.
    deadline_left_s
        Seconds until it should end; None: it has no deadline.
    priority
        Its weight, where jobs are weighed by it.
    asks
        Whether a user decides on proposals (suggest mode), so that it may stay as it is.
    sure_share
        Of these speeds what is reached with the probability that the deadline is to be met with.
    ps_share
        What each PS needs by the number of them, where that is known.
    beside, beside_gpus
        Nodes that it has whatever its plan is, those of an external job's fixed roles: the size of each, and
        the GPUs of each, or none where no node has some.
    """

    job: str
    owner: str
    plan: ResourcePlan
    samples_per_s: float
    cost: float
    is_priced: bool
    n_sample_left: int
    columns: bytes
    worker_memory_mib: int
    ps_memory_mib: int
    deadline_left_s: float | None = None
    priority: float = 1.0
    asks: bool = False
    sure_share: float = 1.0
    ps_share: PsShare = field(default_factory=PsShare)
    beside: tuple[Size, ...] = ()
    beside_gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        n_plan, rest = divmod(len(self.columns), N_COLUMN * BYTES_PER_NUMBER)
        if rest or n_plan > MOST_PLANS:
            raise InvalidValueError(
                f"an offer must have {N_COLUMN} numbers of each of at most {MOST_PLANS} plans, got "
                f"{len(self.columns)} bytes from job {self.job}"
            )
        _check.at_least("n_sample_left", self.n_sample_left, 0)
        _check.at_least("priority", self.priority, 0)
        _check.above_zero("samples_per_s", self.samples_per_s)
        _check.above_zero("sure_share", self.sure_share)
        if not (isfinite(self.cost) and self.cost >= 0):
            raise InvalidValueError(f"the cost of a plan must be >= 0, got {self.cost} from job {self.job}")

    @property
    def n_plan(self) -> int:
        """Number of plans."""
        return len(self.columns) // (N_COLUMN * BYTES_PER_NUMBER)

    @property
    def beside_needs(self) -> list[Need]:
        """What the nodes of fixed roles hold."""
        return with_gpus(self.beside, self.beside_gpus)


@dataclass(frozen=True, slots=True)
class NoOffer:
    """The job takes no part in planning for all jobs now; `why` says the reason."""

    why: str


Offer = JobOffer | WaitingOffer | NoOffer


@dataclass(frozen=True, slots=True)
class Allotment:
    """What a job in auto mode may plan with, beside the other jobs of its cluster.

    Parameters
    ----------
    quota
        The most that its whole plan may use.
    why
        In a sentence: what other jobs got instead.
    by
        Who planned.
    term
        Number of that planner's leadership: one of an earlier term is refused.
    lasts_s
        How long it holds if no other follows: a job goes on by itself when its planner is gone.
    admit
        The plan with which a job that waits in the queue starts now; None: none does.
    queue
        Where a job stands that waits still; None: it does not.
    """

    quota: Quota = field(default_factory=Quota)
    why: str = ""
    by: str = ""
    term: int = 0
    lasts_s: float = 300.0
    admit: ResourcePlan | None = None
    queue: QueuePlace | None = None

    def __post_init__(self) -> None:
        _check.at_least("term", self.term, 0)
        _check.above_zero("lasts_s", self.lasts_s)
