"""The life of one simulated job in virtual time, without threads, so that a test decides on it at any moment."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.simulated_job import SimulatedRun
from dlrover_nb.core.simulator import (
    Faults,
    MemoryGrowth,
    SimulatedJob,
    SimulatedWorld,
    TermsTruth,
    WorldSettings,
)
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import Decided, Event, JobSubmitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.controller.plan_queries import PlanQueries
    from dlrover_nb.core.structs.decisions.query_answers import Explanation
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

PLAN = ResourcePlan(RolePlan(2, 1.0, 2048), RolePlan(1, 1.0, 2048))
BOUNDS = PlanBounds(max_workers=8, max_ps=3, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))
TRUTH = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)
FAULTS = Faults(failures_per_day=0, slow_per_day=0)
LONG = 2 * 10**9  # samples, of hours


class Life:
    """A job with its controller, and the events that it heard, with their times."""

    def __init__(
        self,
        *,
        truth: TermsTruth = TRUTH,
        faults: Faults = FAULTS,
        n_sample: int = LONG,
        ps_memory: MemoryGrowth | None = None,
        seed: int = 1,
        **spec: object,
    ) -> None:
        fields = {"plan": PLAN, "bounds": BOUNDS, "mode": Mode.SUGGEST, "owner": "ada", **spec}
        self.spec = JobSpec("ads", **fields)  # type: ignore[arg-type]
        world_settings = WorldSettings(report_s=15.0, faults=faults)
        machines = [NodeShape(16.0, 65_536, 4)]
        self.world = SimulatedWorld(machines, rng=np.random.default_rng(seed), settings=world_settings)
        job = SimulatedJob(self.spec, truth, n_sample, ps_memory=ps_memory or MemoryGrowth(300.0))
        self._sim, self.journal = self.world.submit(job), list[Event]()
        self._run: SimulatedRun | None = None
        self.step(0.0)

    @property
    def run(self) -> SimulatedRun:
        assert self._run is not None
        return self._run

    def step(self, until_s: float) -> None:
        """Simulate up to a moment."""
        while True:
            _, events = self.world.step(until_s)
            for _, event in events:
                self._hear(event)
            if not events and self.world.now_s >= min(until_s, self.world.next_at_s):
                return

    def _hear(self, event: Event) -> None:
        self.journal.append(event)
        if self._run is None:
            assert isinstance(event, JobSubmitted)
            self._run = SimulatedRun(self._sim, event, self.world.cluster.capacity, SETTINGS)
            return
        for order in self._run.handle(event):
            self.world.obey("ads", order)

    def until(self, condition: Callable[[JobSnapshot], object], most_s: float = 40_000.0) -> JobSnapshot:
        """Simulate until a snapshot meets a condition."""
        end_s = self.world.now_s + most_s
        while not condition(self.snapshot):
            assert self.world.now_s < end_s, "the simulated job did not come to that"
            self.step(self.world.now_s + 60.0)
        return self.snapshot

    def until_proposal(self) -> str:
        """Simulate until a proposal is open; return its id."""
        opened = self.until(lambda s: s.open_proposal).open_proposal
        assert opened is not None
        return opened.id

    def decide(self, verdict: Verdict, **fields: object) -> Decision:
        at_s = self.world.now_s
        event = Decided(at_s, Decision(verdict, "ada", at_s, **fields))  # type: ignore[arg-type]
        return self._decided(event)

    def undo(self, why: str = "") -> Decision:
        undo = self.snapshot.undo
        assert undo is not None
        at_s = self.world.now_s
        return self._decided(Decided(at_s, replace(undo, by="bob", at_s=at_s, why=why)))

    def _decided(self, event: Decided) -> Decision:
        decision, orders = self.run.decide(event)
        self.journal.append(replace(event, decision=decision))
        for order in orders:
            self.world.obey("ads", order)
        return decision

    def accepted(self) -> str:
        """Accept the next proposal, and train until its outcome is measured; return its id."""
        name = self.until_proposal()
        decision = self.decide(Verdict.ACCEPT, proposal=name, why="worth 2 cores")
        self.until(lambda s: any(o.decision == decision.id for o in s.outcomes))
        return name

    @property
    def snapshot(self) -> JobSnapshot:
        return self.run.snapshot(self.world.now_s)

    @property
    def queries(self) -> PlanQueries:
        return self.run.queries()

    def explained(self, proposal: str | None = None) -> tuple[Explanation, JobSnapshot]:
        return self.queries.explain(proposal), self.snapshot

    def end(self) -> None:
        """Simulate until nothing happens any more."""
        while self.world.next_at_s < math.inf:
            self.step(self.world.next_at_s)
