"""What an analysis says in words: next steps, what binds, what was measured, and the next best plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.advising.explain import AdviceContext, binding, evidence, marginals, runner_up
from dlrover_nb.core.planner.advising.improvement import probe
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.availability.feasibility import check_room
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds, Quota
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

NOW = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.5, 512))
FEWER = replace(NOW, worker=RolePlan(1, 0.5, 1024))
MORE = replace(NOW, worker=RolePlan(3, 0.5, 1024))
BOUNDS = PlanBounds(max_workers=4, max_ps=2, worker_cpus=(0.25, 0.5, 1.0), ps_cpus=(0.25, 0.5, 1.0))
ROOMY = Capacity((NodeShape(64.0, 640_000),))
PLANS = st.builds(
    ResourcePlan,
    worker=st.builds(RolePlan, st.integers(1, 6), st.sampled_from([0.25, 0.4, 0.5, 1.0, 2.0]), st.just(1024)),
    ps=st.builds(RolePlan, st.integers(1, 3), st.sampled_from([0.25, 0.5, 1.0]), st.just(512)),
)


def seen(plan, speed, n=5):
    return tuple(ProfileSample(float(i), 2.0, plan, 512, speed) for i in range(n))


SAMPLES = seen(NOW, 20_000, 6) + seen(FEWER, 11_000, 7) + seen(MORE, 27_000, 5)


def analysed(samples=SAMPLES, *, bounds=BOUNDS, capacity=ROOMY, pins=None, **changes):
    of_job = {"budget_per_hour", "deadline_s", "objective"}
    given_spec = {name: changes.pop(name) for name in of_job & changes.keys()}
    return analyse(
        Situation(
            spec=JobSpec("x", plan=NOW, bounds=bounds, **given_spec),
            capacity=capacity,
            dense_bytes=100_000,
            embedding_dim=16,
            plan=NOW,
            samples=samples,
            n_sample_left=100_000_000,
            pins=pins or Pins(),
            **changes,
        )
    )


def refusal_of(analysis):
    def refuse(plan):
        try:
            check_room(plan, analysis.situation.capacity, analysis.situation.spec.bounds)
        except CapacityError as error:
            return str(error)
        return ""

    return refuse


def grounds(analysis, **changes):
    told = AdviceContext(PlannerSettings(), refusal_of(analysis), {}, Quota())
    return replace(told, **changes)


ANALYSIS = analysed()


@settings(max_examples=50, deadline=None)
@given(plan=PLANS)
def test_each_step_changes_one_number_to_the_next_rung(plan):
    rungs = [(1, 2, 3, 4), (1, 2), BOUNDS.worker_cpus, BOUNDS.ps_cpus]
    here = axes_of([plan])[0]
    steps = axes_of([m.weighed.plan for m in marginals(ANALYSIS, plan, lambda _: "")])
    for axis, ladder in enumerate(rungs):
        moved = steps[steps[:, axis] != here[axis]]
        assert (np.delete(moved, axis, axis=1) == np.delete(here, axis)).all()
        above = [v for v in ladder if v > here[axis]][:1]
        below = [v for v in ladder if v < here[axis]][-1:]
        assert sorted(moved[:, axis]) == sorted(above + below)


@settings(max_examples=50, deadline=None)
@given(plan=PLANS)
def test_a_marginal_is_the_difference_to_the_plan_that_is_explained(plan):
    base = ANALYSIS.candidate(plan)
    for marginal in marginals(ANALYSIS, plan, lambda _: ""):
        step = ANALYSIS.candidate(marginal.weighed.plan)
        told, gained = (
            marginal.weighed.candidate,
            step.prediction.samples_per_s - base.prediction.samples_per_s,
        )
        assert told.prediction.samples_per_s == pytest.approx(step.prediction.samples_per_s)
        assert marginal.samples_per_s == pytest.approx(gained, abs=1e-6)
        assert marginal.cost_per_hour == pytest.approx(step.cost_per_hour - base.cost_per_hour)


@settings(max_examples=50, deadline=None)
@given(plan=PLANS, cores=st.sampled_from([1.0, 1.5, 2.0, 4.0, 8.0]))
def test_machines_bind_exactly_when_a_larger_step_finds_no_room(plan, cores):
    analysis = replace(
        ANALYSIS, situation=replace(ANALYSIS.situation, capacity=Capacity((NodeShape(cores, 640_000),)))
    )
    larger = [
        m for m in marginals(analysis, plan, refusal_of(analysis)) if m.weighed.plan.effort > plan.effort
    ]
    said = [
        words
        for words in binding(analysis, analysis.candidate(plan), Quota())
        if words.startswith("machines")
    ]
    refused = [m.what for m in larger if m.weighed.refusal]
    assert bool(said) == bool(refused)
    assert all(what in said[0] for what in refused)


def bound(analysis, plan=NOW, quota=None):
    return binding(analysis, analysis.candidate(plan), quota or Quota())


def test_a_plan_in_the_middle_of_everything_is_bound_by_nothing():
    assert bound(ANALYSIS) == ()


def test_what_else_limits_the_machines_is_named_where_they_bind(words):
    full = Capacity((NodeShape(1.0, 640_000),), note="Kueue's queue a admits at most 1 cores")
    analysis = replace(ANALYSIS, situation=replace(ANALYSIS.situation, capacity=full))
    (said,) = (words for words in bound(analysis) if words.startswith("machines"))
    assert said == words


def test_bounds_bind_at_their_ends(words):
    tight = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5, 1.0), ps_cpus=(0.25, 0.5))
    assert bound(analysed(bounds=tight)) == words


def test_pins_bind_and_are_not_told_as_bounds_too(words):
    assert bound(analysed(pins=Pins(workers=2, ps_memory_mib=512))) == (
        "workers: 2, pinned",
        "ps_memory_mib: 512, pinned",
    )
    assert bound(analysed(pins=Pins(ps=2)))[0] == words


def test_quotas_bind_where_a_step_exceeds_them(words):
    assert bound(analysed(bounds=replace(BOUNDS, quota_cpu=1.9))) == (words,)
    assert bound(ANALYSIS, quota=Quota(1.9))[0] == words


def test_a_budget_binds_when_the_next_step_is_too_dear_or_the_plan_is():
    price = ANALYSIS.current.cost_per_hour
    near = bound(analysed(budget_per_hour=price * 1.01))
    assert near[0].startswith(f"budget of {price * 1.01:g} USD per hour")
    assert "1 more worker" in near[0]
    assert "the plan costs" in bound(analysed(budget_per_hour=price / 2))[0]
    assert bound(analysed(budget_per_hour=price * 10)) == ()


def test_a_deadline_binds_when_a_smaller_plan_would_miss_it(words):
    left_s = ANALYSIS.current.finish_s
    told = bound(analysed(deadline_left_s=left_s * 1.1))[0]
    assert told.startswith("deadline in ")
    assert told == words
    assert bound(analysed(deadline_left_s=left_s / 2))[0] == words
    assert bound(analysed(deadline_left_s=left_s * 100)) == ()


def test_memory_that_is_needed_binds_and_a_gib_more_is_a_step_that_costs_and_gains_nothing(words):
    analysis = analysed(memory_mib=((Role.PS, 700),))
    assert bound(analysis) == (words,)
    *_, memory = marginals(analysis, NOW, lambda _: "")
    assert memory.what == words
    assert memory.samples_per_s == 0
    assert memory.cost_per_hour > 0
    pinned = analysed(memory_mib=((Role.PS, 512),), pins=Pins(ps_memory_mib=512))
    assert bound(pinned) == ("ps_memory_mib: 512, pinned",)


def test_where_a_price_is_unknown_no_marginal_has_one():
    prices = replace(ANALYSIS.situation.spec.prices, cpu_hour=None)
    spec = replace(ANALYSIS.situation.spec, prices=prices)
    analysis = analyse(replace(ANALYSIS.situation, spec=spec), model=ANALYSIS.model)
    assert {m.cost_per_hour for m in marginals(analysis, NOW, lambda _: "")} == {None}


def test_evidence_is_what_was_measured_nearest_first_whatever_its_memory():
    roomier = replace(MORE, ps=RolePlan(1, 0.5, 2048))
    told = evidence(analysed(SAMPLES + seen(roomier, 27_000, 2)), MORE)
    assert [(m.plan.short, m.n_window) for m in told] == [(MORE.short, 7), (NOW.short, 6), (FEWER.short, 7)]
    assert [m.samples_per_s for m in told] == [27_000, 20_000, 11_000]
    assert told[0].predicted.samples_per_s == pytest.approx(27_000)


@settings(max_examples=30, deadline=None)
@given(plan=PLANS)
def test_the_runner_up_is_another_plan_of_the_front(plan):
    found, lacks = runner_up(ANALYSIS, plan, grounds(ANALYSIS))
    assert found in ANALYSIS.front.candidates
    assert axes_of([found.plan]).tolist() not in (axes_of([plan]).tolist(), axes_of([NOW]).tolist())
    assert lacks


def test_what_the_runner_up_lacks_is_the_rule_that_it_breaks(words):
    found, _ = runner_up(ANALYSIS, NOW, grounds(ANALYSIS))
    for then in (found.prediction.samples_per_s, 2 * found.prediction.samples_per_s, float("nan")):
        turned_down = grounds(ANALYSIS, rejected_plans={found.plan: then})
        assert runner_up(ANALYSIS, NOW, turned_down)[1] == words
    otherwise = grounds(ANALYSIS, rejected_plans={found.plan: found.prediction.samples_per_s / 2})
    assert "was rejected" not in runner_up(ANALYSIS, NOW, otherwise)[1]
    assert runner_up(ANALYSIS, NOW, grounds(ANALYSIS, refusal=lambda _: "it is pinned"))[1] == words
    cautious = grounds(ANALYSIS, settings=PlannerSettings(min_gain=50.0))
    assert "Its gain is uncertain" in runner_up(ANALYSIS, NOW, cautious)[1]
    late = replace(
        ANALYSIS.situation, n_sample_left=1000, pauses=(("workers", 60.0), ("moves seamless", 60.0))
    )
    ending = analyse(late, model=ANALYSIS.model)
    assert runner_up(ending, NOW, grounds(ending))[1] == words


def test_a_runner_up_above_the_budget_or_after_the_deadline_is_told_as_such(words):
    cheap = analysed(budget_per_hour=0.001)
    assert runner_up(cheap, NOW, grounds(cheap))[1] == words
    late = analysed(deadline_left_s=1.0)
    assert runner_up(late, NOW, grounds(late))[1] == words


def test_without_another_plan_there_is_no_runner_up():
    only = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.5,))
    analysis = analysed(bounds=only, pins=Pins(workers=2))
    assert runner_up(analysis, NOW, grounds(analysis)) == (None, "")


def test_the_next_best_probe_is_an_unmeasured_plan_that_may_be_tried():
    analysis = analysed(seen(NOW, 20_000))
    found = probe(analysis, PlannerSettings(), rejected_plans={})
    assert found is not None
    assert found.candidate.plan != NOW
    assert "uncertainty" in found.why
    rejected_plans = {found.candidate.plan: found.candidate.prediction.samples_per_s}
    other = probe(analysis, PlannerSettings(), rejected_plans=rejected_plans)
    assert other is None or other.candidate.plan != found.candidate.plan


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            PlanBounds(quota_cpu=1.6),
            r"3w x 0.5 \+ 1p x 0.5 exceeds .*2 of 1.6 cores.*2 workers of this size",
        ),
        (PlanBounds(quota_memory_mib=2048), r"3584 of 2048 MiB\); with these PS, 1 worker of this"),
        (PlanBounds(quota_cpu=0.9), "not even 1 worker"),
    ],
)
def test_a_plan_over_the_quota_is_told_what_it_allows(bounds, words):
    with pytest.raises(CapacityError, match=words):
        check_room(MORE, ROOMY, bounds)
