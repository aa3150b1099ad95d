"""A large grid is searched without evaluating most of its plans; the result is that of evaluating all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans.known_objectives import Known

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto import dominance, exact
from dlrover_nb.core.pareto.space import plan_grid
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import PsShare

sizes = st.lists(st.sampled_from([0.1, 0.25, 0.3, 0.5, 1, 1.5, 2, 3, 4]), min_size=1, max_size=6).map(tuple)
grids = st.builds(
    plan_grid,
    st.builds(
        PlanBounds,
        max_workers=st.integers(1, 24),
        max_ps=st.integers(1, 6),
        worker_cpus=sizes,
        ps_cpus=sizes,
        quota_cpu=st.one_of(st.none(), st.floats(0.1, 60)),
        quota_memory_mib=st.one_of(st.none(), st.integers(100, 20_000)),
    ),
    st.lists(
        st.builds(
            NodeShape,
            st.sampled_from([0.3, 1, 2.05, 4, 16]),
            st.sampled_from([512, 2048, 8192]),
            st.integers(1, 9),
        ),
        max_size=3,
    ).map(lambda shapes: Capacity(tuple(shapes))),
    worker_memory_mib=st.sampled_from([64, 256, 1024]),
    ps_memory_mib=st.sampled_from([64, 128, 900]),
    pins=st.one_of(
        st.none(), st.builds(Pins, workers=st.integers(1, 30)), st.builds(Pins, ps_cpu=st.just(0.7))
    ),
    ps_share=st.one_of(st.none(), st.builds(PsShare, st.integers(0, 100), st.integers(0, 900))),
)
terms = st.one_of(st.just(0.0), st.sampled_from([0.5, 1.0]), st.floats(1e-6, 1.0))  # ties, and none
known = st.builds(
    Known,
    st.tuples(terms, terms, terms, terms, terms),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([0.0, 1e-3, 1.0]),
)


def all_rows(grid):
    """List the plans of a grid one by one; keep those that fit."""
    rows = np.array(list(itertools.product(*grid.ladders)), dtype=float)
    return rows[grid.allows(rows)]


def peeled(cost, gain, least):
    """Return front after front, each found by comparing all that is left."""
    left, found = np.arange(len(cost)), []
    while len(found) < least and len(left):
        order = left[np.lexsort((-gain[left], cost[left]))]
        best = order[gain[order] > np.concatenate(([-np.inf], np.maximum.accumulate(gain[order])))[:-1]]
        found += best.tolist()
        left = np.setdiff1d(left, best)
    return found


@settings(deadline=None, max_examples=150)
@given(
    grid=grids,
    objectives=known,
    least=st.sampled_from([1, 2, 30, 400, 10**6]),
    n_bin=st.sampled_from([1, 4, 40, exact.N_BIN]),
    block=st.sampled_from([1, 100, exact.BLOCK]),
)
def test_fronts_of_a_grid_are_those_of_all_its_plans(grid, objectives, least, n_bin, block):
    rows = all_rows(grid)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact, "FEW", 0)
        patched.setattr(dominance, "FEW", 0)
        patched.setattr(exact, "N_BIN", n_bin)
        patched.setattr(exact, "BLOCK", block)
        found, n_plan = exact.exact_search(grid, objectives, least=least)
    assert n_plan == len(rows)
    assert np.array_equal(found, rows[peeled(*objectives(rows), least)])


@settings(deadline=None, max_examples=100)
@given(grid=grids)
def test_allowed_counts_of_workers_are_the_first_ones(grid):
    held = grid.allows(np.array(list(itertools.product(*grid.ladders)), dtype=float)).reshape(grid.shape)
    assert np.array_equal(grid.reach(), held.sum(axis=0))
    assert (held[1:] <= held[:-1]).all()
    chunks = list(grid.chunks())
    assert np.array_equal(np.concatenate(chunks), all_rows(grid))


@pytest.mark.release_variants("objectives2-None-2000")
@pytest.mark.more
@pytest.mark.parametrize("least", [1, 2000])
@pytest.mark.parametrize("quota", [None, 60.0])
@pytest.mark.parametrize("objectives", [Known(), Known((0.3, 0.01, 0, 0, 0)), Known(per_core=0.0)])
def test_fronts_of_a_large_grid_are_those_of_all_its_plans(objectives, quota, least):
    ladder = tuple(np.arange(1, 25) / 4)
    bounds = PlanBounds(24, 9, ladder, ladder, quota_cpu=quota)
    grid = plan_grid(
        bounds, Capacity((NodeShape(16, 65_536, 12),)), worker_memory_mib=2048, ps_memory_mib=4096
    )
    rows = all_rows(grid)
    assert len(rows) > dominance.FEW
    found, n_plan = exact.exact_search(grid, objectives, least=least)
    assert n_plan == len(rows)
    assert np.array_equal(found, rows[peeled(*objectives(rows), least)])


def test_price_without_a_value_is_refused():
    ladder = tuple(np.arange(1, 25) / 4)
    grid = plan_grid(
        PlanBounds(24, 9, ladder, ladder),
        Capacity((NodeShape(160, 10**7, 12),)),
        worker_memory_mib=64,
        ps_memory_mib=64,
    )
    with pytest.raises(InvalidValueError, match="finite"):
        exact.exact_search(grid, Known(per_node=np.nan))
