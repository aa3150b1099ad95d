"""Laws of which plans can be reached from the one that runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.pareto.space import list_plans, plan_grid
from dlrover_nb.core.planner.availability.feasibility import check_room, has_room, reachable
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, change_needs, fits
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

BOUNDS = PlanBounds(max_workers=5, max_ps=3, worker_cpus=(0.25, 0.5, 1.0), ps_cpus=(0.25, 0.5))
TWO_CORES = Capacity((NodeShape(2.0, 8192),))
NOW = ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.5, 512))

roles = st.builds(RolePlan, st.integers(1, 4), st.sampled_from([0.25, 0.5]), st.sampled_from([256, 512]))
plans = st.builds(ResourcePlan, roles, roles)


@settings(deadline=None, max_examples=40)
@given(plans, st.sampled_from([256, 512]), st.sampled_from([1.0, 2.0, 3.0]))
def test_the_space_is_cut_to_what_each_plan_by_itself_may_be(now, mib, cpu):
    capacity = Capacity((NodeShape(cpu, 4096), NodeShape(1.0, 1024)))
    space = list_plans(plan_grid(BOUNDS, capacity, worker_memory_mib=512, ps_memory_mib=mib))
    left = reachable(space, capacity, now)
    found = {left.plan(i) for i in range(len(left))}
    every = [space.plan(i) for i in range(len(space))]
    assert found == {plan for plan in every if has_room(plan, capacity, BOUNDS, beside=now)}
    assert found == {plan for plan in every if fits(capacity, change_needs(now, plan))}


@given(plans, plans)
def test_without_new_ps_nothing_more_is_needed_and_what_runs_is_always_reachable(now, other):
    assert change_needs(now, now) == []
    fewer = replace(now, ps=replace(now.ps, count=1), worker=other.worker)
    assert change_needs(now, fewer) == []
    more = replace(now, ps=replace(now.ps, count=now.ps.count + 1), worker=other.worker)
    assert change_needs(now, more).count(now.ps.need) >= now.ps.count + 1


def test_a_plan_that_cannot_stand_beside_what_runs_is_refused_with_the_peak_and_a_way_out():
    target = replace(NOW, ps=RolePlan(3, 0.5, 1024))
    check_room(target, TWO_CORES, BOUNDS)
    said = r"beside those of 1w x 0.5 .*2.5 cores and 4096 MiB; set checkpoint_url"
    with pytest.raises(CapacityError, match=said):
        check_room(target, TWO_CORES, BOUNDS, beside=NOW)
