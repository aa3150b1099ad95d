"""When a snapshot is published: when it is due, and at once where others wait for what has changed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.driver.driver_world import plan

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.client.until import Until, is_reached
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.driver.loop import job_loop, job_snapshot
from dlrover_nb.core.driver.loop.published import PublishedState
from dlrover_nb.core.simulator import CALM, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import Decided, JobSubmitted, Remember
from dlrover_nb.core.structs.views.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.driver.driver_world import DriverWorld

    from dlrover_nb.core.structs.views.events import Event

PLAN = ResourcePlan(worker=RolePlan(1, 1.0, 2048), ps=RolePlan(1, 1.0, 2048))
BOUNDS = PlanBounds(max_workers=8, max_ps=4, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))
TRUTH = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)


class Played:
    """A simulated job whose proposals are accepted, and its published state."""

    def __init__(self, seed: int, mode: Mode) -> None:
        spec = JobSpec("ads", plan=PLAN, bounds=BOUNDS, mode=mode)
        settings = WorldSettings(report_s=15.0, faults=CALM)
        machines = [NodeShape(16.0, 65_536, 4)]
        self.world = SimulatedWorld(machines, rng=np.random.default_rng(seed), settings=settings)
        self.job = self.world.submit(SimulatedJob(spec, TRUTH, 100_000_000))
        _, first = next(self.told())
        assert isinstance(first, JobSubmitted)
        self.controller, self.capacity = Controller(first, SETTINGS), first.capacity
        self.published = PublishedState(self.job, self.controller, self.build)

    def told(self) -> Iterator[tuple[str, Event]]:
        while self.world.next_at_s < float("inf"):
            yield from self.world.step(self.world.next_at_s)[1]

    def build(self, loss: float | None) -> JobSnapshot:
        return job_snapshot.build_snapshot(
            self.world.now_s,
            spec=self.job.job.spec,
            capacity=self.capacity,
            started_at_s=0.0,
            ended_at_s=None,
            loss=loss,
            samples_per_s=self.job.samples_per_s,
            master=self.job,
            controller=self.controller,
        )

    def handle(self, event: Event) -> None:
        for order in self.controller.handle(event):
            if not isinstance(order, Remember):
                self.world.obey("ads", order)

    def accept(self) -> None:
        if (opened := self.published.snapshot.open_proposal) is not None:
            accepted = Decision(Verdict.ACCEPT, "ada", self.world.now_s, proposal=opened.id)
            self.handle(Decided(self.world.now_s, accepted))


def awaited(snapshot: JobSnapshot) -> tuple[object, ...]:
    """Return what `core.client.until` reads of a snapshot."""
    reached = [is_reached(snapshot, each) for each in Until]
    return snapshot.phase, snapshot.running, snapshot.train.n_sample_done > 0, *reached


@pytest.mark.more
@pytest.mark.parametrize("mode", [Mode.SUGGEST, Mode.AUTO])
@pytest.mark.parametrize("seed", range(3))
def test_until_it_is_outdated_a_snapshot_shows_all_that_others_wait_for(seed: int, mode: Mode) -> None:
    played, seen, n_event = Played(seed, mode), list[tuple[object, ...]](), 0
    published = played.published
    for _, event in played.told():
        played.handle(event)
        n_event += 1
        if published.is_outdated:
            published.publish()
            seen.append(awaited(published.snapshot))
            played.accept()
        else:
            assert awaited(published.snapshot) == awaited(played.build(None))
    phases = [phase for phase, *_ in seen]
    assert phases[-1] is JobPhase.SUCCEEDED
    assert JobPhase.RESCALING in phases, "a plan was changed, measured and shown"
    assert len(seen) < n_event / 10, "reports alone publish nothing"


@pytest.fixture
def never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_loop, "PUBLISH_S", float("inf"))


@pytest.mark.usefixtures("never_due")
def test_what_others_wait_for_is_published_though_no_snapshot_is_due(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(n_epoch=100)
    job.until(lambda now: now.running == job.spec.plan)
    job.until(lambda now: now.phase is JobPhase.TRAINING and now.train.n_sample_done)
    taken = job.scale(plan(2, 1))
    assert job.now.decisions[-1].id == taken.id, "an answer comes once it is shown"
    job.until(lambda now: now.running == plan(2, 1) and not now.under_way)
    job.driver.stop("ada")
    assert job.until_end().phase is JobPhase.STOPPED


@pytest.mark.usefixtures("never_due")
def test_nothing_else_is_published_before_it_is_due(
    play: Callable[..., DriverWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, seen = PublishedState.publish, list[JobSnapshot]()

    def noted(state: PublishedState) -> None:
        publish(state)
        seen.append(state.snapshot)

    monkeypatch.setattr(PublishedState, "publish", noted)
    job = play(n_epoch=100)
    job.until(lambda now: now.running == job.spec.plan and now.train.n_sample_done)
    n_report = job.driver.series().cursor
    job.until(lambda _: job.driver.series().cursor > n_report + 10)
    changes = [awaited(now) for now in seen]
    assert changes
    assert all(one != other for one, other in itertools.pairwise(changes))
    job.driver.stop("ada")
