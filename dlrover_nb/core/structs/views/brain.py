"""What the brain of a cluster decided in one round, for the history and for people."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace
from dlrover_nb.core.structs.plan.resources import ResourcePlan

KEEP_S = 900.0  # until a round is kept though it says nothing new


@dataclass(frozen=True, slots=True)
class JobShare:
    """What one job has and should have.

    Parameters
    ----------
    job, owner
        The job.
    now, meant
        The plan that runs, and the one that it should have.
    quota
        What it may plan with.
    why
        Why it did not get the plan that is worth most to it; empty: it did.
    refused
        Why its master did not take the quota; empty: it did.
    """

    job: str
    owner: str
    now: ResourcePlan
    meant: ResourcePlan
    quota: Quota
    why: str = ""
    refused: str = ""

    @property
    def added_cores(self) -> float:
        """Cores that it should have more than now; below zero: fewer."""
        return round(self.meant.total_cpu - self.now.total_cpu, 2)


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waited to be admitted.

    Parameters
    ----------
    job, owner
        The job.
    asked
        The plan that it asks for.
    admitted
        The plan with which it starts; None: it waits still.
    place
        Where it stands; place 0 of an admitted one, which says why it was.
    refused
        Why its master did not take that; empty: it did.
    """

    job: str
    owner: str
    asked: ResourcePlan
    admitted: ResourcePlan | None = None
    place: QueuePlace = field(default_factory=QueuePlace)
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    """The plan that a job held, or was given, in a round: not free while its master is away."""

    job: str
    owner: str
    started_at_s: float
    plan: ResourcePlan


@dataclass(frozen=True, slots=True)
class BrainRound:
    """One round.

    Parameters
    ----------
    cluster, by, term, number
        Where, who, and the number of the round in its term.
    at_s
        When.
    shares
        Of the jobs that took part.
    apart
        Jobs that did not, and why.
    note
        What is wrong with the cluster as a whole; empty: nothing.
    is_kept
        Whether it is the choice of the round before.
    took_s
        Seconds that asking, deciding and handing out took.
    queue
        Jobs that waited to be admitted: those that start now, and the others in their order.
    holding
        What each job holds after it.
    """

    cluster: str
    by: str
    term: int
    number: int
    at_s: float
    shares: tuple[JobShare, ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    note: str = ""
    is_kept: bool = False
    took_s: float = 0.0
    queue: tuple[QueuedJob, ...] = ()
    holding: tuple[Holding, ...] = ()

    def says_more_than(self, last: BrainRound | None) -> bool:
        """Whether it is worth keeping: jobs, plans or the queue are others, or `KEEP_S` passed."""
        if last is None or self.at_s >= last.at_s + KEEP_S:
            return True
        mine, its = ({s.job: (s.meant, s.refused) for s in each.shares} for each in (self, last))
        changed = any(its.get(job) != share for job, share in mine.items())
        stood, stands = ([(q.job, q.admitted, q.refused) for q in each.queue] for each in (last, self))
        return changed or stands != stood or self.note != last.note or self.term != last.term
