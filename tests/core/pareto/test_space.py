from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.bin_packing import fits
from dlrover_nb.core.pareto.space import (
    ladders,
    list_plans,
    neighbours,
    nothing_left,
    plan_grid,
)
from dlrover_nb.core.structs.plan import capacity as machines
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeLimits, NodeShape, plan_needs
from dlrover_nb.core.structs.plan.resources import PsShare

MEMORY = {"worker_memory_mib": 256, "ps_memory_mib": 128}
LARGE = Capacity((NodeShape(1000, 10**7),))
SMALL = PlanBounds(4, 2, (0.25, 0.5, 0.75, 1.0), (0.25, 0.5, 0.75, 1.0))

shapes = st.lists(
    st.builds(
        NodeShape,
        st.sampled_from([0.3, 1, 2.05, 4]),
        st.sampled_from([512, 2048, 8192]),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=3,
)
bounds = st.builds(
    PlanBounds,
    max_workers=st.integers(1, 5),
    max_ps=st.integers(1, 3),
    worker_cpus=st.just((0.1, 0.25, 1.5)),
    ps_cpus=st.just((0.3, 1)),
    quota_cpu=st.one_of(st.none(), st.floats(0.1, 8)),
    quota_memory_mib=st.one_of(st.none(), st.integers(100, 4000)),
)
pins = st.builds(
    Pins,
    workers=st.one_of(st.none(), st.integers(1, 8)),
    ps=st.one_of(st.none(), st.integers(1, 4)),
    worker_cpu=st.one_of(st.none(), st.sampled_from([0.25, 0.7])),
    ps_cpu=st.one_of(st.none(), st.sampled_from([0.3, 0.9])),
    worker_memory_mib=st.one_of(st.none(), st.sampled_from([64, 500])),
    ps_memory_mib=st.one_of(st.none(), st.sampled_from([64, 700])),
)


def listed(*args, gpus=(0, 0), **memory):
    return list_plans(replace(plan_grid(*args, **memory), gpus=gpus))


limits = st.none() | st.builds(
    NodeLimits,
    st.sampled_from([None, 0.25]),
    st.sampled_from([None, 100]),
    st.sampled_from([None, 0.3, 1.0]),
    st.sampled_from([None, 400, 900]),
)


@settings(deadline=None, max_examples=60)
@given(
    shapes=shapes,
    mib=st.tuples(st.sampled_from([256, 1024]), st.sampled_from([128, 900])),
    limits=limits,
    gpus=st.tuples(st.integers(0, 2), st.integers(0, 1)),
)
def test_vectorised_placing_equals_node_by_node(shapes, mib, limits, gpus):
    memory = {"worker_memory_mib": mib[0], "ps_memory_mib": mib[1], "gpus": gpus}
    wide = PlanBounds(max_workers=5, max_ps=3, worker_cpus=(0.1, 0.25, 1.5), ps_cpus=(0.3, 1))
    space = listed(wide, Capacity((replace(LARGE.shapes[0], gpu=99),)), **memory)
    assert len(space) == 5 * 3 * 3 * 2
    capacity = Capacity(tuple(shapes), node_limits=limits)
    held = fits(space.axes, capacity, **memory)
    one_by_one = [machines.holds(capacity, space.plan(i)) for i in range(len(space))]
    assert held.tolist() == one_by_one


@settings(deadline=None, max_examples=150)
@given(bounds=bounds, shapes=shapes, pins=pins, limits=limits)
def test_space_is_exactly_the_plans_within_bounds_quota_pins_and_machines(bounds, shapes, pins, limits):
    capacity = Capacity(tuple(shapes), node_limits=limits)
    space = listed(bounds, capacity, **MEMORY, pins=pins)
    found = {space.plan(i) for i in range(len(space))}
    free = replace(bounds, quota_cpu=None, quota_memory_mib=None)
    wide = listed(free, Capacity((NodeShape(10**6, 10**9),)), **MEMORY)
    everything = {pins.applied(wide.plan(i)) for i in range(len(wide))}
    expected = {
        plan
        for plan in everything
        if machines.holds(capacity, plan)
        and (bounds.quota_cpu is None or plan.total_cpu <= bounds.quota_cpu)
        and (bounds.quota_memory_mib is None or plan.total_memory_mib <= bounds.quota_memory_mib)
    }
    assert found == expected
    assert len(found) == len(space)
    assert all(pins.allows(plan) for plan in found)


@settings(deadline=None, max_examples=100)
@given(
    shapes=shapes,
    share=st.builds(PsShare, st.integers(0, 500), st.integers(0, 6000), st.sampled_from([0, 64, 500])),
    now_mib=st.sampled_from([128, 900, 3000]),
    quota=st.none() | st.integers(500, 9000),
)
def test_space_is_exact_where_parameter_servers_share_what_they_hold(shapes, share, now_mib, quota):
    few = PlanBounds(4, 4, (0.25,), (0.3,), quota_memory_mib=quota)
    memory = {"worker_memory_mib": 256, "ps_memory_mib": now_mib, "ps_share": share}
    wide = listed(replace(few, quota_memory_mib=None), LARGE, **memory)
    assert len(wide) == 16
    capacity = Capacity(tuple(shapes))
    expected = {
        plan
        for plan in map(wide.plan, range(16))
        if machines.fits(capacity, plan_needs(plan)) and (quota is None or plan.total_memory_mib <= quota)
    }
    space = listed(few, capacity, **memory)
    assert {space.plan(i) for i in range(len(space))} == expected
    own, shared = share.own_mib, share.shared_mib
    assert all(plan.ps.memory_mib >= own + shared / plan.ps.count for plan in expected)
    worker_mib, ps_mib = space.memory_mib
    totals = space.axes[:, 0] * worker_mib + space.axes[:, 1] * ps_mib
    assert totals.tolist() == [space.plan(i).total_memory_mib for i in range(len(space))]


def test_counts_of_parameter_servers_that_no_machine_holds_are_left_out():
    grid = plan_grid(
        SMALL, Capacity((NodeShape(8, 2048, 4),)), **MEMORY, ps_share=PsShare(own_mib=100, shared_mib=3000)
    )
    assert grid.ladders[1] == (2.0,)
    assert grid.smallest.ps.memory_mib == 1600
    pinned = plan_grid(SMALL, LARGE, **MEMORY, pins=Pins(ps_memory_mib=700), ps_share=PsShare(100, 3000))
    assert {listed_plan.ps.memory_mib for listed_plan in map(list_plans(pinned).plan, range(9))} == {700}


@settings(deadline=None, max_examples=100)
@given(bounds=bounds, shapes=shapes, pins=pins)
def test_empty_space_is_explained_and_only_an_empty_one(bounds, shapes, pins):
    grid = plan_grid(bounds, Capacity(tuple(shapes)), **MEMORY, pins=pins)
    assume(grid.n_plan < 1000)
    assert (len(list_plans(grid)) == 0) == bool(nothing_left(grid))


@for_each(
    ("bounds", "capacity", "pins", "said"),
    [
        (replace(SMALL, quota_cpu=0.4), LARGE, Pins(), "quota of 0.4 cores.*needs 0.5 cores"),
        (replace(SMALL, quota_memory_mib=300), LARGE, Pins(), "quota of 300 MiB.*384 MiB"),
        (SMALL, Capacity(()), Pins(), "machines .none."),
        (SMALL, Capacity((NodeShape(8, 200, 9),)), Pins(), "256 MiB per worker"),
        (
            SMALL,
            Capacity((NodeShape(4, 8192),)),
            Pins(worker_cpu=6),
            "worker_cpu = 6 is pinned, so release",
        ),
    ],
)
def test_constraint_that_leaves_no_plan_is_named(bounds, capacity, pins, said):
    assert re.search(said, nothing_left(plan_grid(bounds, capacity, **MEMORY, pins=pins)))


def test_pin_outside_the_ladders_is_allowed_when_it_fits():
    grid = plan_grid(SMALL, LARGE, **MEMORY, pins=Pins(workers=7, ps_cpu=0.6, worker_memory_mib=2048))
    assert not nothing_left(grid)
    space = list_plans(grid)
    assert set(space.axes[:, 0]) == {7.0}
    assert set(space.axes[:, 3]) == {0.6}
    assert (space.worker_memory_mib, space.ps_memory_mib) == (2048, 128)


def test_space_that_is_too_large_is_not_listed():
    with pytest.raises(InvalidValueError, match="plans"):
        listed(replace(SMALL, max_workers=10_000, max_ps=1000), LARGE, **MEMORY)


def test_plans_come_in_chunks_as_they_come_at_once():
    wide = PlanBounds(
        40, 40, tuple(np.arange(1, 13) / 4), tuple(np.arange(1, 13) / 4), quota_cpu=40, quota_memory_mib=9000
    )
    grid = plan_grid(wide, LARGE, **MEMORY)
    chunks = list(grid.chunks())
    assert len(chunks) > 1
    axes = np.concatenate(chunks)
    assert np.array_equal(axes, np.unique(axes, axis=0))
    assert grid.allows(axes).all()
    assert grid.contains(axes).all()


def test_shared_space_cannot_be_changed_by_who_uses_it():
    space = listed(SMALL, LARGE, **MEMORY)
    with pytest.raises(ValueError, match="read-only"):
        space.axes[0, 0] = 99


def test_neighbours_differ_by_one_step_on_one_axis():
    here = np.array([2.0, 1.0, 0.6, 1.0])
    near = neighbours(here, SMALL)
    assert ((near != here).sum(axis=1) == 1).all()
    assert sorted(near[near[:, 2] != 0.6, 2]) == [0.5, 0.75]
    assert sorted(near[near[:, 0] != 2, 0]) == [1, 3]
    assert near[near[:, 1] != 1, 1].tolist() == [2]


@settings(deadline=None)
@given(pins=pins, workers=st.integers(1, 6), ps=st.integers(1, 3))
def test_neighbours_keep_to_the_pins(pins, workers, ps):
    near = neighbours(np.array([workers, ps, 0.5, 0.5]), SMALL, pins)
    for axis, pin in enumerate((pins.workers, pins.ps, pins.worker_cpu, pins.ps_cpu)):
        if pin is not None:
            assert set(near[:, axis]) <= {pin}
            assert ladders(SMALL, pins)[axis] == (pin,)
