"""A walk through the events of a job: the controller's state, and what the events say beside it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.controller import state_bytes
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.driver.loop import job_snapshot, master_snapshot
from dlrover_nb.core.driver.policies import find_policy
from dlrover_nb.core.errors import DlroverError, WireError
from dlrover_nb.core.rundir.journal import read_snapshot
from dlrover_nb.core.straggler.methods import find_methods
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import (
    Event,
    Instruction,
    JobSubmitted,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    Scale,
    Ticked,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.samples import NodeSample

logger = logging.getLogger(__name__)

MOST_SPEEDS = 512  # points of the throughput


@dataclass(frozen=True, slots=True)
class Facts:
    """What events say beside what a controller's view has."""

    at_s: float
    phase: JobPhase = JobPhase.STARTING
    message: str = ""
    n_sample_done: int = 0
    target: ResourcePlan | None = None
    running: ResourcePlan | None = None
    applied: ResourcePlan | None = None  # the plan that ran last
    last: tuple[NodeSample, ...] = ()  # the newest report of each node


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a journal: so many events of a segment were read."""

    segment: int
    n_event: int


@dataclass(frozen=True, slots=True)
class WalkState:
    """The state of a walk at a place: the controller as bytes, None before the submission."""

    place: Place
    facts: Facts
    job: JobSubmitted | None = None
    state: bytes = b""


class Walk:
    """A walk through the events of a job: the controller, and the facts beside it, after the last one."""

    def __init__(self, settings: ControllerSettings | None) -> None:
        self._settings = settings
        self.controller: Controller | None = None
        self.facts = Facts(float("-inf"))

    def restore(self, saved: WalkState) -> None:
        """Go to a saved state."""
        self.facts, self.controller = saved.facts, None
        if saved.job is not None:
            self.controller = state_bytes.restore(self._new(saved.job), saved.state)

    def begin_at(self, path: Path) -> None:
        """Begin with the snapshot of a segment; `WireError` where it cannot be read."""
        restored = master_snapshot.unpack(read_snapshot(path), self._new)
        self.controller, view = restored.controller, restored.controller.view()
        plan = view.markers[-1].plan if view.markers else restored.controller.job.spec.plan
        phase = JobPhase.TRAINING if view.markers else JobPhase.STARTING
        self.facts = Facts(
            restored.controller.at_s, phase, "", 0, plan, plan, plan, tuple(restored.recent.last.values())
        )

    def keep(self, place: Place) -> WalkState:
        """Return the present state; `WireError` where a policy holds what cannot be written."""
        if self.controller is None:
            return WalkState(place, self.facts)
        job, state = state_bytes.pack(self.controller)
        return WalkState(place, self.facts, job, state)

    def step(self, event: Event) -> tuple[Instruction, ...]:
        """Handle one event; what was refused then is refused again, and is no step."""
        try:
            orders = self._handle(event)
        except DlroverError as error:
            logger.debug("%s at %s is left out: %s", type(event).__name__, event.at_s, error)
            return ()
        self.facts = _after(self.facts, event, orders)
        return orders

    def _new(self, job: JobSubmitted) -> Controller:
        return Controller(
            job,
            self._settings,
            policy=find_policy(job.spec.policy),
            stragglers=find_methods(job.spec),
        )

    def _handle(self, event: Event) -> tuple[Instruction, ...]:
        if self.controller is not None:
            return self.controller.handle(event)
        if not isinstance(event, JobSubmitted):
            raise WireError("the submission cannot be read: nothing can follow from what came after it")
        self.controller = self._new(event)
        return self.controller.first_orders


def _after(facts: Facts, event: Event, orders: tuple[Instruction, ...]) -> Facts:
    for order in orders:
        if isinstance(order, Scale):
            facts = replace(facts, target=order.target)
    facts = replace(facts, at_s=max(facts.at_s, event.at_s))  # orders are carried out beside reports
    changed: dict[str, object] = {}
    match event:
        case JobSubmitted(spec=spec):
            changed = {"target": spec.plan}
        case PhaseChanged(phase=phase, message=message):
            changed = {"phase": phase, "message": message}
        case ProgressMade(n_sample_done=n_sample_done):
            changed = {"n_sample_done": n_sample_done}
        case PlanApplied(plan=plan):
            changed = {"target": plan, "running": plan, "applied": plan}
        case PlanFailed():
            changed = {"target": facts.applied or facts.target}
        case NodeReported(sample=sample, plan=plan):
            others = (each for each in facts.last if each.node != sample.node)
            changed = {"running": plan, "last": (*others, sample)}
        case Ticked(at_s):
            changed = {"last": tuple(job_snapshot.fresh(facts.last, at_s))}
    return replace(facts, **changed)  # type: ignore[arg-type]  # fields of `Facts` with values of their types


class Speeds:
    """Throughput over time in a bounded number of points; each is a mean over the span that it ends."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._span: list[tuple[float, float]] = []
        self._n_each = 1

    def add(self, at_s: float, samples_per_s: float) -> None:
        """Add the throughput of a second."""
        self._span.append((at_s, samples_per_s))
        if len(self._span) >= self._n_each:
            self.points.append((at_s, sum(v for _, v in self._span) / len(self._span)))
            self._span = []
        if len(self.points) >= MOST_SPEEDS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [(end, (a + b) / 2) for (_, a), (end, b) in pairs]
            self._n_each *= 2

    def until(self, at_s: float) -> tuple[tuple[float, float], ...]:
        """Return the points whose spans had ended by then."""
        return tuple(point for point in self.points if point[0] <= at_s)


def samples_per_s(facts: Facts) -> float:
    """Return the throughput of all workers by their present reports."""
    fresh = job_snapshot.fresh(facts.last, facts.at_s)
    return job_snapshot.throughput(sample for sample in fresh if sample.role is Role.WORKER)
