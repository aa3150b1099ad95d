"""A large space is cut to a shortlist without evaluating all of it; the analysis is that of the slow way."""

from __future__ import annotations

import itertools
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.pareto import dominance, exact
from dlrover_nb.core.pareto.solve import Solution
from dlrover_nb.core.planner import shortlist
from dlrover_nb.core.planner.analysis import analyse, fitted
from dlrover_nb.core.planner.shortlist import Rough, grid_of
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

LADDER = tuple(np.arange(1, 9) / 2)


@st.composite
def situations(draw):
    """Draw a job with random true coefficients, measured on random plans."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    global_batch = draw(st.sampled_from([None, 4096]))
    true = np.array([0.15, 0.05, 0.002, 0.1, 0.01]) * np.exp(rng.normal(0, 1, 5)) * rng.choice([0, 1, 1], 5)
    samples = []
    for i in range(draw(st.integers(1, 12))):
        w, p = int(rng.integers(1, 13)), int(rng.integers(1, 7))
        a, b = rng.choice(LADDER, 2)
        plan = ResourcePlan(RolePlan(w, float(a), 2048), RolePlan(p, float(b), 1024))
        batch = 512 if global_batch is None else round(global_batch / w)
        iter_s = 1e-3 + true @ np.array([batch / 512 / a, w / (p * b), w / p, batch / 512 / p, 1.0])
        samples.append(ProfileSample(float(i), 2.0, plan, batch, w * batch / iter_s))
    bounds = PlanBounds(12, 6, LADDER, LADDER, quota_cpu=draw(st.sampled_from([None, 24.0])))
    prices = draw(
        st.sampled_from([PriceTable(), PriceTable(cpu_hour=None), PriceTable(cpu_hour=0.0, gib_hour=0.1)])
    )
    return Situation(
        spec=JobSpec("cut", bounds=bounds, batch_size=512, global_batch=global_batch, prices=prices),
        capacity=Capacity((NodeShape(8, 16_384, 4), NodeShape(3, 4096, 5))),
        dense_bytes=1_000_000,
        embedding_dim=16,
        plan=samples[-1].plan,
        samples=tuple(samples),
        n_sample_left=10**8,
    )


def slow_search(grid, rough, *, least, rng):
    """Evaluate every plan of the grid, and find front after front of what is left."""
    del rng
    rows = np.array(list(itertools.product(*grid.ladders)))
    rows = rows[grid.allows(rows)]
    (cost, gain), left, found = rough(rows), np.arange(len(rows)), []
    while len(found) < least and len(left):
        order = left[np.lexsort((-gain[left], cost[left]))]
        best = order[gain[order] > np.concatenate(([-np.inf], np.maximum.accumulate(gain[order])))[:-1]]
        found += best.tolist()
        left = np.setdiff1d(left, best)
    return Solution(rows[found], len(rows))


@pytest.mark.release
@settings(deadline=None, max_examples=40)
@given(situations(), st.sampled_from([5, 300]))
def test_analysis_equals_that_of_evaluating_every_plan(asked, enough):
    model = fitted(asked)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shortlist, "ENOUGH", enough)
        patched.setattr(shortlist, "CACHED_PLANS", 0)
        patched.setattr(exact, "FEW", 0)
        patched.setattr(dominance, "FEW", 0)
        fast = analyse(asked, model=model)
        patched.setattr(shortlist, "solve", slow_search)
        slow = analyse(asked, model=model)
    assert np.array_equal(fast.space.axes, slow.space.axes)
    assert np.array_equal(fast.cost, slow.cost)
    for field in fields(fast.predictions):
        assert np.array_equal(getattr(fast.predictions, field.name), getattr(slow.predictions, field.name))
    assert (fast.n_plan, fast.front, fast.current) == (slow.n_plan, slow.front, slow.current)


@pytest.mark.more
@settings(deadline=None, max_examples=40)
@given(situations())
def test_parts_of_a_grid_add_up_to_what_its_rows_are_worth(asked):
    grid = grid_of(asked)
    rough = Rough(grid, fitted(asked), asked)
    cost, gain = rough(np.array(list(itertools.product(*grid.ladders))))
    parts = rough.parts(grid.ladders)
    whole_cost = parts.worker_cost[:, None, :, None] + parts.ps_cost[None, :, None, :]
    seconds = parts.worker_s[:, None, :, None] + parts.ps_s[:, :, None, :]
    assert whole_cost.reshape(-1) == pytest.approx(cost, rel=1e-12)
    assert seconds.reshape(-1) == pytest.approx(1 / gain, rel=1e-12)
    assert all((getattr(parts, name) >= 0).all() for name in ("worker_s", "ps_s"))


@settings(deadline=None, max_examples=20)
@given(situations(), st.integers(0, 2**32 - 1))
def test_worth_of_a_plan_does_not_depend_on_the_plans_beside_it(asked, seed):
    grid = grid_of(asked)
    rough, rows = Rough(grid, fitted(asked), asked), np.array(list(itertools.product(*grid.ladders)))
    some = np.random.default_rng(seed).choice(len(rows), 37, replace=False)
    for all_of, few in zip(rough(rows), rough(rows[some]), strict=True):
        assert np.array_equal(all_of[some], few)
