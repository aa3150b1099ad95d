from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from support.cases import for_each

from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.advising.improvement import advise
from dlrover_nb.core.planner.advising.sensitivity import (
    _of_situation,
    break_even_of,
    break_even_of_staying,
    suppose,
)
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.predictions.transitions import transition_kind
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

NOW = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 512))
TWO = replace(NOW, worker=RolePlan(2, 0.5, 1024))
PS = replace(NOW, ps=RolePlan(2, 0.5, 512))
decide = partial(advise, settings=PlannerSettings(), rejected_plans={}, may_explore=True)


def seen(plan, speed, n=5):
    return tuple(ProfileSample(float(i), 2.0, plan, 512, speed) for i in range(n))


def situation(samples, **changes) -> Situation:
    base = Situation(
        spec=JobSpec("x"),
        capacity=Capacity((NodeShape(4, 16_000),)),
        dense_bytes=100_000,
        embedding_dim=16,
        plan=NOW,
        samples=samples,
        n_sample_left=10_000_000,
    )
    return replace(base, **changes)


def asked_again(analysis, found, kind):
    """The recommendation just before and just beyond a flip, made anew from the changed situation."""
    s = analysis.situation

    def supposed(value):
        if found.quantity == "number of samples left to train":
            return suppose(analysis, situation=replace(s, n_sample_left=round(value)))
        if found.quantity == "pause of the transition":
            return suppose(analysis, situation=replace(s, pauses=((kind, value),)))
        if found.quantity == "price of a core":
            prices = replace(s.spec.prices, cpu_hour=value)
            return suppose(analysis, situation=replace(s, spec=replace(s.spec, prices=prices)))
        plan = NOW if "present" in found.quantity else decide(analysis).candidate.plan
        row = (plan.worker.count, plan.ps.count, plan.worker.cpu, plan.ps.cpu)
        return suppose(analysis, factors={row: value / found.now})

    def plan_at(value):
        advice = decide(supposed(value))
        return NOW if advice is None else advice.candidate.plan

    beyond = found.at + (found.at - found.now) * 0.002
    before = found.at - (found.at - found.now) * 0.01
    return plan_at(before), plan_at(beyond)


SAMPLES_LEFT, PRICE = "number of samples left to train", "price of a core"
ONE_PS = PlanBounds(max_workers=4, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.5,))


@pytest.mark.more
@for_each(
    "changes",
    [
        {"spec": JobSpec("x", bounds=ONE_PS)},
        {"spec": JobSpec("x", bounds=replace(ONE_PS, max_workers=2))},
        {"spec": JobSpec("x"), "n_sample_left": 600_000},
        {"spec": JobSpec("x", prices=PriceTable(cpu_hour=0.03, gib_hour=0.004, assumed=False))},
        {"spec": JobSpec("x", bounds=ONE_PS, prices=PriceTable(cpu_hour=None))},
        {"spec": JobSpec("x", bounds=ONE_PS), "pauses": (("workers", 5.0),), "n_sample_left": 700_000},
    ],
)
def test_advice_is_the_same_before_its_flip_and_another_beyond(changes):
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 11_600), **changes))
    advice = decide(analysis)
    found = break_even_of(analysis, advice, decide)
    assert advice.kind is ProposalKind.IMPROVE
    assert found is not None
    before, beyond = asked_again(
        analysis,
        found,
        transition_kind(NOW, advice.candidate.plan, Migration.SEAMLESS, analysis.situation.capacity),
    )
    assert before == advice.candidate.plan
    assert beyond == found.plan != advice.candidate.plan
    assert found.words.endswith("would win.")


def test_barely_better_plan_flips_with_its_own_throughput(words):
    bounds = replace(ONE_PS, max_workers=2)
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 11_600), spec=JobSpec("x", bounds=bounds)))
    found = break_even_of(analysis, decide(analysis), decide)
    assert found.quantity.startswith("throughput")
    assert found.plan == NOW
    assert found.words == words


def test_flip_is_none_where_nothing_plausible_changes_the_advice():
    bounds = replace(ONE_PS, max_workers=2)
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 90_000), spec=JobSpec("x", bounds=bounds)))
    assert break_even_of(analysis, decide(analysis), decide) is None


def test_flip_of_advice_that_the_decision_does_not_give_is_none():
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000)))
    other = replace(decide(analysis), candidate=analysis.candidate(PS))
    assert break_even_of(analysis, other, decide) is None


def test_staying_flips_where_something_would_be_advised():
    spec = JobSpec("x", bounds=replace(ONE_PS, max_workers=2))
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 10_950), spec=spec))
    assert decide(analysis) is None
    found = break_even_of_staying(analysis, analysis.candidate(TWO), decide)
    assert found.plan == TWO
    plan = TWO if TWO.short in found.quantity else NOW
    row = (plan.worker.count, plan.ps.count, plan.worker.cpu, plan.ps.cpu)

    def advised(value):
        return decide(suppose(analysis, factors={row: value / found.now}))

    assert advised(found.at - (found.at - found.now) * 0.01) is None
    assert advised(found.at + (found.at - found.now) * 0.002).candidate.plan == TWO


def test_experiment_flips_only_with_what_it_rests_on():
    analysis = analyse(situation(seen(NOW, 10_000), n_sample_left=300_000))
    advice = decide(analysis)
    found = break_even_of(analysis, advice, decide)
    assert advice.kind is ProposalKind.EXPLORE
    assert found is None or "throughput" not in found.quantity


@for_each(
    ("n_sample_left", "prices", "asked"),
    [
        (10_000_000, PriceTable(cpu_hour=0.03, gib_hour=0.004), {SAMPLES_LEFT, PRICE}),
        (10_000_000, PriceTable(cpu_hour=0.03, gib_hour=None), {SAMPLES_LEFT}),
        (0, PriceTable(cpu_hour=None), set()),
    ],
)
def test_only_what_is_known_and_more_than_nothing_is_asked_for_its_flip(n_sample_left, prices, asked):
    spec = JobSpec("x", prices=prices)
    analysis = analyse(situation(seen(NOW, 10_000), n_sample_left=n_sample_left, spec=spec))
    inputs = _of_situation(analysis, analysis.current, lambda _: NOW)
    assert {each.name for each in inputs} == asked


def test_supposing_nothing_changes_nothing():
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000)))
    same = suppose(analysis)
    assert same.current == analysis.current
    assert same.cost.tolist() == analysis.cost.tolist()
    assert decide(same) == decide(analysis)


def test_a_supposed_throughput_is_that_of_its_plan_alone():
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000)))
    row = (NOW.worker.count, NOW.ps.count, NOW.worker.cpu, NOW.ps.cpu)
    found = suppose(analysis, factors={row: 2.0})
    assert found.current.prediction.samples_per_s == pytest.approx(
        2 * analysis.current.prediction.samples_per_s
    )
    assert found.current.finish_s == pytest.approx(analysis.current.finish_s / 2)
    assert found.candidate(TWO).prediction == analysis.candidate(TWO).prediction
