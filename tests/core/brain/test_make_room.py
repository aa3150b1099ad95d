"""Running jobs that give up cores for the first of the queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plans.offers_made import jobs, offer
from test_admission import waiting

from dlrover_nb.core.brain.admission import start_plan
from dlrover_nb.core.brain.make_room import make_room
from dlrover_nb.core.planner.availability.waiting import free_of
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, plan_needs

EIGHT = Capacity((NodeShape(8.0, 65536),))


@pytest.mark.more
@given(jobs(n_most=5), st.integers(1, 6))
def test_who_gives_way_gets_smaller_and_the_first_of_the_queue_fits(offers, n_worker):
    first = waiting("late", n_worker)
    cpu = sum(each.plan.total_cpu for each in offers)
    room = Capacity((NodeShape(cpu, 1 << 20),))
    found = make_room(first, offers, room, 0.5)
    if found is None:
        return
    assert found.shares.keys() == {each.job for each in offers}
    for each in offers:
        share = found.shares[each.job]
        assert share.plan.total_cpu <= each.plan.total_cpu
        assert share.quota.binds is (share.plan != each.plan)
        assert share.quota.allows(share.plan)
        now_s, left_s = each.n_sample_left / each.samples_per_s, each.deadline_left_s
        if left_s is not None and now_s <= left_s and share.plan != each.plan:
            per_core = each.samples_per_s / (each.plan.worker.count * each.plan.worker.cpu)
            speed = per_core * share.plan.worker.count * share.plan.worker.cpu
            assert each.n_sample_left / speed <= left_s * (1 + 1e-9)
    needs = [need for share in found.shares.values() for need in plan_needs(share.plan)]
    assert start_plan(first, free_of(room, needs), 0.5) is not None


def test_the_job_that_is_delayed_least_gives_way_alone(words):
    slow = offer("long", (3, 1, 1.0, 1.0), (1, 1, 1.0, 1.0), n_left=10_000_000)
    short = offer("short", (3, 1, 1.0, 1.0), (1, 1, 1.0, 1.0), n_left=1_000)
    found = make_room(waiting("late", 1, 1.0), [slow, short], EIGHT, 1.0)
    assert found.shares["long"].plan == slow.plan
    assert not found.shares["long"].quota.binds
    assert found.shares["short"].plan.worker.count == 1
    assert found.shares["short"].why == words


def test_jobs_give_way_together_where_none_does_alone():
    offers = [offer(name, (3, 1, 1.0, 1.0), (1, 1, 1.0, 1.0)) for name in ("one", "two")]
    found = make_room(waiting("late", 3, 1.0), offers, EIGHT, 1.0)
    assert all(share.quota.binds for share in found.shares.values())


def test_nobody_gives_way_for_what_would_not_be_enough_or_misses_its_own_deadline():
    small = offer("one", (3, 1, 1.0, 1.0), (2, 1, 1.0, 1.0))
    assert make_room(waiting("late", 5, 1.0), [small], EIGHT, 1.0) is None
    due = offer("due", (3, 1, 1.0, 1.0), (1, 1, 1.0, 1.0), n_left=300_000, deadline_left_s=110.0)
    tight = Capacity((NodeShape(4.0, 65536),))
    assert make_room(waiting("late", 1, 1.0), [due], tight, 1.0) is None
