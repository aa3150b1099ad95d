"""The deadline as a constraint of planning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.advising.improvement import advise
from dlrover_nb.core.planner.analysis import analyse, fitted
from dlrover_nb.core.planner.finish_chance import ALIKE, Due, chances, most_probable, sure_share
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Objective
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

BOUNDS = PlanBounds(8, 3, (0.5, 1.0, 2.0), (0.5, 1.0))
PRICES = PriceTable(cpu_hour=0.04, gib_hour=0.005)
N_LEFT = 50_000_000
SPEED = PlannerSettings()


def plan(w, p, worker_cpu=1.0, ps_cpu=0.5):
    return ResourcePlan(RolePlan(w, worker_cpu, 1024), RolePlan(p, ps_cpu, 512))


def true_speed(p: ResourcePlan) -> float:
    w, n = p.worker, p.ps
    return w.count * 512 / (0.02 / w.cpu + 0.002 * w.count / (n.count * n.cpu) + 0.004)


def samples(plans, seed, noise=0.02):
    rng = np.random.default_rng(seed)
    return tuple(
        ProfileSample(float(i), 2.0, p, 512, true_speed(p) * float(np.exp(rng.normal(0, noise))))
        for p in plans
        for i in range(5)
    )


MEASURED = (plan(1, 1), plan(2, 1), plan(4, 1), plan(2, 2, 2.0))


def base(seed=0, now=MEASURED[1], objective=Objective.VALUE):
    return Situation(
        spec=JobSpec("x", bounds=BOUNDS, prices=PRICES, objective=objective),
        capacity=Capacity((NodeShape(8, 64_000, 4),)),
        dense_bytes=100_000,
        embedding_dim=16,
        plan=now,
        samples=samples(MEASURED, seed),
        n_sample_left=N_LEFT,
    )


MODELS = {seed: fitted(base(seed)) for seed in range(4)}


def at(left_s, seed=0, **changes):
    return analyse(replace(base(seed, **changes), deadline_left_s=left_s), model=MODELS[seed])


def chosen(analysis):
    """Return the plan that runs next: the advised one, or the present one."""
    found = advise(analysis, SPEED, rejected_plans={}, may_explore=False)
    return analysis.situation.plan if found is None else found.candidate.plan


def span(seed):
    """Return the seconds that the present plan needs."""
    return at(None, seed).current.finish_s


@settings(deadline=None)
@given(
    st.tuples(st.floats(100, 1e5), st.floats(0, 0.5), st.floats(0, 0.5)),
    st.floats(0, 50),
    st.integers(0, 10**9),
    st.floats(-100, 1e6),
    st.floats(1, 1e5),
)
def test_chance_is_a_probability_and_grows_with_the_time_left(band, pause_s, n, left_s, more_s):
    speed, down, up = band
    p = Prediction(speed, speed * np.exp(-down), speed * np.exp(up), extrapolates=False)
    chance, later = (float(chances(p, pause_s, Due(n, s))) for s in (left_s, left_s + more_s))
    assert 0 <= chance <= later <= 1
    assert float(chances(p, pause_s + 1, Due(n, left_s))) <= chance
    assert left_s > 0 or n == 0 or chance == 0


@settings(deadline=None)
@given(st.floats(100, 1e5), st.floats(0.01, 0.5), st.floats(0.01, 0.5))
def test_chance_at_the_ends_of_the_band_is_that_of_the_band(speed, down, up):
    p = Prediction(speed, speed * np.exp(-down), speed * np.exp(up), extrapolates=False)
    for needed, chance in ((p.low, 0.95), (speed, 0.5), (p.high, 0.05)):
        assert float(chances(p, 0.0, Due(10**9, 10**9 / needed))) == pytest.approx(chance, abs=1e-4)


@given(st.floats(10, 1e5), st.floats(1.01, 2), st.floats(1.01, 2), st.floats(0.5, 0.99), st.floats(0.5, 2))
def test_a_plan_is_as_probable_as_wanted_where_its_sure_share_is_enough(speed, down, up, wanted, part):
    prediction = Prediction(speed, speed / down, speed * up, extrapolates=False)
    share = sure_share(prediction, wanted)
    assert 0 < share <= 1
    assume(abs(part / share - 1) > 1e-6)
    due = Due(1_000_000, 1_000_000 / (speed * part))  # so many seconds that `part` of the speed is enough
    assert (chances(prediction, 0.0, due) >= wanted) == (part <= share)


def test_of_plans_without_any_chance_the_earliest_is_the_most_probable():
    assert most_probable(np.zeros(3), np.array([30.0, 10.0, 20.0])) == 1
    assert most_probable(np.array([0.1, 0.0, 0.2]), np.array([30.0, 10.0, 40.0])) == 2


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 3), st.sampled_from(MEASURED), st.sampled_from(Objective), st.floats(0.05, 1.5), st.floats(1.0, 3.0)
)  # fmt: skip
def test_a_tighter_deadline_never_lowers_the_chance_of_the_chosen_plan(seed, now, objective, part, times):
    tight_s = part * span(seed)
    tight = at(tight_s, seed, now=now, objective=objective)
    wide = at(tight_s * times, seed, now=now, objective=objective)
    mine, other = (tight.candidate(chosen(a)).in_time for a in (tight, wide))
    assert mine >= other - ALIKE


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 3), st.sampled_from(MEASURED), st.sampled_from(Objective), st.booleans())
def test_a_loose_deadline_changes_nothing(seed, now, objective, may_explore):
    free, loose = (at(s, seed, now=now, objective=objective) for s in (None, 1000 * span(seed)))
    one, two = (advise(a, SPEED, rejected_plans={}, may_explore=may_explore) for a in (free, loose))
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert (one.kind, one.candidate.plan) == (two.kind, two.candidate.plan)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 3), st.floats(0.1, 1.2))
def test_a_slow_plan_gives_way_to_the_cheapest_that_meets_the_deadline(seed, part):
    analysis = at(part * span(seed), seed)
    assume(analysis.current.in_time < 0.9)
    assume((analysis.in_time >= 0.9).any())
    found = advise(analysis, SPEED, rejected_plans={}, may_explore=False)
    assert found.kind is ProposalKind.IMPROVE
    assert found.candidate.in_time >= 0.9
    meeting = analysis.cost[analysis.in_time >= 0.9]
    faster = found.candidate.prediction.low >= 1.1 * analysis.current.prediction.samples_per_s
    assert found.candidate.cost == pytest.approx(meeting.min()) or faster


def test_without_any_plan_in_time_the_most_probable_is_advised_and_it_is_said(words):
    analysis = at(0.01 * span(0))
    found = advise(analysis, SPEED, rejected_plans={}, may_explore=False)
    assert found.candidate.plan == analysis.space.plan(most_probable(analysis.in_time, analysis.finish_s))
    assert found.why == words
    told = analysis.deadline
    assert not told.is_feasible
    assert told.earliest_s == pytest.approx(analysis.finish_s.min())
    assert told.words == words
    assert "earliest end" in told.words


def test_an_experiment_that_could_cost_the_deadline_is_not_made():
    now = MEASURED[2]
    one = replace(base(now=now), samples=samples((now,), 0))
    needed_s = analyse(one).current.finish_s
    wide = analyse(replace(one, deadline_left_s=10 * needed_s))
    found = advise(wide, SPEED, rejected_plans={}, may_explore=True)
    assert found.kind is ProposalKind.EXPLORE
    left = np.linspace(1.0, 1.5, 400) * needed_s
    chance = [float(chances(wide.current.prediction, 0.0, Due(N_LEFT, s))) for s in left]
    just_s = float(left[np.searchsorted(chance, 0.9)]) + 1.0
    close = analyse(replace(one, deadline_left_s=just_s))
    assert close.current.in_time >= 0.9
    found = advise(close, SPEED, rejected_plans={}, may_explore=True)
    assert found is None or found.kind is not ProposalKind.EXPLORE


def test_the_wanted_chance_is_a_setting():
    analysis = at(span(0))
    bold = replace(analysis, situation=replace(analysis.situation, deadline_chance=0.01))
    assert analysis.current.in_time < 0.9
    assert bold.deadline.is_met
    assert not analysis.deadline.is_met


def test_a_budget_that_no_plan_in_time_keeps_to_is_told_with_the_smallest_that_would_do(words):
    left_s = 0.8 * span(0)
    least = min(at(left_s).cost[at(left_s).in_time >= 0.9])

    def outlook(budget):
        spec = replace(base().spec, budget_per_hour=budget)
        return analyse(replace(base(), spec=spec, deadline_left_s=left_s), model=MODELS[0]).deadline

    tight, enough, none = (outlook(budget) for budget in (0.9 * least, 1.01 * least, None))
    assert tight.least_budget == pytest.approx(least)
    assert not tight.is_feasible
    assert tight.words == words
    assert (enough.least_budget, none.least_budget) == (None, None)
    assert enough.is_feasible
    assert none.is_feasible


def test_a_budget_that_forbids_all_good_plans_is_told_with_the_chance_that_a_larger_one_buys():
    left_s = 0.8 * span(0)
    every = at(left_s)
    cheapest = float(every.cost.min())
    spec = replace(base().spec, budget_per_hour=1.01 * cheapest)
    sure = replace(base(), spec=spec, deadline_left_s=left_s, deadline_chance=0.999999)
    outlook = analyse(sure, model=MODELS[0]).deadline
    assert outlook.least_budget > 1.01 * cheapest
    assert outlook.least_budget_in_time == pytest.approx(float(every.in_time.max()), abs=0.03)
    assert "an hour" in outlook.words


@given(late=st.floats(0.3, 3.0))
@settings(max_examples=20, deadline=None)
def test_the_plan_that_is_named_is_the_cheapest_of_those_in_time(late):
    analysis = at(late * span(0))
    outlook, meeting = analysis.deadline, analysis.in_time >= 0.9
    if outlook.is_met or not meeting.any():
        return
    named = analysis.candidate(outlook.best_plan)
    assert named.cost == pytest.approx(float(analysis.cost[meeting].min()))
