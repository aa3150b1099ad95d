"""Laws of changes of plan where simulated machines are full: each ends, in place or back where it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.plans.sim_world import UP_S, make_job, make_plan, make_world, only, play, scale

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.simulator import SimulatedWorld, Transition
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import Decided, JobSubmitted, PlanApplied, PlanFailed

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.events import Event

ONE = (NodeShape(2.0, 8192),)
SEVERAL = (NodeShape(2.0, 4096), NodeShape(1.0, 2048))
ORDER_S = 600.0  # the first plan runs by then
LIMIT_S = Transition().plan_limit_s
IN_PLACE_S = UP_S + Transition().restart_s  # nodes that find room at once, and read what others saved


def role(counts: st.SearchStrategy[int]) -> st.SearchStrategy[RolePlan]:
    return st.builds(RolePlan, counts, st.sampled_from([0.25, 0.5, 1.0]), st.sampled_from([512, 1024]))


def fitting(machines: tuple[NodeShape, ...]) -> st.SearchStrategy[ResourcePlan]:
    plans = st.builds(ResourcePlan, role(st.integers(1, 5)), role(st.integers(1, 3)))
    return plans.filter(lambda plan: fits(Capacity(machines), plan_needs(plan)))


def full_world(
    first: ResourcePlan, machines: tuple[NodeShape, ...] = ONE, migration: Migration = Migration.SEAMLESS
) -> SimulatedWorld:
    world = make_world(machines=machines, transition=Transition(migration=migration))
    world.submit(make_job(plan=first, n_sample=10**12))
    return world


class Steered:
    """The only job of a world, with its controller."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.controller: Controller | None = None

    def run(self, until_s: float) -> None:
        while self.world.next_at_s <= until_s:
            for _, event in self.world.step(until_s)[1]:
                self._tell(event)
        self.world.step(until_s)

    def decide(self, decision: Decision) -> None:
        self._tell(Decided(decision.at_s, decision))
        self.run(decision.at_s)

    def _tell(self, event: Event) -> None:
        if isinstance(event, JobSubmitted):
            self.controller = Controller(event, ControllerSettings())
            return
        for instruction in self.controller.handle(event):
            self.world.obey("job", instruction)


def answers(played):
    """Return what was told about each plan that was ordered, with its time."""
    told = [
        event for _, name, event in played if name == "job" and isinstance(event, PlanApplied | PlanFailed)
    ]
    return [(event.at_s, type(event), event.plan) for event in told if event.at_s >= ORDER_S]


@pytest.mark.more
@settings(deadline=None)
@given(first=fitting(ONE), target=fitting(ONE), migration=st.sampled_from(Migration))
def test_on_one_machine_every_plan_that_fits_comes_about(first, target, migration) -> None:
    assume(target != first)
    world = full_world(first, migration=migration)
    played = play(world, orders=[(ORDER_S, scale(world, target))], until_s=2 * ORDER_S)
    ((at_s, kind, plan),) = answers(played)
    assert (kind, plan) == (PlanApplied, target)
    assert at_s <= ORDER_S + IN_PLACE_S
    assert world.job("job").running == target


@pytest.mark.more
@settings(deadline=None)
@given(
    first=fitting(ONE),
    target=fitting(ONE),
    after_s=st.floats(1.0, 400.0),
    migration=st.sampled_from(Migration),
)
def test_a_change_that_is_cancelled_leads_back(first, target, after_s, migration) -> None:
    assume(target != first)
    world = full_world(first, migration=migration)
    orders = [(ORDER_S, scale(world, target)), (ORDER_S + after_s, scale(world, first))]
    played = play(world, orders=orders, until_s=3 * ORDER_S)
    *_, (at_s, kind, plan) = answers(played)
    assert (kind, plan) == (PlanApplied, first)
    assert at_s <= ORDER_S + after_s + IN_PLACE_S
    assert world.job("job").running == first


@pytest.mark.release
@settings(deadline=None)
@given(first=fitting(ONE), target=fitting(ONE), after_s=st.floats(1.0, 400.0))
def test_undo_leads_back_however_far_the_change_has_come(first, target, after_s) -> None:
    """It cancels one under way; nothing is left to undo then, and one that is in place can be redone."""
    assume(target != first)
    job = Steered(full_world(first))
    job.run(ORDER_S)
    job.decide(Decision(Verdict.SCALE, "ada", ORDER_S, plan=target))
    job.run(ORDER_S + after_s)
    is_cancel = job.controller.under_way == target
    job.decide(replace(job.controller.view().undo, by="ada", at_s=ORDER_S + after_s))
    job.run(ORDER_S + after_s + IN_PLACE_S)
    assert job.world.job("job").running == first
    assert job.controller.under_way is None
    redo = job.controller.view().undo
    assert (redo and redo.plan) == (None if is_cancel else target)


@pytest.mark.more
@settings(deadline=None)
@given(
    plans=st.tuples(*[fitting(ONE)] * 3), after_s=st.floats(1.0, 200.0), migration=st.sampled_from(Migration)
)
def test_a_newer_plan_comes_about_however_far_the_one_before_has_come(plans, after_s, migration) -> None:
    first, target, newer = plans
    world = full_world(first, migration=migration)
    orders = [(ORDER_S, scale(world, target)), (ORDER_S + after_s, scale(world, newer))]
    play(world, orders=orders, until_s=3 * ORDER_S)
    assert world.job("job").running == newer


@pytest.mark.more
@settings(deadline=None)
@given(first=fitting(SEVERAL), target=fitting(SEVERAL), others=st.lists(fitting(SEVERAL), max_size=2))
def test_beside_others_every_change_ends_in_place_or_back_where_it_was(first, target, others) -> None:
    """The others run or wait for room too; what the job has trained is never less than before."""
    assume(target != first)
    world = full_world(first, SEVERAL)
    for i, plan in enumerate(others):
        world.submit(make_job(f"other-{i}", plan, n_sample=10**12))
    played = play(world, orders=[(ORDER_S, scale(world, target))], until_s=2 * ORDER_S + LIMIT_S)
    ((at_s, kind, plan),) = answers(played)
    assert plan == target
    assert kind is PlanApplied or at_s == ORDER_S + LIMIT_S
    assert world.job("job").running == (target if kind is PlanApplied else first)


def test_a_plan_whose_room_others_hold_is_given_up_in_time_and_training_goes_on_meanwhile() -> None:
    world = make_world(machines=[NodeShape(16.0, 32 * 1024, 1)])
    sim = world.submit(make_job(n_sample=10**12))
    world.submit(make_job("other", make_plan(cpu=1.0), n_sample=10**12))
    larger = make_plan(2, 2)
    played = play(world, orders=[(ORDER_S, scale(world, larger))], until_s=ORDER_S + LIMIT_S - 1)
    assert not answers(played)
    assert sim.progress.speed > 0
    n_trained = sim.progress.n_done
    (failed,) = only(play(world, until_s=2 * ORDER_S + LIMIT_S), PlanFailed)
    assert (failed.plan, failed.at_s) == (larger, ORDER_S + LIMIT_S)
    assert "no room was found" in failed.why
    assert sim.running == make_plan()
    assert sim.progress.n_done > n_trained


def test_where_both_do_not_fit_at_once_the_change_costs_the_pause_of_a_restart() -> None:
    first = ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.25, 512))
    world = full_world(first)
    all_of_it = ResourcePlan(RolePlan(4, 0.25, 512), RolePlan(2, 0.5, 512))
    beside = replace(first, ps=RolePlan(1, 0.5, 512))
    orders = [
        (ORDER_S, scale(world, all_of_it)),
        (2 * ORDER_S, scale(world, first)),
        (3 * ORDER_S, scale(world, beside)),
    ]
    told = only(play(world, orders=orders, until_s=4 * ORDER_S), PlanApplied)
    seamless_s, restart_s = Transition().seamless_s, UP_S + Transition().restart_s
    assert [round(event.pause_s, 6) for event in told] == [0.0, restart_s, restart_s, seamless_s]
