"""The state of a job: its submission, phase, mode, pins, quota and place in the queue.

All parts of the controller read it. It changes by the events of a phase, of capacity and of a quota, and by
decisions on mode and pins; each change is one method here.

What a job has spent (`Spending`) is the sum of what its nodes cost over time. It follows from events alone:
each change of what the nodes cost is one, so a replay of the journal gives the same sum, and a restart of the
master forgets nothing. While there is no master, its nodes work on and cost money, or they have ended with
its machine: what the nodes that are there again cost counts for that time.

Rejected: the price of the plan times the time since it was applied. Nodes of two plans are up during a change
of plan, and before the first plan runs; both cost money.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.default_bounds import completed, widened
from dlrover_nb.core.structs.plan.queued_jobs import NO_BRAIN, QueuePlace

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.job.spec_choices import Mode
    from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.events import JobSubmitted


HOUR_S = 3600.0


class Spending:
    """The money that one job has spent.

    Parameters
    ----------
    at_s
        When it was submitted.
    spent
        By earlier runs, whose rows it goes on with.

    Attributes
    ----------
    spent
        Until the last event.
    per_hour
        What its nodes cost, as last known.
    """

    def __init__(self, at_s: float, spent: float = 0.0) -> None:
        self.spent, self.per_hour = spent, 0.0
        self._at_s = at_s
        self._unseen_s: float | None = None  # how long the job has had no master; None: it has one

    def pass_time(self, at_s: float) -> None:
        """Count the money up to a time; an earlier one than the last changes nothing."""
        passed_s = max(at_s - self._at_s, 0.0)
        self._at_s = max(at_s, self._at_s)
        if self._unseen_s is None:
            self.spent += self.per_hour * passed_s / HOUR_S
        else:
            self._unseen_s += passed_s

    def change(self, at_s: float, per_hour: float | None) -> None:
        """Count with another price from now on; None: not known since the last event, until the next call."""
        if per_hour is None:
            self._unseen_s = self._unseen_s or 0.0
        self.pass_time(at_s)
        if per_hour is None:
            return
        if self._unseen_s is not None:
            self.spent += min(self.per_hour, per_hour) * self._unseen_s / HOUR_S
            self._unseen_s = None
        self.per_hour = per_hour


class JobState:
    """The submission, phase, mode, pins and quota of one job.

    Attributes
    ----------
    job
        The submission, with the present capacity, with bounds complete for it, and without its prior once
        that proved unusable.
    phase, mode, pins, quota
        Stage of the job, who decides, what is fixed in every plan, and what other jobs leave free.
    queue
        Where it stands in the queue of its cluster; None: it was admitted.
    spending
        What its nodes cost, and have cost.
    curves
        Held-out quality against the age of gradients.
    """

    def __init__(self, job: JobSubmitted) -> None:
        self._asked = job.spec.bounds
        self.job = _with_bounds(
            job, completed(self._asked, job.capacity, job.spec.plan, most_workers=job.spec.step_batches)
        )
        self.phase = JobPhase.STARTING
        self.mode: Mode = job.spec.mode
        self.pins: Pins = job.spec.pins
        self.quota = Quota()
        self.queue = NO_BRAIN if job.spec.admission is Admission.QUEUE else None
        self.spending = Spending(job.at_s, job.spent)
        self.curves = job.curves

    @property
    def spec(self) -> JobSpec:
        """The submitted specification."""
        return self.job.spec

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.spec.name

    @property
    def money_left(self) -> float | None:
        """What is left of the total budget; None: there is no limit."""
        limit = self.spec.budget_total
        return None if limit is None else max(limit - self.spending.spent, 0.0)

    @property
    def money_to_end(self) -> float | None:
        """The money within which a plan must end the job; None: no limit, or no known end."""
        return None if self.job.is_endless else self.money_left

    @property
    def is_over(self) -> bool:
        """Whether no rows are left to train now, so that no change of plan is possible."""
        return not self.phase.trains

    def enter(self, phase: JobPhase) -> None:
        """Enter a phase."""
        self.phase = phase
        if phase.is_final:
            self.queue = None

    def change_mode(self, mode: Mode) -> None:
        """Set who decides."""
        self.mode = mode

    def limit_budget(self, budget_total: float | None) -> None:
        """Set the total budget; None: there is no limit."""
        self.job = replace(self.job, spec=replace(self.spec, budget_total=budget_total))

    def pin(self, pins: Pins) -> None:
        """Replace the pins."""
        self.pins = pins

    def change_capacity(self, capacity: Capacity) -> None:
        """Plan and check with another capacity from now on.

        Bounds that follow from the cluster grow with it. They never shrink: what no longer fits is refused
        for lack of room, and comes back with the machines.
        """
        own = completed(self._asked, capacity, self.spec.plan, most_workers=self.spec.step_batches)
        self.job = _with_bounds(replace(self.job, capacity=capacity), widened(self.spec.bounds, own))

    def change_quota(self, quota: Quota) -> None:
        """Plan, in auto mode, within another quota from now on."""
        self.quota = quota

    def queued(self, place: QueuePlace | None) -> None:
        """Set where the job stands in the queue; None: it was admitted."""
        self.queue = place

    def drop_prior(self) -> None:
        """Continue without the prior of similar jobs."""
        self.job = replace(self.job, prior=None)


def _with_bounds(job: JobSubmitted, bounds: PlanBounds) -> JobSubmitted:
    return replace(job, spec=replace(job.spec, bounds=bounds))
