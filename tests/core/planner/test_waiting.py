"""Laws of waits: what is free, when a wait ends, and the largest plan that fits now."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs.builders import node, snapshot

from dlrover_nb.core.pareto.space import list_plans, plan_grid
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.planner.availability.waiting import (
    end_of,
    fitting_plan,
    free_of,
    holders_of,
    kind_of,
    largest_fitting,
    needs_of,
    waits_of,
)
from dlrover_nb.core.structs.cluster.waits import Holder, QueueWait, Wait, WaitKind
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.snapshot import ROOM, NodePhase
from dlrover_nb.core.structs.views.summary import JobSummary, summarize

BOUNDS = PlanBounds(max_workers=5, max_ps=3, worker_cpus=(0.5, 1.0, 2.0), ps_cpus=(0.5, 1.0))
NEEDS = st.builds(Need, st.sampled_from([0.25, 0.5, 1.0]), st.sampled_from([256, 512, 1024]))
SHAPES = st.builds(
    NodeShape, st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1024, 4096]), st.integers(1, 3)
)
CAPACITIES = st.lists(SHAPES, min_size=1, max_size=3).map(lambda shapes: Capacity(tuple(shapes)))
ROLES = st.builds(RolePlan, st.integers(1, 5), st.sampled_from([0.5, 1.0]), st.sampled_from([256, 512]))
PLANS = st.builds(ResourcePlan, ROLES, ROLES)


@given(CAPACITIES, st.lists(NEEDS, max_size=12))
def test_what_is_free_is_no_more_than_what_is_not_held(capacity, held):
    free = free_of(capacity, held)
    assert free.total_cpu <= max(0.0, capacity.total_cpu - sum(need.cpu for need in held)) + 1e-6 or not fits(
        capacity, held
    )
    assert free.total_memory_mib <= capacity.total_memory_mib
    assert free.total_cpu <= capacity.total_cpu + 1e-6


@given(CAPACITIES, st.lists(NEEDS, max_size=8), NEEDS)
def test_a_node_that_fits_into_what_is_free_fits_beside_what_is_held(capacity, held, more):
    if fits(capacity, held) and fits(free_of(capacity, held), [more]):
        cores = sum(need.cpu for need in held) + more.cpu
        assert cores <= capacity.total_cpu + 1e-6


@given(CAPACITIES)
def test_beside_nothing_all_is_free(capacity):
    free = free_of(capacity, [])
    assert free.total_cpu == pytest.approx(capacity.total_cpu)
    assert free.total_memory_mib == capacity.total_memory_mib


@settings(deadline=None)
@given(
    PLANS,
    CAPACITIES,
    st.lists(NEEDS, max_size=8),
    st.sampled_from([Pins(), Pins(ps=1), Pins(worker_cpu=0.5)]),
)
def test_the_largest_plan_that_fits_is_the_largest_of_all_that_do(wanted, capacity, held, pins):
    free = free_of(capacity, held)
    found = largest_fitting(wanted, free, BOUNDS, pins)
    memory = wanted.worker.memory_mib, wanted.ps.memory_mib
    grid = plan_grid(BOUNDS, free, worker_memory_mib=memory[0], ps_memory_mib=memory[1], pins=pins)
    space = list_plans(grid)
    plans = [space.plan(i) for i in range(len(space))]
    allowed = [p for p in plans if _is_within(p, wanted, pins) and has_room(p, free, BOUNDS)]
    assert (found is None) == (not allowed)
    if found is not None:
        assert found in allowed
        assert pins.allows(found)
        assert found.total_cpu == max(p.total_cpu for p in allowed)
        assert fits(free, plan_needs(found))


def _is_within(plan, wanted, pins):
    def least(ladder, top):
        return max(top, ladder[0])

    return (
        plan.worker.count <= (pins.workers or wanted.worker.count)
        and plan.ps.count <= (pins.ps or wanted.ps.count)
        and plan.worker.cpu <= (pins.worker_cpu or least(BOUNDS.worker_cpus, wanted.worker.cpu))
        and plan.ps.cpu <= (pins.ps_cpu or least(BOUNDS.ps_cpus, wanted.ps.cpu))
    )


def test_where_nothing_is_free_no_plan_fits():
    waiting = snapshot()
    assert fitting_plan(waiting, Capacity((NodeShape(1.0, 1024),)), [Need(1.0, 1024)]) is None
    assert fitting_plan(waiting, Capacity(()), []) is None


@for_each(
    ("why", "kind"),
    [
        (ROOM, WaitKind.CAPACITY),
        ("0/3 nodes are available: 3 Insufficient cpu.", WaitKind.CAPACITY),
        ('pods "w-0" is forbidden: exceeded quota: team', WaitKind.QUOTA),
        ("ImagePullBackOff: Back-off pulling image x", WaitKind.IMAGE),
        ("SchedulingGated: kueue.x-k8s.io/admission", WaitKind.QUEUE),
        ("pod group is not ready, Volcano", WaitKind.QUEUE),
        ("MountVolume failed", WaitKind.OTHER),
    ],
)
def test_the_kind_of_a_wait_is_read_from_the_clusters_words(why, kind):
    assert kind_of(why) is kind


def waiting_node(name, role, why):
    return replace(node(name, role, memory=0.0), phase=NodePhase.PENDING, waits_for=why, last=None)


def test_nodes_of_one_reason_are_one_wait_and_a_queue_is_one_more(words):
    nodes = (
        node("worker-0", Role.WORKER, memory=1.0),
        waiting_node("worker-1", Role.WORKER, ROOM),
        waiting_node("worker-2", Role.WORKER, ROOM),
        waiting_node("ps-1", Role.PS, "ErrImagePull: no such tag"),
    )
    job = snapshot(nodes=nodes)
    queued = (
        QueueWait(job.spec.name, "Kueue", "gpu", "quota is used up"),
        QueueWait("other", "Kueue", "", "x"),
    )
    capacity, image, queue = waits_of(job, queued)
    assert (capacity.nodes, capacity.cpu, capacity.memory_mib) == (("worker-1", "worker-2"), 1.0, 2048)
    assert (image.kind, image.nodes) == (WaitKind.IMAGE, ("ps-1",))
    assert (queue.kind, queue.why) == (WaitKind.QUEUE, words)
    assert waits_of(replace(job, phase=JobPhase.STOPPED), queued) == ()


def wait(cpu, mib=0, kind=WaitKind.CAPACITY):
    return Wait("new", "ada", kind, "free cores and memory", ("worker-0",), cpu, mib)


HOLDERS = (
    Holder("slow", "bob", 4.0, 4096, 900.0),
    Holder("fast", "ada", 1.0, 1024, 60.0),
    Holder("stuck", "eve", 2.0, 2048, None),
)


@for_each(
    ("need", "in_s", "words"),
    [
        (0.5, 0.0, "Enough is free in total"),
        (1.5, 60.0, "When fast ends"),
        (5.0, 900.0, "When fast and slow end"),
        (7.5, None, "After stuck;"),
        (9.0, None, "Never at this size"),
    ],
)
def test_a_wait_ends_when_enough_jobs_have_ended_and_what_is_not_known_is_said(need, in_s, words):
    end = end_of(wait(need), Capacity((NodeShape(1.0, 1024),)), HOLDERS)
    assert end.in_s == in_s
    assert words in end.words


@given(st.floats(0.1, 10), st.permutations(HOLDERS))
def test_the_end_does_not_depend_on_the_order_of_the_holders(need, holders):
    free = Capacity((NodeShape(1.0, 1024),))
    assert end_of(wait(need), free, holders).in_s == end_of(wait(need), free, HOLDERS).in_s


def test_no_job_holds_an_image():
    assert end_of(wait(1.0, kind=WaitKind.IMAGE), Capacity(()), HOLDERS).in_s is None


def test_jobs_that_hold_something_are_listed_the_largest_first():
    one = summarize(snapshot())
    small = replace(one, name="small", cpu=0.1, memory_mib=64)
    over = replace(one, name="over", phase=JobPhase.SUCCEEDED)
    idle = replace(one, name="idle", cpu=0.0, memory_mib=0)
    assert [h.job for h in holders_of((small, over, idle, one))] == [one.name, "small"]
    assert [h.job for h in holders_of((small, one), beside="small")] == [one.name]


def test_the_nodes_of_a_summary_are_those_of_its_plan_as_far_as_it_holds_them():
    plan = ResourcePlan(RolePlan(3, 1.0, 512), RolePlan(1, 0.5, 256))
    job = JobSummary(
        "a", JobPhase.TRAINING, "ada", 0.0, plan, 1.0, 0.1, None, live=True, cpu=2.0, memory_mib=1024
    )
    assert needs_of(job) == [Need(1.0, 512), Need(1.0, 512)]
    assert needs_of(replace(job, cpu=3.5)) == [Need(1.0, 512)] * 3 + [Need(0.5, 256)]
    assert needs_of(replace(job, phase=JobPhase.STOPPED)) == []
