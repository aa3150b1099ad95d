from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans.known_objectives import Known

from dlrover_nb.core.pareto.dominance import hypervolume, non_dominated
from dlrover_nb.core.pareto.nsga2 import repaired
from dlrover_nb.core.pareto.solve import SOLVERS, Solution, solve
from dlrover_nb.core.pareto.space import list_plans, plan_grid
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape

CLUSTER = Capacity((NodeShape(16, 65_536, 8), NodeShape(4, 8192, 3)))
ODD = Capacity((NodeShape(3.3, 9000, 9), NodeShape(7.7, 40_000, 4)))  # where packing decides what is fast
MEMORY = {"worker_memory_mib": 2048, "ps_memory_mib": 4096}


objectives = Known()


def front(grid, solver, seed=0):
    return Solution(*SOLVERS[solver](grid, objectives, rng=np.random.default_rng(seed)))


WIDE = PlanBounds(32, 12, tuple(np.arange(1, 33) / 4), tuple(np.arange(1, 33) / 4), quota_cpu=100)


@settings(deadline=None, max_examples=30)
@given(
    workers=st.integers(1, 6),
    ps=st.integers(1, 4),
    quota=st.one_of(st.none(), st.floats(1, 20)),
    pin=st.one_of(st.none(), st.integers(1, 8)),
)
def test_exact_front_is_that_of_all_plans_of_the_space(workers, ps, quota, pin):
    bounds = PlanBounds(workers, ps, (0.5, 1, 4), (0.5, 2), quota_cpu=quota)
    grid = plan_grid(bounds, CLUSTER, **MEMORY, pins=Pins(workers=pin))
    found, space = front(grid, "exact"), list_plans(grid)
    assert np.array_equal(found.rows, space.axes[non_dominated(*objectives(space.axes))])
    assert found.n_plan == len(space)


@pytest.mark.more
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("pins", [Pins(), Pins(workers=40), Pins(ps=3, ps_cpu=0.7)])
def test_no_solver_returns_a_plan_that_is_beaten_or_not_allowed(solver, pins):
    grid = plan_grid(WIDE, CLUSTER, **MEMORY, pins=pins)
    found = front(grid, solver)
    cost, speed = objectives(found.rows)
    assert len(found.rows) > 1
    assert (np.diff(cost) > 0).all()
    assert (np.diff(speed) > 0).all()
    assert grid.contains(found.rows).all()
    assert grid.allows(found.rows).all()
    for axis, pin in enumerate((pins.workers, pins.ps, pins.worker_cpu, pins.ps_cpu)):
        assert pin is None or set(found.rows[:, axis]) == {pin}


@pytest.mark.more
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("capacity", [CLUSTER, ODD], ids=["cluster", "odd"])
def test_search_covers_nearly_all_that_the_exact_front_covers(seed, capacity):
    grid = plan_grid(replace(WIDE, quota_cpu=None), capacity, **MEMORY)
    exact, found = front(grid, "exact"), front(grid, "nsga2", seed)
    points = objectives(exact.rows)
    worst = (float(points[0][-1]), 0.0)
    ratio = hypervolume(*objectives(found.rows), worst=worst) / hypervolume(*points, worst=worst)
    assert 0.999 <= ratio <= 1 + 1e-12
    assert found.n_plan < exact.n_plan / 2


@pytest.mark.more
def test_same_seed_gives_the_same_front():
    grid = plan_grid(WIDE, CLUSTER, **MEMORY)
    first, again = (front(grid, "nsga2", 5) for _ in range(2))
    assert np.array_equal(first.rows, again.rows)
    assert first.n_plan == again.n_plan


@pytest.mark.more
def test_space_beyond_listing_is_searched_without_being_asked_for():
    grid = plan_grid(PlanBounds(2000, 500, tuple(range(1, 17)), tuple(range(1, 17))), CLUSTER, **MEMORY)
    found = solve(grid, objectives, rng=np.random.default_rng(0))
    assert len(found.rows)
    assert found.n_plan < 100_000


@pytest.mark.parametrize("solver", SOLVERS)
def test_grid_without_an_allowed_plan_has_an_empty_front(solver):
    found = front(plan_grid(WIDE, Capacity(()), **MEMORY), solver)
    assert (found.rows.shape, found.n_plan) == ((0, 4), 0)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(*(st.integers(0, n) for n in (31, 11, 31, 31))), min_size=1, max_size=20))
def test_repair_makes_every_plan_fit_and_leaves_alone_what_fits(rows):
    grid, steps = plan_grid(WIDE, CLUSTER, **MEMORY), np.array(rows, dtype=np.intp)
    held, after = grid.allows(grid.rows(steps)), repaired(grid, steps)
    assert grid.allows(grid.rows(after)).all()
    assert np.array_equal(after[held], steps[held])
    assert (after <= steps).all()


def test_importing_the_core_does_not_load_the_search():
    code = "import dlrover_nb, dlrover_nb.core.planner, sys; print('pymoo' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
