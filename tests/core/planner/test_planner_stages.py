"""The three stages: what a job begins on, what is proposed while it runs, and what keeps its nodes alive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.planner.advising.advice import Limits, PlannerSettings, axes_key
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.availability.feasibility import check_room, has_room
from dlrover_nb.core.planner.policies.stages import auto_scale, post_scale, warm_start
from dlrover_nb.core.planner.protect import Frame, MemoryNeed, protected
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, PastJob, TermKnowledge

NOW = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 512))
TWO = replace(NOW, worker=RolePlan(2, 0.5, 1024))
ROOM = Capacity((NodeShape(4, 16_000),))
TRAITS = JobTraits("wide_deep", 8, 128, 1 << 16, 100_000, 512, 10**7, "ada", "clicks")
FIT = FitSummary(0.0, (TermKnowledge("gradients", 1e-5, 1e-6, identified=True),), 0.05, 4, 40, 1e5, 128, 512)


def seen(plan: ResourcePlan, speed: float, n: int = 5) -> tuple[ProfileSample, ...]:
    return tuple(ProfileSample(float(i), 2.0, plan, 512, speed) for i in range(n))


def situation(samples=None, **changes) -> Situation:
    base = Situation(
        spec=JobSpec("x"),
        capacity=ROOM,
        dense_bytes=100_000,
        embedding_dim=16,
        plan=NOW,
        samples=samples or seen(NOW, 10_000),
        n_sample_left=10_000_000,
    )
    return replace(base, **changes)


def scaled(analysis, *, rejected_plans=None, limits=None, may_explore=True):
    return auto_scale(
        analysis,
        PlannerSettings(),
        rejected_plans=rejected_plans or {},
        may_explore=may_explore,
        limits=limits,
    )


def need(role=Role.PS, mib=768, least=614) -> MemoryNeed:
    return MemoryNeed(role, mib, least, "s0 was killed")


# warm start


def past(n: int = 1) -> list[PastJob]:
    final = ResourcePlan(RolePlan(3, 1.0, 2048), RolePlan(2, 0.5, 1024))
    return [PastJob(TRAITS, NOW, final, FIT)] * n


def test_job_without_relatives_starts_as_its_user_asked():
    spec = JobSpec("x", plan=NOW)
    found = warm_start(spec, ROOM, TRAITS, [])
    assert (found.plan, found.prior) == (NOW, None)
    assert "no similar job" in found.why


def test_job_with_relatives_starts_where_they_ended_and_knows_what_they_knew():
    found = warm_start(JobSpec("x", plan=NOW), ROOM, TRAITS, past())
    assert found.plan == past()[0].final
    assert found.prior.terms
    assert "clicks" in found.why


def test_start_keeps_pins_room_and_budget():
    pins = Pins(ps=1, worker_memory_mib=512)
    small = Capacity((NodeShape(2.0, 16_000),))
    found = warm_start(JobSpec("x", plan=NOW, pins=pins), small, TRAITS, past())
    assert pins.allows(found.plan)
    assert found.plan.total_cpu <= 2.0
    for prices in (PriceTable(), PriceTable(cpu_hour=None)):
        spec = JobSpec("x", plan=NOW, budget_per_hour=0.03, prices=prices)
        dear = warm_start(spec, ROOM, TRAITS, past())
        assert dear.plan == NOW
        assert dear.prior is not None


def test_pins_hold_without_relatives_too():
    found = warm_start(JobSpec("x", plan=NOW, pins=Pins(workers=2)), ROOM, TRAITS, [])
    assert found.plan == TWO


# auto-scaling


def test_plan_that_keeps_the_pins_goes_before_a_faster_one(words):
    pins = Pins(ps_cpu=0.25)
    found = scaled(analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000), pins=pins)))
    assert found.candidate.plan == pins.applied(NOW)
    assert found.why == words
    assert found.candidate.reason == found.why


def test_rejected_plan_the_pins_is_not_proposed_again():
    pins = Pins(ps_cpu=0.25)
    analysis = analyse(situation(pins=pins))
    assert scaled(analysis, rejected_plans={pins.applied(NOW): 1.0}) is None


def test_pinned_plan_without_room_gives_way_to_the_fastest_that_has_room():
    pins = Pins(worker_cpu=2.0)
    three = replace(NOW, worker=RolePlan(3, 0.5, 1024))
    found = scaled(analyse(situation(seen(three, 20_000), plan=three, pins=pins)))
    assert pins.allows(found.candidate.plan)
    assert has_room(found.candidate.plan, ROOM, PlanBounds())


@pytest.mark.parametrize("budget", [0.03, 0.04, 0.06])
def test_advice_within_a_budget_costs_no_more(budget):
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000)))
    found = scaled(analysis, limits=Limits(budget_per_hour=budget))
    assert found is None or found.candidate.cost_per_hour <= budget


def test_no_advice_within_a_budget_where_prices_are_unknown():
    spec = JobSpec("x", prices=PriceTable(gib_hour=None))
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000), spec=spec))
    assert scaled(analysis) is not None
    assert scaled(analysis, limits=Limits(budget_per_hour=100.0)) is None


def test_free_plans_are_within_any_budget():
    spec = JobSpec("x", prices=PriceTable(cpu_hour=0.0, gib_hour=0.0))
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000), spec=spec))
    assert scaled(analysis, limits=Limits(budget_per_hour=0.01)) is not None


@given(step=st.floats(1, 4))
def test_advice_within_a_step_has_no_more_cores(step):
    found = scaled(ANALYSIS, limits=Limits(step=step))
    assert found is None or found.candidate.plan.total_cpu <= step * NOW.total_cpu + 1e-6


def test_plan_that_was_left_is_advised_only_for_the_gain_that_is_asked():
    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.5,))
    spec = JobSpec("x", bounds=bounds)
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 15_000), spec=spec))
    assert scaled(analysis, limits=Limits(returns={axes_key(TWO): 0.4})).candidate.plan == TWO
    assert scaled(analysis, limits=Limits(returns={axes_key(TWO): 0.6})) is None


ANALYSIS = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000)))


# post-scaling


def test_memory_that_is_needed_is_all_that_changes(words):
    found = post_scale(ANALYSIS, (need(),), rejected_plans={})
    assert found.kind is ProposalKind.PROTECT
    assert found.candidate.plan == replace(NOW, ps=replace(NOW.ps, memory_mib=768))
    assert found.why == words


def test_protection_that_failed_is_not_advised_again():
    plan = post_scale(ANALYSIS, (need(),), rejected_plans={}).candidate.plan
    assert post_scale(ANALYSIS, (need(),), rejected_plans={plan: 1.0}) is None
    assert post_scale(ANALYSIS, (), rejected_plans={}) is None


def test_need_beyond_every_machine_is_no_plan():
    frame = Frame(Capacity((NodeShape(4, 2000),)), PlanBounds(), Pins())
    assert protected(NOW, (need(mib=4000, least=2500),), frame) is None
    assert 700 <= protected(NOW, (need(mib=4000, least=700),), frame).ps.memory_mib <= 2000 - 1024


counts = st.integers(1, 6)
sizes = st.integers(2, 40).map(lambda n: 64 * n)


@given(
    workers=counts,
    ps=counts,
    needs=st.lists(st.tuples(st.sampled_from(Role), sizes, st.integers(0, 1000)), min_size=1, max_size=2),
    machine=st.tuples(st.integers(1, 4), st.integers(500, 8000), st.integers(1, 4)),
    quota=st.none() | st.integers(500, 20_000),
    pins=st.builds(Pins, workers=st.none() | counts, ps_memory_mib=st.none() | sizes),
)
def test_protecting_plan_is_within_the_frame_and_gives_what_helps(workers, ps, needs, machine, quota, pins):
    plan = ResourcePlan(RolePlan(workers, 0.25, 256), RolePlan(ps, 0.25, 256))
    wanted = [need(role, least + more, least) for role, least, more in needs]
    frame = Frame(Capacity((NodeShape(*machine),)), PlanBounds(quota_memory_mib=quota), pins)
    found = protected(plan, wanted, frame)
    if found is None:
        return
    assert found != plan
    assert frame.holds(found)
    for role in Role:
        assert found.role(role).count <= plan.role(role).count
        assert found.role(role).cpu == plan.role(role).cpu
        assert found.role(role).memory_mib >= plan.role(role).memory_mib
    for asked in wanted:
        if asked.least_mib <= machine[1]:
            assert found.role(asked.role).memory_mib >= min(asked.least_mib, machine[1])


# room


def test_plan_over_the_quota_is_refused_in_words(error_words):
    bounds = PlanBounds(quota_cpu=1.0, quota_memory_mib=2048)
    check_room(NOW, ROOM, bounds)
    with error_words(CapacityError):
        check_room(TWO, ROOM, bounds)
    fat = replace(NOW, ps=RolePlan(1, 0.5, 1500))
    with pytest.raises(CapacityError, match="2524 of 2048 MiB"):
        check_room(fat, ROOM, bounds)
    with error_words(CapacityError):
        check_room(replace(NOW, ps=RolePlan(1, 5, 512)), ROOM, PlanBounds())
