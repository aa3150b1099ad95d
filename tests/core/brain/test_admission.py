"""Who of the queue starts, and what the others are told: laws over random queues, then single cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.brain.admission import admit
from dlrover_nb.core.brain.queue_order import ORDERS, QueueState, first_of
from dlrover_nb.core.structs.cluster.waits import Holder
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

MIB = 1024
WHOLE = Capacity((NodeShape(16.0, 65536),))


def waiting(job: str, workers: int = 2, cpu: float = 1.0, **fields: object) -> WaitingOffer:
    given = {"owner": "ada", "since_s": 90.0, "n_sample": 60_000} | fields
    plan = ResourcePlan(RolePlan(workers, cpu, MIB), RolePlan(1, 1.0, MIB))
    return WaitingOffer(job=job, plan=plan, **given)  # type: ignore[arg-type]


@st.composite
def queues(draw: st.DrawFn) -> list[WaitingOffer]:
    return [
        waiting(
            f"job-{i}",
            draw(st.integers(1, 12)),
            draw(st.sampled_from([0.5, 1.0, 2.0])),
            owner=draw(st.sampled_from(["ada", "bob"])),
            since_s=draw(st.floats(0, 1e5)),
            samples_per_s=draw(st.none() | st.floats(1, 1e5)),
            deadline_left_s=draw(st.none() | st.floats(-100, 1e6)),
            priority=draw(st.floats(0, 10)),
        )
        for i in range(draw(st.integers(0, 6)))
    ]


holders = st.lists(
    st.builds(
        Holder,
        st.uuids().map(str),
        st.sampled_from(["ada", "bob"]),
        st.sampled_from([0.5, 1.0, 4.0]),
        st.integers(0, 8000),
        st.none() | st.floats(0, 1e6),
    ),
    max_size=4,
)
frees = st.sampled_from([0.0, 0.5, 1.0, 3.0, 8.0, 16.0]).map(
    lambda cpu: Capacity((NodeShape(cpu, 65536),)) if cpu else Capacity(())
)


@pytest.mark.more
@given(queues(), frees, holders, st.sampled_from(sorted(ORDERS)), st.sampled_from([0.25, 0.5, 1.0]))
def test_what_starts_fits_and_is_enough_and_everyone_else_has_a_place(queue, free, held, order, share):
    found = admit(queue, WHOLE, free, held, order=order, least_share=share)
    asked = {job.job: job.plan for job in queue}
    assert sum(plan.total_cpu for plan in found.admitted.values()) <= free.total_cpu + 1e-9
    for job, plan in found.admitted.items():
        assert share * asked[job].total_cpu - 0.01 <= plan.total_cpu <= asked[job].total_cpu + 0.01
        assert found.why[job]
    assert found.admitted.keys().isdisjoint(found.places)
    assert found.admitted.keys() | found.places.keys() == asked.keys()
    assert sorted(each.place for each in found.places.values()) == [*range(1, len(found.places) + 1)]
    assert (found.first is None) == (not found.places)
    starts = [each.starts_in_s for each in sorted(found.places.values(), key=lambda p: p.place)]
    known = [start for start in starts if start is not None]
    assert starts == known + [None] * (len(starts) - len(known)), "behind an unknown start none is known"
    assert known == sorted(known)


@given(queues(), frees, st.sampled_from(sorted(ORDERS)))
def test_without_known_lengths_nobody_starts_before_the_first_that_waits(queue, free, order):
    unknown = [waiting(j.job, j.plan.worker.count, j.plan.worker.cpu, since_s=j.since_s) for j in queue]
    found = admit(unknown, WHOLE, free, [], order="first come", least_share=1.0)
    if found.first is not None:
        earlier = [job for job in unknown if job.since_s < found.first.since_s]
        assert {job.job for job in earlier} <= found.admitted.keys()
        assert all(job.since_s <= found.first.since_s for job in unknown if job.job in found.admitted)


def first(*queue: WaitingOffer, order: str, used: float = 0.0, **shares: float) -> str:
    return first_of(queue, order, QueueState(WHOLE, used, shares)).job


@for_each("order", sorted(ORDERS))
def test_among_equals_the_longer_wait_is_first(order):
    queue = (waiting("late", since_s=95.0), waiting("early", since_s=50.0))
    assert first(*queue, order=order) == "early"


def test_each_order_has_its_own_first():
    short = waiting("short", samples_per_s=1000.0, since_s=99.0)
    long = waiting("long", samples_per_s=10.0, since_s=91.0)
    assert first(long, short, order="shortest") == "short"
    assert first(long, waiting("unknown"), order="shortest") == "long"
    assert first(waiting("a"), waiting("b", priority=3.0, since_s=100.0), order="priority") == "b"
    mine, yours = waiting("mine", owner="ada"), waiting("yours", owner="bob", since_s=100.0)
    assert first(mine, yours, order="fair share", ada=0.5, bob=0.1) == "yours"


def test_qore_takes_the_urgent_first_then_large_ones_under_light_load_and_small_ones_under_heavy_load():
    urgent = waiting("urgent", 1, samples_per_s=100.0, deadline_left_s=601.0)
    large, small = waiting("large", 12), waiting("small", 1)
    assert first(small, large, order="qore", used=0.1) == "large"
    assert first(large, small, order="qore", used=0.9) == "small"
    assert first(large, urgent, small, order="qore", used=0.9) == "urgent"


def test_a_short_job_starts_before_the_first_only_if_it_ends_before_that_one_could():
    large = waiting("large", 12, since_s=1.0)
    running = [Holder("old", "ada", 12.0, MIB, 100.0)]
    free = Capacity((NodeShape(4.0, 65536),))
    for rate, starts in ((1000.0, True), (100.0, False), (None, False)):  # 60 s, 600 s, unknown
        short = waiting("short", samples_per_s=rate)
        found = admit([large, short], WHOLE, free, running, order="first come", least_share=1.0)
        assert ("short" in found.admitted) is starts
        assert found.places["large"].starts_in_s == 100.0
        assert "old" in found.places["large"].why.partition("after")[2]


def test_a_part_of_the_plan_lets_a_job_start(words):
    job, free = waiting("ads", 4), Capacity((NodeShape(3.0, 65536),))
    half = admit([job], WHOLE, free, [], order="first come", least_share=0.5)
    assert half.admitted["ads"].total_cpu == pytest.approx(3.0)
    assert "starts smaller than the" in half.why["ads"]
    whole = admit([job], WHOLE, free, [], order="first come", least_share=1.0)
    assert whole.places["ads"].place == 1
    assert whole.places["ads"].why == words


def test_nodes_beside_the_plan_need_room_too_and_stay_whole():
    """Those of an external job's fixed roles, such as an evaluator."""
    free = Capacity((NodeShape(6.0, 65536),))
    for beside, starts in (((4.0, MIB), False), ((3.0, MIB), True), ((8.0, MIB), False)):
        job = waiting("ads", beside=(beside,))
        found = admit([job], WHOLE, free, [], order="first come", least_share=1.0)
        assert ("ads" in found.admitted) is starts
        if starts:
            assert sum(need.cpu for need in found.needs) == 6.0
        else:
            assert f"needs at least {3 + beside[0]:g} cores" in found.places["ads"].why
    both = [waiting("a", beside=((3.0, MIB),)), waiting("b", 1, since_s=95.0)]
    found = admit(both, WHOLE, Capacity((NodeShape(6.5, 65536),)), [], order="first come", least_share=0.5)
    assert [*found.admitted] == ["a"]


def test_a_start_behind_a_job_without_an_end_is_not_guessed(words):
    running = [Holder("old", "ada", 16.0, MIB, None)]
    found = admit([waiting("ads")], WHOLE, Capacity(()), running, order="first come", least_share=1.0)
    assert found.places["ads"].starts_in_s is None
    assert found.places["ads"].why == words
    never = admit([waiting("ads", 12, 2.0)], WHOLE, Capacity(()), [], order="first come", least_share=1.0)
    assert "needs more machines" in never.places["ads"].why
