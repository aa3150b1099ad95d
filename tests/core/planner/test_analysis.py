from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core import pricing
from dlrover_nb.core.brain.cluster_plan import BrainSettings, plan_cluster
from dlrover_nb.core.pareto.dominance import hypervolume, non_dominated
from dlrover_nb.core.pareto.picks import MOST_SHOWN
from dlrover_nb.core.pareto.space import CACHED_PLANS, MAX_PLANS
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.advising.improvement import advise
from dlrover_nb.core.planner.analysis import analyse, fitted
from dlrover_nb.core.planner.bid import bid
from dlrover_nb.core.planner.predictions.transitions import HORIZON_S, gains, transition_s, transitions_s
from dlrover_nb.core.planner.shortlist import grid_of
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

NOW = ResourcePlan(RolePlan(2, 2, 2048), RolePlan(1, 2, 2048))
CLUSTER = Capacity((NodeShape(32, 131_072, 20),))
SIZES = tuple(float(c) for c in range(1, 9))


def seen(plan, n=3):
    w, p, a, b = plan.worker.count, plan.ps.count, plan.worker.cpu, plan.ps.cpu
    iter_s = 0.15 / a + 0.05 * w / (p * b) + 0.01 * w / p + 0.05 / p + 0.01
    return tuple(ProfileSample(float(i), 2.0, plan, 512, w * 512 / iter_s) for i in range(n))


def changed(w=2, p=1, a=2.0, b=2.0):
    return ResourcePlan(RolePlan(w, a, 2048), RolePlan(p, b, 2048))


MEASURED = [
    *seen(NOW),
    *seen(changed(w=4)),
    *seen(changed(p=2)),
    *seen(changed(a=4.0)),
    *seen(changed(b=4.0)),
]


def situation(bounds, **changes) -> Situation:
    spec = changes.pop("spec", JobSpec("x"))
    base = Situation(
        spec=replace(spec, bounds=bounds),
        capacity=CLUSTER,
        dense_bytes=100_000,
        embedding_dim=16,
        plan=NOW,
        samples=tuple(MEASURED),
        n_sample_left=100_000_000,
    )
    return replace(base, **changes)


SMALL = PlanBounds(8, 4, (1, 2, 4), (1, 2, 4))
LARGE = PlanBounds(24, 8, SIZES, SIZES, quota_cpu=64)
HUGE = PlanBounds(1000, 300, SIZES, SIZES, quota_cpu=200)


@pytest.fixture(scope="module", params=[SMALL, LARGE, HUGE], ids=["small", "large", "huge"])
def analysis(request):
    return analyse(situation(request.param))


def test_spaces_of_this_file_are_listed_thinned_out_and_searched():
    sizes = [grid_of(situation(bounds)).n_plan for bounds in (SMALL, LARGE, HUGE)]
    assert sizes[0] <= CACHED_PLANS < sizes[1] <= MAX_PLANS < sizes[2]


@pytest.mark.more
def test_front_curves_and_advice_come_from_a_space_of_any_size(analysis):
    assert analysis.front.candidates
    assert {p.name for p in analysis.front.picks} >= {"knee", "fastest", "best value"}
    assert {c.axis for c in analysis.curves} == {"workers", "ps", "worker_cpu", "ps_cpu"}
    advice = advise(analysis, PlannerSettings(), rejected_plans={}, may_explore=True)
    assert advice is not None
    assert advice.candidate.prediction.samples_per_s > analysis.current.prediction.samples_per_s


@pytest.mark.more
def test_weighed_plans_are_allowed_each_once_and_hold_the_front_and_the_surroundings(analysis):
    axes = analysis.space.axes
    assert len(np.unique(axes, axis=0)) == len(axes) == len(analysis.cost) < 10_000
    assert analysis.grid.allows(axes).all()
    assert analysis.grid.contains(axes).all()
    rows = {tuple(row) for row in axes}
    assert rows >= {tuple(row) for row in axes_of([c.plan for c in analysis.front.candidates])}
    assert rows >= {tuple(row) for row in axes_of([NOW, changed(w=3), changed(p=2), changed(a=4.0)])}


def test_front_is_that_of_the_weighed_plans(analysis):
    best = non_dominated(analysis.cost, analysis.predictions.samples_per_s)
    expected = axes_of([analysis.space.plan(int(i)) for i in best])
    shown = axes_of([c.plan for c in analysis.front.candidates])
    if len(best) <= MOST_SHOWN:
        assert np.array_equal(shown, expected)
    assert {tuple(row) for row in shown} <= {tuple(row) for row in expected}
    assert np.array_equal(shown[[0, -1]], expected[[0, -1]])


def test_completed_candidates_agree_with_the_columns(analysis):
    index = range(0, len(analysis.space), max(len(analysis.space) // 7, 1))
    candidates = analysis.candidates([analysis.space.plan(i) for i in index])
    for i, candidate in zip(index, candidates, strict=True):
        assert candidate.cost == pytest.approx(analysis.cost[i])
        assert candidate.prediction.samples_per_s == pytest.approx(analysis.predictions.samples_per_s[i])
        assert candidate.gain_samples_per_s == pytest.approx(analysis.gain_samples_per_s[i])
        assert candidate.reason == analysis.candidate(candidate.plan).reason


@pytest.mark.more
def test_same_situation_gives_the_same_analysis_by_search_too():
    first, again = (analyse(situation(HUGE)).front for _ in range(2))
    assert first == again


@pytest.mark.parametrize("bounds", [SMALL, HUGE], ids=["listed", "searched"])
def test_no_candidate_departs_from_pins_quota_and_memory_needs(bounds):
    pins = Pins(workers=11, ps_cpu=2.5, worker_memory_mib=3000)
    limited = replace(bounds, quota_cpu=60, quota_memory_mib=60_000)
    found = analyse(situation(limited, pins=pins, memory_mib=((Role.WORKER, 9000), (Role.PS, 4096))))
    assert found.front.candidates
    for c in found.front.candidates:
        assert pins.allows(c.plan)
        assert c.plan.ps.memory_mib == 4096
        assert c.plan.total_cpu <= 60
        assert c.plan.total_memory_mib <= 60_000


def test_pins_that_leave_nothing_give_an_empty_front_and_the_reason_and_no_error(words):
    found = analyse(situation(SMALL, pins=Pins(worker_cpu=33)))
    assert found.front.candidates == ()
    assert found.why_empty == words
    assert analyse(situation(SMALL)).why_empty == ""
    assert advise(found, PlannerSettings(), rejected_plans={}, may_explore=True) is None


def test_unknown_price_is_unknown_everywhere_and_the_front_is_one_of_resources(words):
    found = analyse(
        situation(SMALL, spec=JobSpec("x", prices=PriceTable(gib_hour=None), budget_per_hour=1.0))
    )
    assert all(c.cost_per_hour is None and c.cost_per_million is None for c in found.front.candidates)
    assert found.front.cost_unit == words
    efforts = [c.plan.effort for c in found.front.candidates]
    assert efforts == sorted(efforts)
    assert "fastest in budget" not in {p.name for p in found.front.picks}


def test_deadline_and_budget_of_the_job_name_their_picks():
    found = analyse(situation(SMALL, spec=JobSpec("x", budget_per_hour=0.5), deadline_left_s=9000.0))
    picks = {p.name: found.front.candidates[p.index] for p in found.front.picks}
    assert picks["fastest in budget"].cost_per_hour <= 0.5
    in_time = picks["cheapest that meets the deadline"].in_time
    assert in_time >= 0.9


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.builds(changed, st.integers(1, 4), st.integers(1, 3), *[st.sampled_from([1.0, 2.0])] * 2),
        min_size=1,
    ),
    st.sampled_from([(2048, 2048), (2048, 4096)]),
    st.sampled_from([(), (("workers", 1.0),), (("moves seamless", 9.0), ("workers", 2.0))]),
    st.integers(6, 14),
    st.sampled_from(Migration),
)
def test_transitions_of_many_plans_cost_what_each_costs(plans, memory_mib, pauses, cores, migration):
    worker_mib, ps_mib = memory_mib
    sized = [
        ResourcePlan(replace(p.worker, memory_mib=worker_mib), replace(p.ps, memory_mib=ps_mib))
        for p in plans
    ]
    spec, room = JobSpec("x", migration=migration), Capacity((NodeShape(cores, 32_768),))
    asked = situation(PlanBounds(), spec=spec, capacity=room, pauses=pauses)
    many = transitions_s(axes_of(sized), memory_mib, asked)
    assert many.tolist() == [transition_s(plan, asked) for plan in sized]


@pytest.mark.parametrize("prices", [PriceTable(), PriceTable(cpu_hour=None)])
def test_bid_is_the_front_of_the_analysis_in_columns(prices):
    asked = situation(SMALL, spec=JobSpec("x", prices=prices))
    model = fitted(asked)
    offered, front = bid(asked, model), analyse(asked, model=model).front
    assert [offered.plan(i) for i in range(len(offered))] == [c.plan for c in front.candidates]
    assert offered.cost == pytest.approx([c.cost for c in front.candidates])
    assert offered.predictions.samples_per_s == pytest.approx(
        [c.prediction.samples_per_s for c in front.candidates]
    )
    assert offered.gain_samples_per_s == pytest.approx([c.gain_samples_per_s for c in front.candidates])
    assert offered.cpu == pytest.approx([c.plan.total_cpu for c in front.candidates])
    assert offered.memory_mib.tolist() == [c.plan.total_memory_mib for c in front.candidates]
    assert offered.now_cost == front.current.cost
    best = next(p.index for p in front.picks if p.name == "best value")
    assert offered.best == best
    whole = (front.current, *front.candidates)
    for mine, its in zip((offered.current, *offered.candidates()), whole, strict=True):
        assert (mine.plan, mine.scale, mine.cost_per_hour) == (its.plan, its.scale, its.cost_per_hour)
        assert mine.prediction.low == pytest.approx(its.prediction.low)
        assert mine.finish_s == pytest.approx(its.finish_s)
        assert mine.transition_s == its.transition_s


def test_cluster_chooses_among_bids():
    asked = [situation(SMALL, n_sample_left=n) for n in (10**7, 10**8, 10**9)]
    offers = [bid(s, fitted(s)) for s in asked]
    jobs = [replace(each.offer(), job=f"j{i}") for i, each in enumerate(offers)]
    shares = plan_cluster(jobs, Capacity((NodeShape(12, 65_536, 4),)), BrainSettings()).shares
    chosen = [share.plan for share in shares.values()]
    assert sum(plan.total_cpu for plan in chosen) <= 48
    assert any(plan != NOW for plan in chosen)


def test_an_offer_has_the_priority_of_its_job():
    asked = situation(SMALL, spec=JobSpec("x", priority=3.0))
    assert bid(asked, fitted(asked)).offer().priority == 3.0


def test_a_pause_costs_what_is_not_trained_in_it_over_the_rest_of_the_run_and_over_an_hour_at_most():
    left_s = np.array([0.0, 100.0, HORIZON_S, 10 * HORIZON_S])
    gained = gains(np.full(4, 1500.0), 1000.0, np.full(4, 36.0), left_s)
    assert gained == pytest.approx([500 - 36_000, 500 - 360, 500 - 10, 500 - 10])


def test_job_without_an_allowed_plan_bids_nothing():
    asked = situation(SMALL, capacity=Capacity(()))
    offered = bid(asked, fitted(asked))
    assert (len(offered), offered.best) == (0, None)


def test_little_of_the_front_is_lost_by_sorting_plans_out_roughly():
    """A large space is sorted out by mean coefficients; the front of all its plans covers hardly more."""
    found = analyse(situation(LARGE))
    axes = np.concatenate(list(found.grid.chunks()))
    speed = found.model.predict(axes, 512).samples_per_s
    cost = pricing.costs(axes, 2048, 2048, PriceTable())
    worst = (float(cost.max()), 0.0)
    kept = hypervolume(found.cost, found.predictions.samples_per_s, worst=worst)
    assert len(found.space) < len(axes) / 2
    assert kept >= 0.999 * hypervolume(cost, speed, worst=worst)


@pytest.mark.parametrize("bounds", [SMALL, HUGE], ids=["listed", "searched"])
def test_every_plan_has_the_gpus_of_the_job_counts_them_and_pays_for_them(bounds):
    plan, prices = NOW.with_gpus((1, 0)), PriceTable(gpu_hour=0.5)
    machines = Capacity((NodeShape(32, 131_072, 2, gpu=3), NodeShape(32, 131_072, 20)))
    spec = JobSpec("x", plan=plan, prices=prices)
    found = analyse(situation(bounds, spec=spec, plan=plan, capacity=machines))
    plans = [found.space.plan(i) for i in range(len(found.space))]
    assert {each.gpus for each in plans} == {(1, 0)}
    assert max(each.worker.count for each in plans) == 6
    assert found.cost.tolist() == pytest.approx([pricing.cost_per_hour(each, prices) for each in plans])
    for each in found.front.candidates:
        assert each.cost_per_hour == pytest.approx(pricing.cost_per_hour(each.plan, prices))
        assert each.plan.worker.gpu == 1
