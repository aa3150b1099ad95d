"""Jobs that wait in the queue of their cluster: what they ask for, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import plan_needs
from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan, Size, with_gpus


@dataclass(frozen=True, slots=True)
class WaitingOffer:
    """What a job asks for that waits to be admitted.

    Parameters
    ----------
    job, owner
        Its name, and who submitted it.
    plan
        That it asks for. It may start on a smaller one within `bounds` and `pins`.
    since_s
        When it was submitted, by the clock of its master.
    n_sample
        Training samples to do.
    samples_per_s
        Of `plan`, as similar jobs were; None: not known.
    deadline_left_s
        Seconds until it should end; None: it has no deadline.
    priority
        Its weight, where jobs are ordered by it.
    beside, beside_gpus
        Nodes that it has whatever its plan is, those of an external job's fixed roles: the size of each, and
        the GPUs of each, or none where no node has some.
    """

    job: str
    owner: str
    plan: ResourcePlan
    since_s: float
    n_sample: int
    bounds: PlanBounds = field(default_factory=PlanBounds)
    pins: Pins = field(default_factory=Pins)
    samples_per_s: float | None = None
    deadline_left_s: float | None = None
    priority: float = 1.0
    beside: tuple[Size, ...] = ()
    beside_gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check.at_least("n_sample", self.n_sample, 0)
        _check.at_least("priority", self.priority, 0)
        if self.samples_per_s is not None:
            _check.above_zero("samples_per_s", self.samples_per_s)

    @property
    def beside_needs(self) -> list[Need]:
        """What the nodes of fixed roles hold."""
        return with_gpus(self.beside, self.beside_gpus)

    @property
    def lasts_s(self) -> float | None:
        """Seconds that it would train on its plan; None: not known."""
        return None if self.samples_per_s is None else self.n_sample / self.samples_per_s

    def needs(self, plan: ResourcePlan) -> list[Need]:
        """Return what each of its nodes needs on a plan."""
        return [*plan_needs(plan), *self.beside_needs]


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a job stands in the queue.

    Parameters
    ----------
    place, n_waiting
        From 1 on, and of how many; 0: no brain has said so yet.
    why
        What it waits for, in a sentence.
    starts_in_s
        Seconds until its start, by prediction; None: not known.
    """

    place: int = 0
    n_waiting: int = 0
    why: str = ""
    starts_in_s: float | None = None

    def __post_init__(self) -> None:
        _check.at_least("place", self.place, 0)
        _check.at_least("n_waiting", self.n_waiting, self.place)

    @property
    def words(self) -> str:
        """For people: ``place 2 of 3 in the queue: ...``."""
        if not self.place:
            return f"waits in the queue{self.why and ': ' + self.why}"
        return f"place {self.place} of {self.n_waiting} in the queue{self.why and ': ' + self.why}"


HELD = "waits in the queue to be admitted"
NO_BRAIN = QueuePlace(
    why="no brain of this cluster has answered yet: run `dlrover-nb server brain`, "
    "or scale the job to start it now"
)
