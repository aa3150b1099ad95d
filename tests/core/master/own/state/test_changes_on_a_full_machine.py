"""Laws of changes of plan where machines are full: each ends, in place or back where it was."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.full_machine import FullMachines
from support.master.master_world import features, plan, spec

from dlrover_nb.core.master.own.nodes.liveness import PLAN_LIMIT_S
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, change_needs, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import PlanApplied, PlanFailed
from dlrover_nb.core.structs.wire.pod_contract import STATE, outlives_node

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE = ((2.0, 8192),)
SEVERAL = ((2.0, 2048), (1.0, 1024))
ENOUGH = features(n_train=1_000_000)
LIMIT_S = 2 * PLAN_LIMIT_S
EVERY_S = 30.0  # a checkpoint: far more often than a change may wait


def role(counts: st.SearchStrategy[int]) -> st.SearchStrategy[RolePlan]:
    return st.builds(RolePlan, counts, st.sampled_from([0.25, 0.5, 1.0]), st.sampled_from([256, 512, 1024]))


def fitting(machines: tuple[tuple[float, int], ...]) -> st.SearchStrategy[ResourcePlan]:
    capacity = Capacity(tuple(NodeShape(*each) for each in machines))
    plans = st.builds(ResourcePlan, role(st.integers(1, 5)), role(st.integers(1, 3)))
    return plans.filter(lambda each: fits(capacity, plan_needs(each)))


class InPods(FullMachines):
    """Pods without storage: no checkpoint outlives its nodes."""

    folder = f"{STATE}/run"


def started(
    first: ResourcePlan, machines, *, kind: type[FullMachines] = FullMachines, **changes
) -> FullMachines:
    world = kind(spec(first, checkpoint_every_s=EVERY_S, **changes), ENOUGH, machines)
    world.wait_for(lambda: world.master.running == first, LIMIT_S)
    return world


def answers(world: FullMachines) -> list[PlanApplied | PlanFailed]:
    return [event for event in world.events if isinstance(event, PlanApplied | PlanFailed)]


def change(world: FullMachines, target: ResourcePlan) -> PlanApplied | PlanFailed:
    """Order a plan; return its one answer, when it runs, or when the plan before runs again."""
    before, n_known = world.master.running, len(answers(world))
    world.do(world.master.set_target(target, world.at_s))
    world.wait_for(lambda: len(answers(world)) > n_known, LIMIT_S)
    answer = answers(world)[n_known]
    runs = target if isinstance(answer, PlanApplied) else before
    world.n_step_held = [0] * len(world.machines)
    world.wait_for(lambda: world.master.running == runs, LIMIT_S)
    assert len(answers(world)) == n_known + 1
    world.check_parameters()
    return answer


def test_a_newcomers_plan_that_takes_the_whole_machine_comes_about():
    world = started(plan(1, 1), ONE)
    answer = change(world, plan(4, 2, worker_cpu=0.25, ps_cpu=0.5))
    assert isinstance(answer, PlanApplied), answer


def each_comes_about(plans: Sequence[ResourcePlan], migration: Migration) -> None:
    world = started(plans[0], ONE, migration=migration)
    for target in plans[1:]:
        if target != world.master.running:
            answer = change(world, target)
            assert isinstance(answer, PlanApplied), answer


SMALL, MORE_PS, LARGE = (
    plan(1, 1),
    plan(1, 3, ps_cpu=0.5),
    plan(3, 1, ps_cpu=0.5),
)  # the last two fill the machine


@pytest.mark.parametrize("migration", Migration)
def test_on_one_machine_plans_that_fill_it_come_about_one_after_the_other(migration):
    each_comes_about([SMALL, LARGE, MORE_PS, SMALL], migration)


@pytest.mark.release
@settings(deadline=None, max_examples=40)
@given(st.lists(fitting(ONE), min_size=2, max_size=4), st.sampled_from(Migration))
def test_on_one_machine_every_plan_that_fits_comes_about(plans, migration):
    each_comes_about(plans, migration)


def comes_about_if_offered(first: ResourcePlan, target: ResourcePlan) -> None:
    """Change a plan without storage: it comes about unless it needs more room than there is beside the first."""
    world = started(first, ONE, kind=InPods)
    assert not outlives_node(world.job, world.folder)
    if target == first:
        return
    answer = change(world, target)
    assert isinstance(answer, PlanApplied) or not has_room(target, world.capacity, PlanBounds(), beside=first)
    assert isinstance(answer, PlanFailed) or fits(world.capacity, change_needs(first, target))


@pytest.mark.parametrize(("first", "target"), [*permutations([SMALL, MORE_PS, LARGE], 2)])
def test_without_storage_plans_that_fill_a_machine_come_about_where_they_are_offered(first, target):
    comes_about_if_offered(first, target)


@pytest.mark.release
@settings(deadline=None, max_examples=40)
@given(fitting(ONE), fitting(ONE))
def test_without_storage_every_plan_that_is_offered_comes_about(first, target):
    comes_about_if_offered(first, target)


def each_ends(plans: Sequence[ResourcePlan]) -> None:
    world = started(plans[0], SEVERAL)
    for target in plans[1:]:
        if target != world.master.running:
            change(world, target)


def test_on_several_machines_changes_that_fill_them_end_in_place_or_back_where_they_were():
    each_ends(
        [plan(1, 1), plan(2, 3, ps_cpu=0.5), plan(2, 1, worker_cpu=1.0, ps_cpu=1.0), plan(5, 1, ps_cpu=0.5)]
    )


@pytest.mark.release
@settings(deadline=None, max_examples=30)
@given(st.lists(fitting(SEVERAL), min_size=2, max_size=4))
def test_on_several_machines_every_change_ends_in_place_or_back_where_it_was(plans):
    each_ends(plans)


@pytest.mark.more
@settings(deadline=None, max_examples=30)
@given(fitting(ONE), fitting(ONE), st.floats(0.0, 1.0))
def test_beside_another_job_a_change_ends_and_what_ran_before_can_come_back(first, target, share):
    """The other job takes room that this one does not use, and has ended before the way back begins."""
    world = started(first, ONE)
    world.schedule()
    world.n_step_held = [int(share * world.free()[0][0])]
    if target != first:
        change(world, target)


@pytest.mark.parametrize("machines", [ONE, SEVERAL])
def test_a_change_that_finds_no_room_is_given_up_in_time_though_checkpoints_go_on(machines):
    world = started(plan(1, 1), machines)
    world.schedule()
    world.n_step_held = [n_step for n_step, _ in world.free()]
    from_s = world.at_s
    answer = change(world, plan(2, 1))
    assert isinstance(answer, PlanFailed)
    assert "no room was found" in answer.why
    assert PLAN_LIMIT_S <= answer.at_s - from_s <= PLAN_LIMIT_S + 5.0
    assert max(world.disk) >= 3
