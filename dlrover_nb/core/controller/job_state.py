"""What is settled about a job: what was submitted, its phase, who decides, what is fixed, what it may use.

All parts of the controller read it. It changes by the events of a phase, of capacity and of a quota, and by
decisions on mode and pins; each change is one method here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.bounds import Quota
from dlrover_nb.core.structs.job import JobPhase

if TYPE_CHECKING:
    from dlrover_nb.core.structs.bounds import Pins
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.events import JobSubmitted
    from dlrover_nb.core.structs.job import JobSpec, Mode


class JobState:
    """The settled facts of one job.

    Attributes
    ----------
    job
        The submission, with the capacity of now, and without its prior once that turned out to be unusable.
    phase, mode, pins, quota
        Where the job is in its life, who decides, what of every plan is fixed, and what other jobs leave.
    """

    def __init__(self, job: JobSubmitted) -> None:
        self.job = job
        self.phase = JobPhase.STARTING
        self.mode: Mode = job.spec.mode
        self.pins: Pins = job.spec.pins
        self.quota = Quota()

    @property
    def spec(self) -> JobSpec:
        """What was asked for."""
        return self.job.spec

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.spec.name

    @property
    def is_over(self) -> bool:
        """Whether training is over, so that no change of plan can be thought of."""
        return self.phase.is_final or self.phase is JobPhase.EVALUATING

    def enter(self, phase: JobPhase) -> None:
        """Enter a phase."""
        self.phase = phase

    def change_mode(self, mode: Mode) -> None:
        """Let another side decide."""
        self.mode = mode

    def pin(self, pins: Pins) -> None:
        """Fix something else of every plan."""
        self.pins = pins

    def change_capacity(self, capacity: Capacity) -> None:
        """Plan and check with another capacity from now on."""
        self.job = replace(self.job, capacity=capacity)

    def change_quota(self, quota: Quota) -> None:
        """Plan, in auto mode, within another quota from now on."""
        self.quota = quota

    def drop_prior(self) -> None:
        """Go on without what similar jobs taught."""
        self.job = replace(self.job, prior=None)
