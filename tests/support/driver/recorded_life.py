"""The life of a job, recorded as a master records it."""

from __future__ import annotations

import random
from dataclasses import replace

from dlrover_nb.core.driver.loop.recorded_controller import RecordedController
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import (
    Decided,
    Event,
    JobSubmitted,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    Scale,
    Ticked,
)

PLAN = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.5, 512))
SMALL = 6_000  # bytes of a segment, some ten events


class Life:
    """Events of a job that does what it is ordered, with users and losses drawn by chance."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self.draw, self.plan, self.at_s, self.n_done = random.Random(seed), PLAN, 0.0, 0
        spec = JobSpec("long", owner="ada", plan=PLAN, mode=mode)
        self.first = JobSubmitted(0.0, spec, Capacity((NodeShape(4.0, 16_000),)), 10**8, 100_000, 16)

    def start(self) -> list[Event]:
        return [self.first, PhaseChanged(0.0, JobPhase.TRAINING), PlanApplied(0.0, PLAN, 0.0)]

    def second(self) -> list[Event]:
        """Return the events of one second, before any that follow from orders."""
        self.at_s += 1.0
        self.n_done += 1000
        reports = [self._report(node) for node in self._nodes()]
        other: list[Event] = [self._other()] if self.draw.random() < 0.2 else []
        return [ProgressMade(self.at_s, self.n_done), *reports, *other, Ticked(self.at_s)]

    def obey(self, order: Scale) -> Event:
        self.at_s += 0.5
        if self.draw.random() < 0.2:
            return PlanFailed(self.at_s, order.target, "no room")
        self.plan = order.target
        return PlanApplied(self.at_s, order.target, 0.5)

    def _nodes(self) -> list[tuple[str, Role]]:
        workers = [(f"worker-{i}", Role.WORKER) for i in range(self.plan.worker.count)]
        return workers + [(f"ps-{i}", Role.PS) for i in range(self.plan.ps.count)]

    def _report(self, node: tuple[str, Role]) -> Event:
        name, role = node
        n_sample = int(1000 * self.draw.uniform(0.97, 1.03)) if role is Role.WORKER else 0
        mib = 300 + self.at_s
        sample = NodeSample(name, role, self.at_s, 1.0, 20, n_sample, 0.05, TimeSplit(), 0.5, mib)
        return NodeReported(self.at_s, sample, self.plan)

    def _other(self) -> Event:
        if self.draw.random() < 0.2:
            return NodeOutOfMemory(self.at_s, "ps-0", Role.PS, 500.0)
        plan = replace(self.plan, worker=replace(self.plan.worker, count=self.draw.randint(1, 4)))
        fields = self.draw.choice(
            [
                {"verdict": Verdict.SCALE, "plan": plan},
                {"verdict": Verdict.MODE, "mode": self.draw.choice(list(Mode))},
                {"verdict": Verdict.ACCEPT, "proposal": f"p{self.draw.randint(1, 3)}"},
                {"verdict": Verdict.REJECT, "proposal": f"p{self.draw.randint(1, 3)}"},
            ]
        )
        return Decided(self.at_s, Decision(by="ada", at_s=self.at_s, **fields))


def outcome(controller: RecordedController, event: Event) -> object:
    try:
        return controller.emit(event)
    except DlroverError as error:
        return str(error)


def live(folder, seed, mode, n_second):
    """Let a job live for some seconds; return its controller, and the view after each event by its time."""
    recorded = RecordedController("long", folder, f"sqlite:///{folder / 'history.db'}")
    life, views = Life(seed, mode), []

    def pass_on(event):
        orders = outcome(recorded, event)
        views.append((event.at_s, recorded.controller.view()))
        for order in orders if isinstance(orders, tuple) else ():
            if isinstance(order, Scale):
                pass_on(life.obey(order))

    for event in life.start():
        pass_on(event)
    for _ in range(n_second):
        for event in life.second():
            pass_on(event)
    return recorded, views, life


def end(recorded, life):
    recorded.emit(PhaseChanged(life.at_s + 1, JobPhase.SUCCEEDED, "all shards are trained"))
    view = recorded.controller.view()
    recorded.close()
    return view
