"""Laws of planning by deadlines: who grows, who gives back, and that all nodes find a place."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans.offers_made import MIB, jobs, offer

from dlrover_nb.core.brain.by_deadline import KEPT_SLACK, SLACK, adjusted, load_of
from dlrover_nb.core.brain.cluster_plan import BrainSettings, before_queue, plan_cluster
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

QORE = BrainSettings(method="qore", shrink=True)
NOW = (4, 1, 1.0, 1.0)  # 5 cores, 4,000 samples/s
MORE, LESS = (8, 1, 1.0, 1.0), (2, 1, 1.0, 1.0)
N_LEFT = 4_000_000  # 1,000 s of training as it is


def machines(cores: float) -> Capacity:
    return Capacity((NodeShape(cores, 64 * MIB),))


def job(name: str, left_s: float | None, *plans: tuple[int, int, float, float], **fields: object):
    return offer(name, NOW, *plans, n_left=N_LEFT, deadline_left_s=left_s, **fields)


@pytest.mark.more
@settings(deadline=None)
@given(jobs(), st.floats(0, 2), st.booleans(), st.booleans())
def test_quotas_hold_their_plans_and_all_growth_finds_a_place(offers, more, shrink, late_only):
    cpu = sum(each.plan.total_cpu for each in offers)
    room = Capacity((NodeShape(8.0, 64 * 1024, int(cpu * (1 + more) / 8) + len(offers)),))
    found = adjusted(offers, room, shrink=shrink, late_only=late_only)
    assert found.shares.keys() == {each.job for each in offers}
    plans = []
    for each in offers:
        share = found.shares[each.job]
        assert share.quota.leads
        assert share.quota.allows(share.plan)
        gives = share.plan.total_cpu < each.plan.total_cpu
        assert share.quota.binds == gives
        assert shrink or not gives
        assert not gives or each.deadline_left_s is not None
        plans.append(each.plan if gives else share.plan)  # what is given back is free later
    assert fits(room, [need for plan in plans for need in plan_needs(plan)])


@given(st.floats(-100, 10_000), st.floats(5, 64))
def test_who_gives_back_stays_in_time(left_s, cores):
    found = adjusted([job("slack", left_s, LESS), job("late", 500, MORE)], machines(10 + cores), shrink=True)
    plan = found.shares["slack"].plan
    if plan.total_cpu < 5:
        assert 1000 / left_s - 1 <= SLACK
        assert 2000 / left_s - 1 <= KEPT_SLACK


def test_a_late_job_grows_to_the_least_that_is_in_time_and_may_use_what_is_left():
    (share,) = adjusted(
        [job("late", 600, MORE, (16, 1, 1.0, 1.0))], machines(32), shrink=False
    ).shares.values()
    assert share.plan.worker.count == 8
    assert share.quota.cpu == 32
    assert "it would be late" in share.why


def test_a_job_whose_speed_is_doubtful_is_late_earlier():
    room = machines(14)
    sure, doubtful = (
        adjusted([job("j", 1100, MORE, sure_share=share), job("k", None)], room, shrink=False)
        for share in (1.0, 0.8)
    )
    assert sure.shares["j"].plan.worker.count == 4
    assert doubtful.shares["j"].plan.worker.count == 8


def test_where_late_jobs_find_no_room_one_with_slack_gives_back_what_they_lack(words):
    offers = [job("late", 600, MORE), job("slack", 9000, LESS, (1, 1, 1.0, 1.0)), job("free", None, LESS)]
    found = adjusted(offers, machines(15), shrink=True).shares
    assert found["late"].plan == offers[0].plan
    assert (found["slack"].plan.worker.count, found["slack"].quota.binds) == (1, True)
    assert found["free"].plan == offers[2].plan
    assert found["slack"].why == words
    assert not adjusted(offers, machines(15), shrink=False).shares["slack"].quota.binds
    roomy = adjusted(offers, machines(19), shrink=True).shares
    assert (roomy["late"].plan.worker.count, roomy["slack"].plan) == (8, offers[1].plan)


def test_on_a_light_cluster_jobs_in_time_grow_but_not_before_the_queue():
    offers = [job("a", 9000, MORE), job("b", None, MORE)]
    assert all(s.plan.worker.count == 8 for s in plan_cluster(offers, machines(64), QORE).shares.values())
    assert before_queue(offers, machines(64), QORE) is None
    late = [job("late", 600, MORE), *offers]
    found = before_queue(late, machines(64), QORE)
    assert [found.shares[each.job].plan.worker.count for each in late] == [8, 4, 4]
    assert before_queue(late, machines(64), BrainSettings()) is None


def test_on_a_full_cluster_without_late_jobs_slack_is_given_back_for_jobs_to_come():
    (share,) = plan_cluster([job("slack", 9000, LESS)], machines(5), QORE).shares.values()
    assert (share.plan.worker.count, share.quota.binds) == (2, True)
    assert "for new jobs" in share.why


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 9))
def test_load_counts_nodes_as_spread_over_the_machines(n_worker, n_ps, n_machine):
    plan = ResourcePlan(RolePlan(n_worker, 1.0, MIB), RolePlan(n_ps, 1.0, MIB))
    room = Capacity((NodeShape(32.0, 32 * MIB, n_machine),))
    n_least = (n_worker + n_ps) // n_machine
    assert (
        n_least / 32 - 1e-9 <= load_of(room, [plan]) <= math.ceil((n_worker + n_ps) / n_machine) / 32 + 1e-9
    )


def test_it_knows_no_ceilings(error_words):
    with error_words(InvalidValueError):
        BrainSettings(method="qore", ceilings={"ada": 1.0})
