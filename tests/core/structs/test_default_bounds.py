from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job, parse_job
from dlrover_nb.core.pareto.space import MAX_PLANS, ladders, list_plans, plan_grid
from dlrover_nb.core.structs.job.job import DEFAULT_PLAN, JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits
from dlrover_nb.core.structs.plan.default_bounds import (
    MOST_PS,
    MOST_WORKERS,
    assumed,
    bounds_words,
    completed,
    widened,
)
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

OPEN = PlanBounds()

cores = st.sampled_from([0.2, 0.5, 1.0, 2.0, 3.9, 8.0, 32.0, 96.0])
capacities = st.builds(
    lambda shapes: Capacity(tuple(shapes)),
    st.lists(
        st.builds(NodeShape, cores, st.sampled_from([2048, 131_072]), st.integers(1, 200)),
        min_size=1,
        max_size=3,
    ),
)
sizes = st.sampled_from([(), (1.0, 2.0), (0.5,)])
asked = st.builds(
    PlanBounds,
    max_workers=st.none() | st.integers(1, 500),
    max_ps=st.none() | st.integers(1, 100),
    worker_cpus=sizes,
    ps_cpus=sizes,
    quota_cpu=st.none() | st.floats(0.1, 500),
)
plans = st.builds(
    ResourcePlan,
    st.builds(RolePlan, st.integers(1, 40), st.sampled_from([0.25, 0.5, 1.5]), st.just(512)),
    st.builds(RolePlan, st.integers(1, 10), st.sampled_from([0.25, 1.5]), st.just(512)),
)


@settings(deadline=None)
@given(asked, capacities, plans)
def test_what_the_user_names_stays_and_nothing_is_left_open(bounds, capacity, plan):
    found = completed(bounds, capacity, plan)
    assert found.open == ()
    named = {name for name in PlanBounds.__slots__ if name not in bounds.open}
    assert {name: getattr(found, name) for name in named} == {name: getattr(bounds, name) for name in named}
    assert completed(found, capacity, plan) == found


@settings(deadline=None)
@given(capacities, plans)
def test_requested_plan_is_always_among_the_plans(capacity, plan):
    workers, ps, worker_cpus, ps_cpus = ladders(completed(OPEN, capacity, plan))
    assert plan.worker.count in workers
    assert plan.ps.count in ps
    assert plan.worker.cpu in worker_cpus
    assert plan.ps.cpu in ps_cpus


@settings(deadline=None)
@given(asked, capacities, plans, st.integers(1, 3))
def test_more_machines_never_narrow_the_bounds(bounds, capacity, plan, times):
    more = Capacity(tuple(replace(shape, count=shape.count * times) for shape in capacity.shapes))
    small, large = completed(bounds, capacity, plan), completed(bounds, more, plan)
    assert widened(small, large) == large


@settings(deadline=None)
@given(asked, capacities, capacities, plans)
def test_widened_bounds_allow_what_either_allows(bounds, capacity, other, plan):
    one, two = completed(bounds, capacity, plan), completed(bounds, other, plan)
    both = [set(rungs) for rungs in ladders(widened(one, two))]
    for rungs, either in zip(both, zip(ladders(one), ladders(two), strict=True), strict=True):
        assert rungs == {*either[0], *either[1]}


@settings(deadline=None)
@given(capacities)
def test_as_many_workers_as_fit_beside_one_ps(capacity):
    found = completed(OPEN, capacity, DEFAULT_PLAN)
    worker, ps = found.worker_cpus[0], found.ps_cpus[0]
    needs = [(ps, 1), *[(worker, 1)] * found.max_workers]
    assert fits(capacity, needs) or found.max_workers == 1
    assert found.max_workers == MOST_WORKERS or not fits(capacity, [*needs, (worker, 1)])


@for_each("n_machine", [1, 8, 125, 10_000])
def test_all_plans_are_listed_whatever_the_size_of_the_cluster(n_machine):
    capacity = Capacity((NodeShape(32.0, 131_072, n_machine),))
    bounds = completed(OPEN, capacity, DEFAULT_PLAN)
    grid = plan_grid(bounds, capacity, worker_memory_mib=1024, ps_memory_mib=512)
    assert grid.n_plan <= MAX_PLANS / 5
    assert bounds.counts <= (MOST_WORKERS, MOST_PS)
    whole = n_machine * 32.0
    assert list_plans(grid).axes[:, [0, 2]].prod(axis=1).max() >= min(0.9 * whole, MOST_WORKERS * 32 * 0.9)


def test_quota_of_cores_counts_as_machines_do():
    capacity = Capacity((NodeShape(32.0, 131_072, 8),))
    found = completed(PlanBounds(quota_cpu=4), capacity, DEFAULT_PLAN)
    assert found.counts == (15, 7)  # 0.25 cores each, beside one PS, or beside one worker


def test_two_cores_of_a_laptop_are_small_bounds():
    found = completed(OPEN, Capacity((NodeShape(2.0, 8000),)), DEFAULT_PLAN)
    assert found.counts == (7, 3)
    assert found.worker_cpus == (0.25, 0.5, 0.75, 1.0, 2.0)


def test_open_bounds_survive_the_job_file_and_the_records():
    spec = JobSpec("x", bounds=PlanBounds(max_ps=3))
    assert parse_job(dump_job(spec)) == spec
    assert from_json(to_json(spec), JobSpec) == spec
    file = "name: x\nbounds: {max_workers: null, worker_cpus: []}"
    assert parse_job(file).bounds.open == OPEN.open


def test_planning_with_open_bounds_says_which_are_missing(error_words):
    with error_words(InvalidValueError):
        ladders(PlanBounds(max_workers=3, worker_cpus=(1.0,)))


def test_unlisted_machines_leave_the_small_bounds():
    assert assumed(PlanBounds(max_workers=9)).counts == (9, 2)


def test_words_name_the_bounds_and_what_follows_from_the_cluster(words):
    bounds = PlanBounds(max_workers=1, ps_cpus=(0.5,))
    known = completed(bounds, Capacity((NodeShape(2.0, 8000),)), DEFAULT_PLAN)
    assert bounds_words(bounds, known) == words
    assert "follow" not in bounds_words(known, known)


@given(capacities, st.integers(1, 300))
def test_no_more_workers_are_proposed_than_have_work(capacity, most_workers):
    bounds = completed(PlanBounds(), capacity, DEFAULT_PLAN, most_workers=most_workers)
    free = completed(PlanBounds(), capacity, DEFAULT_PLAN)
    assert bounds.counts == (
        max(min(free.counts[0], most_workers), DEFAULT_PLAN.worker.count),
        free.counts[1],
    )
