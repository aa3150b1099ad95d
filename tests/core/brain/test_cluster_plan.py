"""Laws of planning for all jobs of a cluster: what fits, who goes first, what stays, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.plans.offers_made import jobs, offer

from dlrover_nb.core.brain.cluster_plan import BrainSettings, plan_cluster
from dlrover_nb.core.brain.machines import all_fit
from dlrover_nb.core.brain.offer_columns import check, columns_of
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import PsShare

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.offers import JobOffer

ONE = Capacity((NodeShape(16.0, 64 * 1024),))
GREEDY = BrainSettings(method="greedy")
methods = st.sampled_from(
    [BrainSettings(), GREEDY, BrainSettings(weight="fair share"), BrainSettings(shrink=True)]
)


def machines_for(offers: list[JobOffer], more: float) -> Capacity:
    """Return machines with room for what runs, and a share more."""
    cpu = sum(each.plan.total_cpu for each in offers)
    return Capacity((NodeShape(8.0, 64 * 1024, int(cpu * (1 + more) / 8) + len(offers)),))


@pytest.mark.more
@settings(deadline=None)
@given(jobs(), st.floats(0, 2), methods)
def test_the_nodes_of_all_meant_plans_find_a_place_and_quotas_hold_them(offers, more, options):
    room = machines_for(offers, more)
    found = plan_cluster(offers, room, options)
    assert found.shares.keys() == {each.job for each in offers}
    shares = [found.shares[each.job] for each in offers]
    is_limited = any(share.quota != Quota() for share in shares)
    if is_limited and not found.note:
        assert fits(room, [need for share in shares for need in plan_needs(share.plan)])
    for each in offers:
        share = found.shares[each.job]
        assert share.quota.allows(share.plan)
        assert options.shrink or share.plan.total_cpu >= 0


@pytest.mark.more
@settings(deadline=None)
@given(jobs(), st.floats(0, 0.5))
def test_no_job_is_made_slower_unless_that_is_allowed(offers, more):
    found = plan_cluster(offers, machines_for(offers, more), BrainSettings())
    for each in offers:
        plan = found.shares[each.job].plan
        assert plan.worker.total_cpu >= each.plan.worker.total_cpu - 1e-9


@pytest.mark.more
@settings(deadline=None)
@given(jobs(), st.floats(0, 1))
def test_the_selection_is_no_worse_than_the_literal_greedy_by_more_than_its_bound(offers, more):
    room = machines_for(offers, more)
    ours, greedy = plan_cluster(offers, room, BrainSettings()), plan_cluster(offers, room, GREEDY)
    if not (ours.note or greedy.note):
        assert greedy.objective <= ours.bound * (1 + 1e-6) + 1e-12


@pytest.mark.release
@settings(deadline=None)
@given(jobs(), st.floats(0, 1), methods)
def test_a_choice_is_kept_while_nothing_changes(offers, more, options):
    room = machines_for(offers, more)
    first = plan_cluster(offers, room, options)
    before = {job: share.plan for job, share in first.shares.items()}
    again = plan_cluster(offers, room, options, before)
    if not first.note and any(share.quota != Quota() for share in first.shares.values()):
        assert {job: share.plan for job, share in again.shares.items()} == before


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from([0.25, 0.5, 1.0, 3.0, 9.0]),
            st.sampled_from([512, 4096, 50_000]),
            st.integers(0, 2),
        ),
        max_size=9,
    ),
    st.lists(
        st.tuples(
            st.sampled_from([2.0, 8.0]),
            st.sampled_from([4096, 64 * 1024]),
            st.integers(1, 3),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_groups_fit_where_their_nodes_do_one_by_one(groups, shapes):
    capacity = Capacity(tuple(NodeShape(*shape) for shape in sorted(set(shapes), reverse=True)))
    kinds = list(dict.fromkeys(tuple(own) for _, *own in groups))
    needs = [kind for kind in kinds for n, *own in groups if tuple(own) == kind for _ in range(n)]
    array = np.array(groups, dtype=np.float64).reshape(-1, 4)
    assert all_fit(array, capacity) == fits(capacity, needs)


def test_where_the_largest_plans_of_all_fit_nobody_has_a_quota():
    offers = [offer("a", (2, 1, 1.0, 1.0), (4, 1, 1.0, 1.0)), offer("b", (2, 1, 1.0, 1.0), (4, 1, 1.0, 1.0))]
    found = plan_cluster(offers, ONE, BrainSettings())
    assert [share.quota for share in found.shares.values()] == [Quota(), Quota()]


def test_the_short_job_gets_the_cores_and_the_long_one_is_told_who_got_them():
    big = (12, 1, 1.0, 1.0)
    offers = [
        offer("long", (2, 1, 1.0, 1.0), big, n_left=10**9),
        offer("short", (2, 1, 1.0, 1.0), big, n_left=10**6),
    ]
    found = plan_cluster(offers, ONE, BrainSettings())
    assert found.shares["short"].plan.worker.count == 12
    assert found.shares["long"].plan == offers[0].plan
    assert found.shares["short"].why == ""
    assert "Needs 10 more cores" in found.shares["long"].why
    assert "short gets 10 more cores (12w x 1 + 1p x 1)." in found.shares["long"].why


def test_a_job_that_would_miss_its_deadline_goes_first_and_gives_nothing_up_that_it_needs():
    big = (12, 1, 1.0, 1.0)
    late = offer("late", (2, 1, 1.0, 1.0), big, n_left=10**7, deadline_left_s=1500.0)
    short = offer("short", (2, 1, 1.0, 1.0), big, n_left=10**5)
    found = plan_cluster([late, short], ONE, BrainSettings())
    assert found.shares["late"].plan.worker.count == 12, "5000 s at 2,000 samples/s, 833 s at 12,000"
    on_time = offer("kept", (12, 1, 1.0, 1.0), (2, 1, 1.0, 1.0), n_left=10**7, deadline_left_s=1500.0)
    small = offer("small", (1, 1, 1.0, 1.0), (12, 1, 1.0, 1.0), n_left=10**5)
    found = plan_cluster([on_time, small], Capacity((NodeShape(18.0, 65536),)), BrainSettings())
    assert found.shares["kept"].plan.worker.count == 12


def test_a_plan_of_fewer_parameter_servers_needs_the_memory_that_each_of_them_would_hold():
    share = PsShare(own_mib=100, shared_mib=3000)  # of which two hold half each
    alone = offer("job", (1, 2, 0.5, 0.5), (8, 1, 0.5, 0.5), (4, 2, 0.5, 0.5), ps_share=share)
    columns = columns_of([alone], {})
    plans = [columns.plan(0, own) for own in range(2)]
    assert [plan.ps.memory_mib for plan in plans] == [3136, 1600]
    assert columns.bids.demands[:, 1].tolist() == [plan.total_memory_mib for plan in plans]
    assert columns.groups(np.array([1]))[1].tolist() == [2, 0.5, 1600, 0]


def test_jobs_share_the_gpus_of_a_cluster_and_are_told_of_what_they_lack():
    big = (6, 1, 1.0, 1.0)
    offers = [offer(job, (2, 1, 1.0, 1.0), big) for job in ("a", "b")]
    offers = [replace(each, plan=each.plan.with_gpus((1, 0))) for each in offers]
    room = Capacity((NodeShape(64.0, 64 * 1024, gpu=8),))
    shares = plan_cluster(offers, room, BrainSettings()).shares
    assert sorted(share.plan.total_gpu for share in shares.values()) == [2, 6]
    assert any("Needs 4 more GPUs" in share.why for share in shares.values())


def test_by_priority_the_job_that_matters_more_goes_first():
    big = (12, 1, 1.0, 1.0)
    offers = [
        offer("usual", (2, 1, 1.0, 1.0), big, n_left=10**5),
        offer("matters", (2, 1, 1.0, 1.0), big, n_left=10**9, priority=10.0),
    ]
    found = plan_cluster(offers, ONE, BrainSettings(weight="priority"))
    assert found.shares["matters"].plan.worker.count == 12
    assert found.shares["usual"].plan == offers[0].plan


def test_a_team_spends_no_more_than_its_ceiling(words):
    big = (12, 1, 1.0, 1.0)
    offers = [
        offer("a", (2, 1, 1.0, 1.0), big, owner="ada"),
        offer("b", (2, 1, 1.0, 1.0), big, owner="bob", per_core=10.0),
    ]
    found = plan_cluster(offers, ONE, BrainSettings(ceilings={"ada": 0.2}))
    assert found.shares["a"].plan == offers[0].plan
    assert found.shares["b"].plan.worker.count == 12
    assert found.shares["a"].why == words


@pytest.mark.parametrize("cores", [12, 24, 47])
def test_a_job_alone_may_use_all_of_it(cores):
    alone = offer("alone", (1, 1, 1.0, 1.0), *((n, 1, 1.0, 1.0) for n in range(2, 20)))
    quota = (
        plan_cluster([alone], Capacity((NodeShape(1.0, 4096, cores),)), BrainSettings()).shares["alone"].quota
    )
    assert quota == Quota() if cores >= 20 else quota.cpu == cores


def test_more_running_than_there_is_freezes_all():
    offers = [offer(name, (9, 1, 1.0, 1.0), (12, 1, 1.0, 1.0)) for name in "ab"]
    found = plan_cluster(offers, ONE, BrainSettings())
    assert "no job can grow" in found.note
    assert all(share.quota.cpu == 10.0 for share in found.shares.values())


def test_a_better_choice_replaces_the_last_one_only_when_it_is_clearly_better():
    big = (12, 1, 1.0, 1.0)
    a = offer("a", (2, 1, 1.0, 1.0), big, per_core=1000.0)
    b = offer("b", (2, 1, 1.0, 1.0), big, per_core=990.0)
    before = {
        "a": a.plan,
        "b": plan_cluster([b], Capacity((NodeShape(10.0, 65536),)), BrainSettings()).shares["b"].plan,
    }
    before["b"] = replace(b.plan, worker=replace(b.plan.worker, count=12))
    assert plan_cluster([a, b], ONE, BrainSettings()).shares["a"].plan.worker.count == 12
    kept = plan_cluster([a, b], ONE, BrainSettings(), before)
    assert kept.is_kept
    assert kept.shares["b"].plan.worker.count == 12
    fast = replace(a, samples_per_s=a.samples_per_s, n_sample_left=10**5)
    assert plan_cluster([fast, b], ONE, BrainSettings(), before).shares["a"].plan.worker.count == 12


@for_each("wrong", [np.nan, np.inf, -1.0, 0.0])
def test_an_offer_with_impossible_numbers_is_refused(wrong):
    good = offer("a", (2, 1, 1.0, 1.0), (4, 1, 1.0, 1.0))
    check(good)
    columns = np.frombuffer(good.columns, "<f8").copy()
    columns[4] = wrong
    with pytest.raises(InvalidValueError, match="from job a"):
        check(replace(good, columns=columns.tobytes()))
    with pytest.raises(InvalidValueError, match="7 numbers of each"):
        replace(good, columns=good.columns[:-8])


def test_settings_name_what_there_is(error_words):
    with error_words(InvalidValueError):
        BrainSettings(method="magic")
    with pytest.raises(InvalidValueError, match="fair share"):
        BrainSettings(weight="luck")
