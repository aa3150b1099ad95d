from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.exact import Evaluate, exact_front, non_dominated
from dlrover_nb.core.pareto.picks import named_picks, resource_efficiency
from dlrover_nb.core.pareto.space import enumerate_plans, fits, neighbours
from dlrover_nb.core.structs import resources
from dlrover_nb.core.structs.decisions import Candidate, Prediction
from dlrover_nb.core.structs.resources import (
    Capacity,
    NodeShape,
    PlanBounds,
    ResourcePlan,
    RolePlan,
    ScalePlan,
    plan_needs,
)

PLAN = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 512))


def candidate(cost: float, speed: float, *, now: float = 0.0, plan: ResourcePlan = PLAN) -> Candidate:
    return Candidate(
        plan, Prediction(speed, speed, speed, False), cost, 1, None, ScalePlan(), 0, speed - now, (), ""
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_front_equals_brute_force(points):
    cost, gain = (np.array([p[i] for p in points], dtype=float) for i in (0, 1))
    found = non_dominated(cost, gain)
    kept = [points[i] for i in found]
    expected = {
        (c, g) for c, g in points if not any((a <= c and b >= g) and (a, b) != (c, g) for a, b in points)
    }
    assert set(kept) == expected
    assert len(kept) == len(expected)
    assert kept == sorted(kept)


shapes = st.lists(
    st.builds(
        NodeShape, st.sampled_from([0.3, 1, 2.05, 4]), st.sampled_from([512, 2048, 8192]), st.integers(1, 3)
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=60)
@given(shapes=shapes, mib=st.tuples(st.sampled_from([256, 1024]), st.sampled_from([128, 900])))
def test_vectorised_placing_equals_node_by_node(shapes, mib):
    bounds = PlanBounds(max_workers=5, max_ps=3, worker_cpus=(0.1, 0.25, 1.5), ps_cpus=(0.3, 1))
    big = Capacity((NodeShape(1000, 10**7),))
    space = enumerate_plans(bounds, big, worker_memory_mib=mib[0], ps_memory_mib=mib[1])
    assert len(space) == 5 * 3 * 3 * 2
    capacity = Capacity(tuple(shapes))
    held = fits(space.axes, capacity, worker_memory_mib=mib[0], ps_memory_mib=mib[1])
    one_by_one = [resources.fits(capacity, plan_needs(space.plan(i))) for i in range(len(space))]
    assert held.tolist() == one_by_one


def test_space_that_is_too_large_is_refused():
    with pytest.raises(InvalidValueError, match="plans"):
        enumerate_plans(
            PlanBounds(max_workers=10_000, max_ps=1000), Capacity(()), worker_memory_mib=64, ps_memory_mib=64
        )


def test_neighbours_differ_by_one_step_on_one_axis():
    here = np.array([2.0, 1.0, 0.6, 1.0])
    near = neighbours(here, PlanBounds())
    assert ((near != here).sum(axis=1) == 1).all()
    assert sorted(near[near[:, 2] != 0.6, 2]) == [0.5, 0.75]
    assert sorted(near[near[:, 0] != 2, 0]) == [1, 3]
    assert near[near[:, 1] != 1, 1].tolist() == [2]


def test_exact_front_completes_its_plans_and_names_picks():
    space = enumerate_plans(
        PlanBounds(max_workers=4, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.5,)),
        Capacity((NodeShape(8, 9999),)),
        worker_memory_mib=64,
        ps_memory_mib=64,
    )
    speed = {1: 10.0, 2: 19.0, 3: 20.0, 4: 18.0}
    front = exact_front(
        space,
        Evaluate(
            objectives=lambda s: (s.axes[:, 0], np.array([speed[int(w)] for w in s.axes[:, 0]])),
            candidate=lambda p: candidate(p.worker.count, speed[p.worker.count], now=10.0, plan=p),
            current=candidate(1, 10, now=10.0),
            currency="EUR",
        ),
    )
    assert [c.plan.worker.count for c in front.candidates] == [1, 2, 3]
    assert {p.name: front.candidates[p.index].plan.worker.count for p in front.picks} == {
        "best value": 2,
        "knee": 2,
        "fastest": 3,
        "cheapest as fast as now": 1,
    }
    assert (front.n_plan, front.currency) == (4, "EUR")


def test_efficiency_is_gain_per_added_cost():
    now = candidate(2, 10, now=10)
    assert resource_efficiency(candidate(4, 16, now=10), now) == 3
    assert resource_efficiency(candidate(1, 16, now=10), now) == np.inf
    assert resource_efficiency(candidate(4, 9, now=10), now) < 0


def test_empty_front_has_no_picks():
    assert named_picks((), candidate(1, 1)) == ()


def test_best_value_is_absent_where_nothing_gains():
    names = [p.name for p in named_picks((candidate(1, 5, now=9),), candidate(3, 9, now=9))]
    assert names == ["knee", "fastest"]
